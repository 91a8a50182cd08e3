#include "gateway/tls.h"

#include <openssl/err.h>

#include <h2o.h>

static const char *last_error(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != NULL ? reason : "unreadable";
}

SSL_CTX *tls_load(const char *cert_file, const char *key_file, bool http2, problems_t *problems)
{
    static const h2o_iovec_t protocols[] = {{H2O_STRLIT("h2")}, {H2O_STRLIT("http/1.1")}, {NULL, 0}};
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == NULL) {
        problems_add(problems, "TLS could not start: %s", last_error());
        return NULL;
    }
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE);
    /* libh2o hands OpenSSL whole buffers; idle connections should not keep 34 KiB each */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1) {
        problems_add(problems, "PLIMSOLL_TLS_CERT: %s holds no usable certificate chain (%s)", cert_file, last_error());
        goto Error;
    }
    if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1) {
        problems_add(problems, "PLIMSOLL_TLS_KEY: %s holds no usable private key (%s)", key_file, last_error());
        goto Error;
    }
    if (SSL_CTX_check_private_key(ctx) != 1) {
        problems_add(problems, "PLIMSOLL_TLS_KEY does not belong to the certificate in PLIMSOLL_TLS_CERT");
        goto Error;
    }
    h2o_ssl_register_alpn_protocols(ctx, http2 ? protocols : protocols + 1);
    return ctx;
Error:
    SSL_CTX_free(ctx);
    return NULL;
}
