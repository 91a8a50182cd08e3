/* The front's limits, each with its arithmetic. What an operator may change is in config/options.def instead. */
#ifndef GATEWAY_LIMITS_H
#define GATEWAY_LIMITS_H

enum {
    HEAD_MAX = 32 * 1024,             /* bytes of a request's head, spec 1.1 */
    HEAD_FIELDS_MAX = 128,            /* header fields; ordinary clients behind two proxies send about 30 */
    METHOD_MAX = 32,                  /* bytes */
    TARGET_MAX = 8 * 1024,            /* bytes of the request target */
    BODY_MAX = 8 * 1024 * 1024,       /* bytes of a body, raw or after decompression, spec 1.6 */
    CHUNK_LINE_MAX = 256,             /* bytes of one chunk-size or trailer line */
    CHUNK_TRAILERS_MAX = 16,          /* trailer lines, all discarded */
    CHUNKED_RESERVE_STEP = 64 * 1024, /* an undeclared body takes budget in steps of this */
    ANSWER_CHARGED_FROM = 16 * 1024,  /* answers from this size on count in the buffer budget until they are out */
    RESPONSE_MAX = 32 * 1024 * 1024,  /* the most a client accepts, spec 1.6 */
    REQUEST_ID_LEN = 32,              /* lowercase hex digits */
    IDEMPOTENCY_KEY_MAX = 255,        /* printable ASCII characters inside the quotation marks */
    FORWARDED_LINES_MAX = 8,          /* X-Forwarded-For lines: a chain has 2 or 3 proxies, each may add its own */
    TRACE_TOKEN_MAX = 128,            /* characters of an X-Request-ID that is taken over */
    TIMEOUT_HEADER_DIGITS = 10,       /* Connect-Timeout-Ms */
    CALLER_DECODE_SHARE = 2,          /* one caller holds at most 1/2 of the decode slots */
    DECODE_SLOTS_PER_RUN = 2,         /* decode slots = 2 x SANDBOX_MAX_CONCURRENT */
    LINGER_MS = 2000,                 /* after an answer to an unread body: time to let the peer read it ... */
    LINGER_BYTES = 24 * 1024 * 1024, /* ... and bytes discarded meanwhile: a proxy sends a whole body (8 MiB, or what it
                                      allows itself) and 10 MiB of socket buffers before it looks for an answer */
    LINGERING_MAX = 1024,            /* such connections of one lane at once; the next one's end is not waited for */
    LISTEN_BACKLOG = 1024,
    METRICS_CONNECTIONS_MAX = 64, /* spec section 5 */
    METRICS_TIMEOUT_MS = 10 * 1000,
    JOIN_LOOK_MS = 1000,    /* a joined run is looked up this often even without a message */
    CANCEL_GRACE_MS = 5000, /* after a cancel, the backend's answer is awaited this long */
    WALLS_MAX = 16,
    KEY_WAIT_MAX_S = 60,          /* of GET /v1/runs/by-key/KEY?wait=: below what proxies wait for an answer */
    KEY_WAITERS_MAX = 512,        /* such waits at once; one caller may have half of them */
    PAID_TEARDOWN_MS = 33 * 1000, /* a billed sandbox may outlive its run by this (spec callers-and-limits 3.3) */
    /* HTTP/2, of one connection */
    HTTP2_STREAMS_MAX = 8, /* requests at once, as many as SANDBOX_MAX_CONCURRENT is by default */
    HTTP2_EARLY_MAX =
        100, /* refused because the limit was not known yet: clients assume 100 (RFC 9113 section 6.5.2) */
    HTTP2_STREAMS_CUT = 128,          /* open at once, refused ones included: nobody keeps to any limit who has more */
    HTTP2_WINDING_MAX = 8,            /* further runs whose streams are reset and that are being stopped */
    HTTP2_RESETS_MAX = 64,            /* resets more than finished requests: 8 times all its streams at once */
    HTTP2_STREAM_WINDOW = 256 * 1024, /* bytes of a body on their way: 8 MiB in 32 round trips */
    HTTP2_WINDOW = 1024 * 1024,       /* of all bodies: half of the streams at their full window */
    HTTP2_READ_STEP = 8 * 1024,       /* bytes of frames taken before the next look at what is to be sent for them: at
                                         most 910 frames, less than nghttp2's own limit of 1000 */
    HTTP2_QUEUE_MAX = 64,             /* frames to be sent with which more are read: 8 for each stream */
    HTTP2_WRITE_STEP = 64 * 1024,     /* bytes of frames handed to the socket at once: four DATA frames */
    HTTP2_NOTICE_MS = 200,            /* from a drain's first GOAWAY to its last: a round trip of a far client */
    HTTP2_LAST_WORD_MS = 1000,        /* time the last GOAWAY has to go out before the connection is cut */
};

#endif
