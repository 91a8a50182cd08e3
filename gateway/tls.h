/* The server's TLS context (spec callers-and-limits 5): PEM pair, TLS 1.2 at least, HTTP/1.1 by ALPN, HTTP/2 when it is
 * asked for. */
#ifndef GATEWAY_TLS_H
#define GATEWAY_TLS_H

#include <openssl/ssl.h>

#include "config/options.h"

/* The context, or NULL with problems. */
SSL_CTX *tls_load(const char *cert_file, const char *key_file, bool http2, problems_t *problems);

#endif
