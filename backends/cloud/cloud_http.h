/*
 * Calls to a provider over core/http_client: where they may go, what an answer's status means, which calls may be
 * repeated and after how long. Redirects are never followed; a 3xx is an error. Connections are reused also by calls
 * that create or start something, when they were idle for a few seconds at most: the client never sends such a call a
 * second time, so one whose connection turns out to be dead ends as CLOUD_UNKNOWN.
 */
#ifndef BACKENDS_CLOUD_CLOUD_HTTP_H
#define BACKENDS_CLOUD_CLOUD_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/cloud/cloud_text.h"
#include "config/base_url.h"
#include "core/buffer.h"
#include "core/http_client.h"
#include "core/loop.h"

enum {
    CLOUD_BASE_MAX = BASE_URL_MAX,        /* bytes of a base URL */
    CLOUD_URL_MAX = 8 * 1024,             /* of a whole one */
    CLOUD_ERROR_BODY_MAX = 64 * 1024,     /* of an answer that is no success */
    CLOUD_OBJECT_MAX = 1024 * 1024,       /* of one object */
    CLOUD_PAGE_MAX = 4 * 1024 * 1024,     /* of one page of a list */
    CLOUD_HEADERS_MAX = 16,               /* header lines of a call */
    CLOUD_CONNECT_MS = 10 * 1000,         /* lookup, connection and TLS */
    CLOUD_REUSE_S = 5,                    /* a call that is sent once takes no connection that was idle for longer */
    CLOUD_TRIES_MAX = 4,                  /* of a call that may be repeated */
    CLOUD_RETRY_AFTER_MAX_MS = 60 * 1000, /* of what a provider asks for, told to callers; longer is cut */
    CLOUD_PAUSE_MAX_MS = 5 * 1000, /* of a wait between two tries; what is asked to wait longer is not repeated */
    CLOUD_PAUSE_MIN_MS = 250,      /* of the first; doubles, with jitter */
    CLOUD_BUSY_MS = 1000,          /* when a provider says that it is busy and not for how long */
};

/* What one call or step came to. `message` is ours and for the caller; `detail` is for the log, and holds what the
 * provider said, scrubbed and cut. */
typedef enum {
    CLOUD_FINE,
    CLOUD_NOTHING,  /* certainly not sent, or certainly refused: it had no effect */
    CLOUD_BUSY,     /* the same, for want of room or rate at the provider; retry_after_ms */
    CLOUD_DENIED,   /* the same, for our credential or our configuration: the operator's to mend */
    CLOUD_MISSING,  /* the same: 404 */
    CLOUD_UNKNOWN,  /* it may have had its effect */
    CLOUD_DIFFERS,  /* what was read back is not what was asked for */
    CLOUD_LOST,     /* the sandbox went away, or its stream ended without a verdict */
    CLOUD_PROTOCOL, /* an answer that makes no sense */
    CLOUD_LATE,     /* our own deadline */
    CLOUD_CANCELED,
} cloud_fault_t;
const char *cloud_fault_name(cloud_fault_t fault); /* "busy", ... */

typedef struct {
    cloud_fault_t fault;
    uint32_t retry_after_ms; /* CLOUD_BUSY: at least 1; else 0 */
    int status;              /* of the answer; 0 when there was none */
    bool is_sent;            /* something of the last try may have left */
    char message[CLOUD_TEXT_CALLER_MAX + 1];
    char detail[CLOUD_TEXT_LOG_MAX + 1];
} cloud_trouble_t;

/* Sets all but status and is_sent; `detail` may be NULL. Always false, so that it can be returned. */
bool cloud_trouble(cloud_trouble_t *trouble, cloud_fault_t fault, const char *message, const char *detail);

/* --- where to --- */

typedef struct {
    char url[CLOUD_BASE_MAX + 1];     /* without a slash at the end */
    char host[BASE_URL_HOST_MAX + 1]; /* lower case, without the brackets of an IPv6 address */
    uint16_t port;
    bool is_https;
} cloud_base_t;

/* Takes a base URL apart. NULL, or why a credential may not be sent there (config/base_url.h). */
const char *cloud_base_parse(const char *text, cloud_base_t *out);
/* Appends `text` with everything but RFC 3986's unreserved bytes escaped. False when the buffer is full. */
bool cloud_url_escape(buffer_t *out, const char *text);

/* --- calls --- */

typedef struct cloud_http cloud_http_t;

typedef struct {
    const char *name;                           /* of the provider, for texts: "E2B" */
    const cloud_secrets_t *secrets;             /* taken out of every text; borrowed */
    const char *ca_file, *cert_file, *key_file; /* as http_client_options_t has them */
    size_t connections_kept;                    /* 0 = HTTP_IDLE_CONNECTIONS_MAX */
} cloud_http_options_t;

cloud_http_t *cloud_http_create(loop_t *loop, const cloud_http_options_t *options);
void cloud_http_destroy(cloud_http_t *http);
/* The client below, for a call that a wall waits for by itself: over the same connections. */
http_client_t *cloud_http_client(const cloud_http_t *http);

typedef enum {
    CLOUD_ONCE,       /* it creates, starts or uploads something: sent at most once */
    CLOUD_ONCE_FRESH, /* the same, on a connection of its own: for a call that may last for minutes and must not stand
                         behind a dead one */
    CLOUD_READ,       /* changes nothing: repeated after 429, 5xx and a lost connection */
    CLOUD_AGAIN,      /* changes something, and as often as one likes (a delete): repeated like a read */
} cloud_repeat_t;

typedef struct {
    const char *method;
    const char *url;            /* whole: base and path */
    const char *const *headers; /* "Name: value"; copies of them are wiped after the call */
    size_t header_count;
    const void *body;
    size_t body_len;
    cloud_repeat_t repeat;
    uint32_t limit_ms;              /* of one try */
    uint64_t deadline_us;           /* monotonic, of all of it */
    size_t response_max;            /* of a success; an error's body is cut at CLOUD_ERROR_BODY_MAX */
    const cloud_secrets_t *secrets; /* taken out of every text of this call, instead of the options'; NULL = those */
    /* Statuses from 200 to 299 are success; these too (0 ends the list early), and then the caller decides. */
    int also_fine[4];
    /* Streams of a success (2xx) alone: an error's body is collected all the same. As in http_request_t. */
    bool (*on_data)(void *data, const uint8_t *bytes, size_t len);
    /* Of a success whose body is streamed, before its first byte: for a header that says how to read it. May be NULL.
     * Once a try, of which there is no further one after it. */
    bool (*on_head)(void *data, const http_response_t *response);
    void *data;
} cloud_request_t;

typedef struct {
    http_response_t http; /* status, headers, body; valid whenever an answer was complete */
    uint32_t tries;
    uint64_t sent_us; /* monotonic: just before the last try */
} cloud_answer_t;

/*
 * In a coroutine. True: a complete answer that is a success. False: `trouble` is filled; the answer's status, headers
 * and body are there as far as they came. Dispose of the answer in both cases. Faults by status: 3xx PROTOCOL; 400,
 * 401, 403, 402, 405, 412, 413, 415, 422, 428, 431, 451, 501 DENIED; 404 and 410 MISSING; 408 and 499 UNKNOWN; 429
 * BUSY; 409 NOTHING; 5xx UNKNOWN; of a read all 5xx are NOTHING. Whoever knows better (by the body) sets trouble->fault
 * again.
 */
bool cloud_call(cloud_http_t *http, const cloud_request_t *request, cloud_answer_t *answer, cloud_trouble_t *trouble);
void cloud_answer_dispose(cloud_answer_t *answer);
/* A header's one value, NULL when absent or repeated. */
const char *cloud_answer_header(const cloud_answer_t *answer, const char *name);

/* Retry-After in ms: whole seconds, a decimal, or an HTTP date (against `wall_ms`); cut to CLOUD_RETRY_AFTER_MAX_MS.
 * False when it is none of these. */
bool cloud_retry_after(const char *value, int64_t wall_ms, uint32_t *out_ms);
/* A pause before try `tries` + 1: doubling, between a half and the whole of it. */
uint32_t cloud_pause_ms(uint32_t tries);

/* Milliseconds from now to a monotonic moment, rounded up; 0 when it is over. */
uint32_t cloud_left_ms(uint64_t deadline_us);

/* "Name: " and a value whose bytes are wiped by cloud_header_wipe. For credentials: built on demand, never kept. */
typedef struct {
    char *line;
    size_t size;
} cloud_header_t;
void cloud_header_make(cloud_header_t *header, const char *name_and_scheme, const char *value);
void cloud_header_wipe(cloud_header_t *header);

#endif
