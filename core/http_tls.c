/* Which TLS connections ended because the peer said so. */
#include "core/http_call.h"

#include <openssl/ssl.h>

#include "core/mem.h"

static void on_tls_event(const SSL *tls, int where, int alert)
{
    if (where != SSL_CB_READ_ALERT || (alert & 0xff) != SSL_AD_CLOSE_NOTIFY)
        return;
    http_client_t *client = SSL_CTX_get_app_data(SSL_get_SSL_CTX(tls));
    if (client == NULL || client->magic != HTTP_CLIENT_MAGIC)
        mem_fatal("a TLS connection of no HTTP client");
    for (http_call_t *call = client->calls; call != NULL; call = call->next)
        if (call->tls == tls)
            call->has_tls_end = true;
}

CURLcode http_tls_watch(CURL *easy, void *tls_context, void *client)
{
    (void)easy;
    SSL_CTX_set_app_data((SSL_CTX *)tls_context, client);
    SSL_CTX_set_info_callback(tls_context, on_tls_event);
    return CURLE_OK;
}

void http_tls_note(http_call_t *call)
{
    struct curl_tlssessioninfo *info = NULL;
    if (curl_easy_getinfo(call->easy, CURLINFO_TLS_SSL_PTR, &info) == CURLE_OK && info != NULL &&
        info->backend == CURLSSLBACKEND_OPENSSL)
        call->tls = info->internals;
}
