/*
 * The two APIs of the service as the wall sees them: one small interface, two implementations (connect.c, rest.c).
 * Everything is called in a coroutine and ends by its deadline. False: the trouble is filled.
 */
#ifndef BACKENDS_DOCKERCLOUD_API_H
#define BACKENDS_DOCKERCLOUD_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud.h"
#include "backends/dockercloud/answers.h"
#include "backends/dockercloud/bearer.h"
#include "backends/dockercloud/download.h"
#include "backends/dockercloud/sandbox.h"
#include "backends/dockercloud/settings.h"
#include "backends/role_ledger.h"

enum {
    DC_CALL_MS = 20 * 1000,  /* one management call */
    DC_POLL_FIRST_MS = 50,   /* the first of them; doubles */
    DC_POLL_MS = 250,        /* between two looks at a sandbox (spec 2.3) */
    DC_LOOKS_MAX = 8,        /* at a sandbox whose deletion was answered and that shows no sign of it */
    DC_UNMAKE_MS = 5 * 1000, /* for deleting what a create that failed left, and for seeing it gone */
    DC_LIST_PAGES_MAX = 50,
    DC_ETAG_REREADS_MAX = 5,            /* of one deletion whose ETag was stale (2.10) */
    DC_REPLAY_MIN_MS = 5 * 1000,        /* a create is repeated only with so much left (4.5) */
    DC_CREDENTIAL_SPARE_MS = 10 * 1000, /* a credential outlives its call's deadline by this (2.5) */
    DC_REFUSED_PAUSE_MS = 1000,         /* after a credential that was refused though it is new */
    DC_EXEC_AROUND_MAX = 64 * 1024,     /* of a command's answer beside its two streams (4.4) */
};

typedef struct dc dc_t;

/* What a box of this wall holds beside what every box does. */
typedef struct {
    dc_sandbox_t sandbox; /* as `create` last saw it */
    char *credential;     /* REST: locked memory, DC_TOKEN_MAX + 1; NULL = none */
    uint64_t credential_end_us;
    uint64_t exec_us; /* the shortest command so far, from sending to answer; 0 = none */
} dc_box_t;

typedef struct {
    const char *const *argv; /* NULL-terminated */
    const char *cwd;         /* NULL = the service's own */
    size_t stream_cap;       /* bytes of a stream that may come back */
    uint64_t deadline_us;
} dc_command_t;

typedef struct {
    /* Asks for it and waits until it is ready: own->sandbox is what came of it. */
    bool (*create)(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble);
    /* The network policy in force is deny-all without an exception. */
    bool (*policy)(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble);
    /* One command; `is_flood` with nothing in `out` when more came back than may. `out` is to be disposed of if true.
     */
    bool (*exec)(dc_t *dc, cloud_box_t *box, const dc_command_t *command, dc_exec_t *out, bool *is_flood,
                 cloud_trouble_t *trouble);
    bool (*upload)(dc_t *dc, cloud_box_t *box, const cloud_file_t *files, size_t count, cloud_trouble_t *trouble);
    /* One request for those of the paths that `download` still wants; its answer goes there. */
    bool (*download)(dc_t *dc, cloud_box_t *box, download_t *download, cloud_trouble_t *trouble);
    /* One try to delete it and to see that it is gone; `id` may be "", then it is looked for by its name. `tries` were
     * made before. */
    sandbox_removal_t (*remove)(dc_t *dc, char id[LEDGER_PROVIDER_ID_MAX + 1], const char *name, uint32_t tries,
                                uint64_t deadline_us, cloud_trouble_t *trouble);
    /* One page; json_decref what `page` lies in. NULL: the trouble. */
    json_t *(*page)(dc_t *dc, const char *page_token, dc_page_t *page, uint64_t deadline_us, cloud_trouble_t *trouble);
    /* What the service says of the account, for nothing. */
    bool (*preflight)(dc_t *dc, uint64_t deadline_us, cloud_trouble_t *trouble);
} dc_api_ops_t;

extern const dc_api_ops_t DC_CONNECT_OPS, DC_REST_OPS;

struct dc {
    cloud_wall_t wall; /* first */
    unsigned magic;
    const backend_host_t *host;
    dc_settings_t settings;
    cloud_secrets_t secrets;
    cloud_http_t *http;
    dc_bearer_t *bearer;
    const dc_api_ops_t *api;
    /* The management API has answered as itself: until then its "not found" may be a wrong address's (spec 9.6). */
    bool is_base_known;
};

/* --- the sandbox's own endpoint: what both APIs do alike (endpoint.c) --- */

/* Initialises `url` with the address that the sandbox told and `path`. False: too long. */
bool dc_endpoint_url(const cloud_box_t *box, buffer_t *url, const char *path);
/* dc_api_ops_t.exec, the procedure or resource being `path`. */
bool dc_endpoint_exec(dc_t *dc, cloud_box_t *box, const char *path, const dc_command_t *command, dc_exec_t *out,
                      bool *is_flood, cloud_trouble_t *trouble);

/* --- calls --- */

typedef struct {
    const char *method;
    const char *path;       /* whole URL */
    cloud_box_t *box;       /* REST: to its endpoint, with its credential; NULL = management */
    const char *type;       /* of the body; NULL = application/json, of the answer too */
    const char *headers[3]; /* further lines; NULL ends them */
    const void *body;
    size_t body_len;
    cloud_repeat_t repeat;
    int success[2];         /* the statuses that are one; none = 200 alone */
    bool may_repeat_denied; /* a fresh bearer may be tried: nothing is done twice (spec 1) */
    uint32_t limit_ms;
    uint64_t deadline_us;
    size_t response_max; /* 0 = CLOUD_OBJECT_MAX */
    char *etag; /* DC_ETAG_MAX + 1; the answer's, "" without one that could be sent back. NULL = of no interest */
    bool (*on_head)(void *data, const http_response_t *response);
    bool (*on_data)(void *data, const uint8_t *bytes, size_t len);
    void *data;
} dc_call_t;

/* A call with the right credential; the answer is to be disposed of whatever came. On false `refused` says what the
 * service said, DC_CODE_NONE when it said nothing, and the trouble's fault follows from it. */
bool dc_call(dc_t *dc, const dc_call_t *call, cloud_answer_t *answer, dc_refused_t *refused, cloud_trouble_t *trouble);
/* The same, and the answer's JSON object, to json_decref; NULL with the trouble, which is PROTOCOL when the answer was
 * none. */
json_t *dc_call_json(dc_t *dc, const dc_call_t *call, dc_refused_t *refused, cloud_trouble_t *trouble);
/* A call that failed did so because its success was longer than is read of one. */
bool dc_is_flood(const cloud_answer_t *answer);
/* The fault that a code means for a call that is sent once. */
cloud_fault_t dc_fault_of(const dc_refused_t *refused);
/* PROTOCOL, with a literal for the log. Always false. */
bool dc_senseless(cloud_trouble_t *trouble, const char *why);
/* Trouble of an operation or of an end frame; `box`: at whose endpoint, or NULL. Always false. */
bool dc_refused_trouble(dc_t *dc, const cloud_box_t *box, const dc_refused_t *refused, cloud_trouble_t *trouble);

/* The sandbox in `json` is the answer to our create: takes it into the box when it is ours. False with the trouble. */
bool dc_take_created(dc_t *dc, cloud_box_t *box, const json_t *json, cloud_trouble_t *trouble);
/* Whether to go on waiting for a new sandbox; false and `trouble` filled: it will never be ready. */
bool dc_may_become_ready(dc_t *dc, const dc_sandbox_t *sandbox, cloud_trouble_t *trouble);
/* Trouble after a create was accepted: what would say that there certainly is no sandbox says so of another call.
 * Always false. */
bool dc_accepted_trouble(const cloud_box_t *box, cloud_trouble_t *trouble);
/* `box->deadline_us` has not come, and the run is not stopped: a pause before the next look at a new sandbox. */
bool dc_pause(const cloud_box_t *box, uint32_t *pause_ms, dc_status_t status, cloud_trouble_t *trouble);
/* A pause before the next look, which is longer each time; starts at 0. False when stopped, or when the time is over.
 */
bool dc_wait_for_look(uint32_t *pause_ms, uint64_t deadline_us);
/* NULL policy or none that is deny-all: false with the trouble. Takes the reference. */
bool dc_judge_policy(dc_api_t api, json_t *json, cloud_trouble_t *trouble);
/* An answer's body as a command's result. */
bool dc_read_exec(const cloud_answer_t *answer, size_t stream_cap, dc_exec_t *out, bool *is_flood,
                  cloud_trouble_t *trouble);
/* Bytes of the answer of a command with so much of each stream. */
size_t dc_exec_max(size_t stream_cap);
/* A page that makes sense, else NULL; takes the reference. */
json_t *dc_judge_page(json_t *json, dc_page_t *page, cloud_trouble_t *trouble);
/* An address that is not the service's says "not found" too, so that counts only after it answered as itself. */
bool dc_knows_base(dc_t *dc, uint64_t deadline_us, cloud_trouble_t *trouble);
/* The name of a box's sandbox. */
void dc_box_name(const cloud_box_t *box, char name[DC_NAME + 1]);
dc_box_t *dc_own(const cloud_box_t *box);

#endif
