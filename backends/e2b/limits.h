/* Every limit of the E2B wall, with its reason. "1.1" and the like are sections of the interface's specification. */
#ifndef BACKENDS_E2B_LIMITS_H
#define BACKENDS_E2B_LIMITS_H

#include "records/ledger_entry.h"

enum {
    E2B_ID_MAX = LEDGER_PROVIDER_ID_MAX, /* bytes of a sandbox's ID (5.2) */
    E2B_LABEL_ID_MAX = 57,               /* with "49983-" before it, a DNS label of 63 */
    E2B_ENVD_PORT = 49983,
    E2B_TOKEN_MAX = 4096, /* bytes of a token, visible ASCII (1.5) */
    E2B_TEXT_MAX = 256,   /* bytes of a text somebody else wrote, cut to fit, with its NUL */
    E2B_CODE_MAX = 64,    /* of an error's name */

    /* Bytes of an answer (1.1). */
    E2B_OBJECT_MAX = 1024 * 1024,
    E2B_PAGE_MAX = 4 * 1024 * 1024,
    E2B_ERROR_MAX = 64 * 1024,

    /* A stream of Start (2.4, 3.2). */
    E2B_REQUEST_MAX = 256 * 1024, /* the check of 220 files, each with a path below 1 KiB */
    E2B_FRAME_MAX = 8 * 1024 * 1024,
    E2B_TRANSFER_MAX = 32 * 1024 * 1024,
    E2B_KEEPALIVE_S = 15,         /* asked of envd: zero or less would crash it */
    E2B_SILENCE_MS = 45 * 1000,   /* three keepalives missed: the stream is dead */
    E2B_NEAR_MS = 250,            /* a daemon's word that the time is over is believed from here on before it is */
    E2B_LATE_MS = 150,            /* envd's own verdict on a deadline gets this long before ours is given */
    E2B_LIFE_MARGIN_S = 10,       /* beyond its times, so that one whose deletion never arrived dies soon (3.1) */
    E2B_CLOSING_MS = 100,         /* from the end frame to the end of the body; a verdict does not need it */
    E2B_START_HEADROOM_MS = 2000, /* the client's own limit of the exchange lies behind ours */
    E2B_EXIT_TIMED_OUT = 124,
    E2B_SIGNAL_UNKNOWN = 127, /* 128 + this = 255 */

    /* Clocks of the control plane (1.1): longer than the server's own, so that an answer that exists is seen. */
    E2B_CREATE_MS = 90 * 1000,
    E2B_READ_MS = 15 * 1000,
    E2B_DELETE_MS = 10 * 1000,
    E2B_CREATE_TRIES = 3, /* when the provider's rate limiter certainly made nothing */
    E2B_RETRY_AFTER_MAX_MS = 5 * 1000,
    E2B_HEALTH_STEP_MS = 200,
    E2B_HEALTH_MS = 10 * 1000,

    E2B_PAGES_MAX = 100, /* of a listing */
    E2B_PAGE_SIZE = 100,
    E2B_CURSOR_MAX = 1024, /* bytes of a page's token */

    /* When a sandbox whose create was not answered can no longer come to be: the server's longest answer, then the
     * longer of its life and the provider's sweep of machines without a record (1.10); the same sweep bounds one whose
     * deletion failed (1.7). */
    E2B_COMING_MS = 80 * 1000,
    E2B_SWEPT_MS = 100 * 1000,
};

#define E2B_PRODUCT "plimsoll"
#define E2B_PROJECT_DIR "/home/user/project"
#define E2B_GUEST_USER "user"

#endif
