#include "core/tls_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "core/mem.h"

struct tls_stream {
    SSL *ssl;
    bool wants_write;
    char error[160];
};

/* --- the context --- */

SSL_CTX *tls_stream_load(const char *ca_file, const char *cert_file, const char *key_file, const char **err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        mem_fatal("no TLS");
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (ca_file != NULL ? SSL_CTX_load_verify_file(context, ca_file) != 1
                        : SSL_CTX_set_default_verify_paths(context) != 1) {
        *err = "the authorities' file holds no usable certificate";
        goto Error;
    }
    if ((cert_file == NULL) != (key_file == NULL)) {
        *err = "a client certificate and its key go together";
        goto Error;
    }
    if (cert_file != NULL && SSL_CTX_use_certificate_chain_file(context, cert_file) != 1) {
        *err = "the client certificate's file holds no usable certificate chain";
        goto Error;
    }
    if (key_file != NULL && SSL_CTX_use_PrivateKey_file(context, key_file, SSL_FILETYPE_PEM) != 1) {
        *err = "the client key's file holds no usable key of that certificate";
        goto Error;
    }
    ERR_clear_error();
    return context;

Error:
    ERR_clear_error();
    SSL_CTX_free(context);
    return NULL;
}

void tls_stream_offer(SSL_CTX *context, const char *protocol)
{
    uint8_t list[1 + UINT8_MAX];
    size_t len = strlen(protocol);
    if (len == 0 || len > UINT8_MAX)
        mem_fatal("a protocol's name out of bounds");
    list[0] = (uint8_t)len;
    memcpy(list + 1, protocol, len);
    if (SSL_CTX_set_alpn_protos(context, list, (unsigned)len + 1) != 0)
        mem_fatal("no ALPN");
}

void tls_stream_ref(SSL_CTX *context)
{
    if (context != NULL)
        SSL_CTX_up_ref(context);
}

void tls_stream_unref(SSL_CTX *context)
{
    SSL_CTX_free(context);
}

/* --- a connection --- */

static bool is_literal(const char *host)
{
    uint8_t binary[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1;
}

/* RFC 6066 section 3: a literal address is not sent as the server's name. */
static bool expect_name(SSL *ssl, const char *host)
{
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_literal(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

tls_stream_t *tls_stream_create(SSL_CTX *context, int fd, const char *host)
{
    tls_stream_t *tls = mem_alloc(sizeof(*tls));
    tls->ssl = SSL_new(context);
    if (tls->ssl == NULL || SSL_set_fd(tls->ssl, fd) != 1 || !expect_name(tls->ssl, host))
        mem_fatal("no TLS connection");
    SSL_set_connect_state(tls->ssl);
    return tls;
}

void tls_stream_destroy(tls_stream_t *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

static void say(tls_stream_t *tls, const char *what, const char *why)
{
    snprintf(tls->error, sizeof(tls->error), "%s%s%s", what, why != NULL ? ": " : "", why != NULL ? why : "");
}

static tls_stream_result_t outcome_of(tls_stream_t *tls, int result)
{
    int saved = errno, kind = SSL_get_error(tls->ssl, result);
    long verdict = SSL_get_verify_result(tls->ssl);
    tls->wants_write = kind == SSL_ERROR_WANT_WRITE;
    if (kind == SSL_ERROR_WANT_WRITE || kind == SSL_ERROR_WANT_READ)
        return TLS_STREAM_LATER;
    if (verdict != X509_V_OK)
        say(tls, "TLS: the server's certificate is not trusted", X509_verify_cert_error_string(verdict));
    else if (kind == SSL_ERROR_ZERO_RETURN || (kind == SSL_ERROR_SYSCALL && saved == 0))
        say(tls, "Server closed the connection", NULL);
    else if (kind == SSL_ERROR_SYSCALL)
        say(tls, "TLS", strerror(saved));
    else if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        say(tls, "Server closed the connection", NULL);
    else
        say(tls, "TLS", ERR_reason_error_string(ERR_peek_error()));
    ERR_clear_error();
    return TLS_STREAM_FAILED;
}

static void before_call(tls_stream_t *tls)
{
    ERR_clear_error(); /* the queue is the thread's: what another library left there is not ours */
    errno = 0;
    tls->wants_write = false;
}

tls_stream_result_t tls_stream_handshake(tls_stream_t *tls)
{
    before_call(tls);
    int result = SSL_do_handshake(tls->ssl);
    return result == 1 ? TLS_STREAM_DONE : outcome_of(tls, result);
}

bool tls_stream_speaks(const tls_stream_t *tls, const char *protocol)
{
    const unsigned char *taken;
    unsigned len;
    SSL_get0_alpn_selected(tls->ssl, &taken, &len);
    return len == strlen(protocol) && memcmp(taken, protocol, len) == 0;
}

static int in_int(size_t len)
{
    return len > INT_MAX ? INT_MAX : (int)len;
}

static ssize_t moved(tls_stream_t *tls, int result)
{
    if (result > 0)
        return result;
    return outcome_of(tls, result) == TLS_STREAM_LATER ? 0 : -1;
}

ssize_t tls_stream_read(tls_stream_t *tls, void *out, size_t max)
{
    before_call(tls);
    return moved(tls, SSL_read(tls->ssl, out, in_int(max)));
}

ssize_t tls_stream_write(tls_stream_t *tls, const void *bytes, size_t len)
{
    before_call(tls);
    return moved(tls, SSL_write(tls->ssl, bytes, in_int(len)));
}

bool tls_stream_wants_write(const tls_stream_t *tls)
{
    return tls->wants_write;
}

bool tls_stream_has_more(const tls_stream_t *tls)
{
    return SSL_pending(tls->ssl) > 0;
}

const char *tls_stream_error(const tls_stream_t *tls)
{
    return tls->error;
}
