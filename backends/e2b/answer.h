/*
 * What E2B's two planes answer, read from bytes that nobody vouches for: the control plane is a stranger's service, and
 * once a guest's code has run, the daemon inside the sandbox is the guest's. Pure: nothing is sent, nothing waited for.
 */
#ifndef BACKENDS_E2B_ANSWER_H
#define BACKENDS_E2B_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud_text.h"
#include "backends/e2b/limits.h"

/* Letters, digits and dashes, 1 to E2B_ID_MAX. */
bool e2b_is_id(const char *text);
/* An ID that can be a part of a host's name. */
bool e2b_is_label_id(const char *text);

typedef struct {
    unsigned major, minor, patch;
} e2b_version_t;
/* "0.6.13"; what follows a dash or plus is not looked at. */
bool e2b_version_read(const char *text, e2b_version_t *out);
bool e2b_version_reaches(const e2b_version_t *version, unsigned major, unsigned minor, unsigned patch);

/* --- a sandbox as its creation answered it (1.5) --- */

typedef struct {
    char id[E2B_ID_MAX + 1];
    char token[E2B_TOKEN_MAX + 1]; /* of envd; a secret */
    e2b_version_t version;
} e2b_created_t;

typedef struct {
    const char *domain;              /* the configured one */
    const char *const *more_domains; /* others an operator has listed, NULL-ended; may be NULL */
    bool needs_label;                /* the ID becomes part of a host's name */
} e2b_created_rules_t;

typedef enum {
    E2B_CREATED_USABLE,
    E2B_CREATED_FLAWED,     /* out->id is right, something else is not: it must go */
    E2B_CREATED_UNREADABLE, /* no ID: there may be a sandbox somewhere */
} e2b_created_end_t;

/* Fills `out` as far as the answer was right; `why` (E2B_TEXT_MAX) tells what was not, in our own words. */
e2b_created_end_t e2b_created_read(const void *bytes, size_t len, const e2b_created_rules_t *rules, e2b_created_t *out,
                                   char why[E2B_TEXT_MAX]);

/* --- a sandbox as its record has it (1.6, 1.9, 3.2 step 3) --- */

typedef struct {
    const char *id, *installation, *stamp;
    uint32_t cpus_max, memory_max_mb, disk_max_mb; /* 0 = any */
} e2b_expected_t;

typedef struct {
    uint32_t cpus, memory_mb, disk_mb;
} e2b_size_t;

typedef enum {
    E2B_DETAIL_RIGHT,
    E2B_DETAIL_DIFFERS,    /* it is not what was asked for */
    E2B_DETAIL_UNREADABLE, /* the answer is none */
} e2b_detail_end_t;

e2b_detail_end_t e2b_detail_read(const void *bytes, size_t len, const e2b_expected_t *expected, e2b_size_t *size,
                                 char why[E2B_TEXT_MAX]);
/* Whether the record carries these stamps and no other's: what must hold before it is deleted. */
bool e2b_detail_is_ours(const void *bytes, size_t len, const e2b_expected_t *expected, char why[E2B_TEXT_MAX]);

/* --- one page of a listing (1.6) --- */

typedef void (*e2b_listed_cb)(void *data, const char *id, const char *stamp);
/* Tells of each that carries `installation` (the filter of the request is a hint, not a proof), and of them only
 * `stamp` unless it is NULL. False: the page is none, and nothing was told of it. */
bool e2b_page_read(const void *bytes, size_t len, const char *installation, const char *stamp, e2b_listed_cb found,
                   void *data, char why[E2B_TEXT_MAX]);

/* --- an error of either plane --- */

typedef struct {
    bool is_shaped; /* {"code":...,"message":...}; of anything else only the status counts */
    char message[E2B_TEXT_MAX], code[E2B_CODE_MAX];
} e2b_error_t;
/* Never fails; the texts are somebody else's, without our own secrets (may be NULL), and cut to fit. */
void e2b_error_read(const void *bytes, size_t len, const cloud_secrets_t *secrets, e2b_error_t *out);

/* What one create came to. */
typedef enum {
    E2B_CREATE_ANSWERED,  /* 201: to be read */
    E2B_CREATE_FULL,      /* certainly nothing: no room in the plan */
    E2B_CREATE_THROTTLED, /* certainly nothing: too many requests; may be sent again */
    E2B_CREATE_DENIED,    /* certainly nothing: the credential or the configuration is wrong */
    E2B_CREATE_UNKNOWN,   /* it may have made one */
} e2b_create_end_t;
/* By its status and body; `retry_after` is that header's seconds, or 0 (1.1, 1.10). */
e2b_create_end_t e2b_create_judge(int status, const void *body, size_t len, uint32_t retry_after_ms);

/* --- what was written to the guest (2.8) --- */

/* POST /files: NULL when the answer lists exactly these absolute paths in this order, else what is wrong, with the path
 * in it. */
bool e2b_written_read(const void *bytes, size_t len, const char *const *paths, size_t count, char why[E2B_TEXT_MAX]);

/* --- one file of the guest (2.7): a claim, once its code has run --- */

typedef enum { E2B_STAT_FILE, E2B_STAT_OTHER, E2B_STAT_UNREADABLE } e2b_stat_end_t;
e2b_stat_end_t e2b_stat_read(const void *bytes, size_t len, uint64_t *size);

#endif
