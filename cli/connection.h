/*
 * Where the gateway is and who we are: the options every command that talks to it shares. The token comes from
 * PLIMSOLL_CALLER_TOKEN or a file, never from the command line, where other users of the machine could read it.
 */
#ifndef CLI_CONNECTION_H
#define CLI_CONNECTION_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    CONNECTION_ERROR_MAX = 512,
    CONNECTION_URL_MAX = 4096,  /* bytes of a base URL as given */
    CONNECTION_BACKEND_MAX = 32 /* characters of a backend's name */
};

/* Values of getopt_long for these options; past every character. */
enum {
    CONNECTION_OPT_URL = 0x100,
    CONNECTION_OPT_TOKEN_FILE,
    CONNECTION_OPT_CA_FILE,
    CONNECTION_OPT_INSECURE_HTTP,
    CONNECTION_OPT_END
};

#define CONNECTION_LONG_OPTIONS                                                                                        \
    {"url", required_argument, NULL, CONNECTION_OPT_URL},                                                              \
        {"token-file", required_argument, NULL, CONNECTION_OPT_TOKEN_FILE},                                            \
        {"ca-file", required_argument, NULL, CONNECTION_OPT_CA_FILE},                                                  \
    {                                                                                                                  \
        "insecure-http", no_argument, NULL, CONNECTION_OPT_INSECURE_HTTP                                               \
    }

#define CONNECTION_HELP                                                                                                \
    "The gateway and the caller:\n"                                                                                    \
    "  --url URL          base URL (default: PLIMSOLL_URL, else http://127.0.0.1:8746)\n"                              \
    "  --token-file FILE  bearer token, instead of PLIMSOLL_CALLER_TOKEN; one line\n"                                  \
    "  --ca-file FILE     PEM certificates to trust, instead of the system's\n"                                        \
    "  --insecure-http    allow http:// to a host other than loopback: token and code travel in the clear\n"

typedef struct {
    const char *url;
    const char *token_file;
    const char *ca_file;
    bool insecure_http;
    const char *backend; /* NULL, or a name for /backends/NAME */
} connection_options_t;

/* Takes one result of getopt_long; false when it is none of these options. */
bool connection_option(connection_options_t *options, int opt, const char *value);

typedef struct {
    char *base;  /* no trailing slash, /backends/NAME included */
    char *token; /* NULL = none */
    const char *ca_file;
} connection_t;

/* Fills `connection` from options and environment; false with one line in `error`. */
bool connection_open(const connection_options_t *options, connection_t *connection, char error[CONNECTION_ERROR_MAX]);
void connection_dispose(connection_t *connection);
/* base + path (which starts with a slash); malloc'ed. */
char *connection_url(const connection_t *connection, const char *path);

/* The rules for a base URL (spec section 8.6), pure: the normalized base (malloc'ed), or NULL with a line in `error`.
 */
char *base_url_check(const char *url, const char *backend, bool insecure_http, char error[CONNECTION_ERROR_MAX]);

#endif
