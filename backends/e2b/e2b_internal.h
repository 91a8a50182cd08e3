/* What the files of the E2B wall share. */
#ifndef BACKENDS_E2B_E2B_INTERNAL_H
#define BACKENDS_E2B_E2B_INTERNAL_H

#include "backends/cloud/cloud.h"
#include "backends/cloud/cloud_http.h"
#include "backends/e2b/answer.h"
#include "backends/e2b/limits.h"
#include "backends/e2b/request.h"
#include "config/base_url.h"

enum { E2B_MAGIC = 0x65326221 };

/* A sandbox that a record proved to be ours: it may be deleted by its ID without another look. */
typedef struct e2b_proven {
    char stamp[LEDGER_STAMP + 1];
    char id[E2B_ID_MAX + 1];
    struct e2b_proven *next;
} e2b_proven_t;

typedef struct {
    cloud_wall_t wall; /* first */
    unsigned magic;
    const backend_host_t *host;
    cloud_http_t *http;
    cloud_secrets_t secrets;
    /* settings */
    char api[BASE_URL_MAX + 1];
    char sandboxes[BASE_URL_MAX + 1]; /* "": each sandbox has a host of its own */
    const char *key, *template, *domain;
    const char *const *other_domains;
    e2b_flavour_t flavour;
    uint32_t cpus_max, memory_max_mb, disk_max_mb;
    /* what the trial's record told */
    e2b_size_t size;
    e2b_proven_t *proven; /* the newest first */
    size_t proven_count;
} e2b_t;

/* Of one sandbox (cloud_box_t.own). */
typedef struct {
    char *token; /* of its daemon; wiped in `leave` */
    e2b_version_t version;
    size_t transfer_left; /* bytes of streams that may still come */
} e2b_box_t;

e2b_t *e2b_check(void *self);

/* --- the control plane (control.c) --- */

bool e2b_create(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
bool e2b_read_back(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
bool e2b_preflight(void *self, uint64_t deadline_us, cloud_trouble_t *trouble);
/* One call to the control plane; false as cloud_call has it. `body` NULL: none. */
bool e2b_control(e2b_t *e2b, const char *method, const char *path, const buffer_t *body, cloud_repeat_t repeat,
                 uint32_t limit_ms, uint64_t deadline_us, size_t response_max, cloud_answer_t *answer,
                 cloud_trouble_t *trouble);
/* Every sandbox of this installation, or (stamp) the one. False: the listing is not whole, and `why` says so. */
bool e2b_list_all(e2b_t *e2b, const char *stamp, uint64_t deadline_us, e2b_listed_cb found, void *data,
                  char why[E2B_TEXT_MAX]);

/* --- sandboxes that are ours (sandboxes.c) --- */

extern const backend_sandboxes_t E2B_SANDBOXES;
void e2b_prove_ours(e2b_t *e2b, const char *stamp, const char *id);
void e2b_forget_all(e2b_t *e2b);

/* --- the data plane (guest.c) --- */

bool e2b_stage(void *self, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble);
bool e2b_collect(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                 cloud_trouble_t *trouble);
bool e2b_probe(void *self, cloud_box_t *box, cloud_trouble_t *trouble);

/* Header lines of one call to a sandbox's daemon. */
enum { E2B_HEADERS_MAX = 12, E2B_HEADER_BYTES = 160 + E2B_ID_MAX };
typedef struct {
    char texts[E2B_HEADERS_MAX][E2B_HEADER_BYTES];
    const char *lines[E2B_HEADERS_MAX];
    size_t count;
    cloud_header_t token;
} e2b_headers_t;
/* The routing pair and the token; then those that are added. Wipe it after the call. */
void e2b_headers_begin(e2b_headers_t *headers, const cloud_box_t *box);
void e2b_headers_add(e2b_headers_t *headers, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void e2b_headers_wipe(e2b_headers_t *headers);
/* The wall's secrets and the box's token: what no text of its daemon may repeat. Borrowed. */
cloud_secrets_t e2b_box_secrets(const e2b_t *e2b, const cloud_box_t *box);
/* Where this sandbox's daemon is, and a path there. False: too long. */
bool e2b_guest_url(const e2b_t *e2b, const cloud_box_t *box, const char *path, buffer_t *out);

/* --- one Start (run.c) --- */

bool e2b_step(void *self, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits, guest_step_t *out,
              cloud_trouble_t *trouble);
/* The same for a command of ours, until `deadline_us`. */
bool e2b_start(e2b_t *e2b, cloud_box_t *box, const e2b_command_t *command, uint64_t deadline_us, cloud_limits_t *limits,
               guest_step_t *out, cloud_trouble_t *trouble);

#endif
