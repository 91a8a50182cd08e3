/*
 * The gateway's end of one guest runner, whatever carries its bytes: it makes what goes to the runner's stdin and takes
 * what came from its stdout. A state machine without descriptors or waits; the backend moves the bytes. Only frames
 * that verify count (spec backend-docker 2.4); everything else in the stream is counted and skipped.
 */
#ifndef BACKENDS_GUEST_HOST_H
#define BACKENDS_GUEST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

typedef struct guest guest_t;

typedef enum {
    GUEST_NEW,      /* no frame of the runner's has verified */
    GUEST_READY,    /* it waits for its job; no code of a caller's is in the sandbox */
    GUEST_GIVEN,    /* the whole job was made for sending */
    GUEST_ACCEPTED, /* the runner has the whole job: its digest is right */
    GUEST_FINISHED, /* FINAL verified: the result is whole */
    GUEST_BROKEN,   /* a verified frame that makes no sense, or a limit that the runner should have kept */
} guest_state_t;

typedef enum { GUEST_PREBOOT_NONE, GUEST_PREBOOT_JAVASCRIPT } guest_preboot_t;

typedef struct {
    guest_preboot_t preboot;
    const char *run_id;     /* for the runner's own messages; at most 64 bytes */
    const char *const *env; /* "NAME=value": the guest processes' whole environment (the image's, vetted) */
    size_t env_count;
} guest_hello_t;

typedef enum { GUEST_SNIPPET, GUEST_PROJECT, GUEST_PROBE } guest_job_kind_t;

typedef struct {
    const char *path; /* relative, checked by the runner again */
    const void *content;
    size_t len;
} guest_file_t;

typedef struct {
    guest_job_kind_t kind;
    uint32_t timeout_ms;    /* of the whole job, kept by the runner */
    uint32_t stream_max;    /* bytes kept of each stream of a step */
    uint32_t output_max;    /* bytes kept of all streams of all steps */
    uint32_t artifacts_max; /* bytes of all artifacts */
    const void *code;       /* GUEST_SNIPPET: given to the started interpreter. GUEST_PROBE: what to look at */
    size_t code_len;
    const guest_file_t *files; /* GUEST_PROJECT, as are the next two */
    size_t file_count;
    const char *const *steps;
    size_t step_count;
    const char *const *artifacts;
    size_t artifact_count;
} guest_job_t;

/* One step; a snippet or a probe is one step. */
typedef struct {
    buffer_t out, err;
    bool is_out_truncated, is_err_truncated;
    bool has_ended; /* its end was reported; what follows is then valid */
    bool is_timed_out;
    int exit_code; /* 124 at its deadline, -1 when a signal ended it */
    int signal;    /* 0 unless a signal ended it */
    uint64_t duration_us;
} guest_step_t;

typedef struct {
    char *path;
    uint8_t *content;
    size_t len;
} guest_artifact_t;

typedef enum { GUEST_COMPLETED, GUEST_SETUP_FAILED, GUEST_TIMED_OUT, GUEST_RUNNER_FAILED } guest_outcome_t;

typedef struct {
    guest_step_t *steps;
    size_t step_count; /* those begun */
    guest_artifact_t *artifacts;
    size_t artifact_count;
    bool is_artifacts_truncated;
    guest_outcome_t outcome; /* GUEST_FINISHED only */
    char detail[256];        /* the runner's own words, valid UTF-8 */
} guest_result_t;

enum {
    GUEST_KEY_BYTES = 32,
    GUEST_STEPS_MAX = 20,
    GUEST_ARTIFACTS_MAX = 100,
    GUEST_FILES_MAX = 200,
    GUEST_FILES_BYTES_MAX = 4 * 1024 * 1024,
};

/* A fresh key of its own. At most 8 KiB until a job is made. */
guest_t *guest_create(void);
void guest_destroy(guest_t *guest);
/* Appends the HELLO frame, the only one without a tag; once, first. false: `out` is full. */
bool guest_make_hello(guest_t *guest, const guest_hello_t *hello, buffer_t *out);
/* Appends every frame of the job; once, in GUEST_READY. NULL, or what is wrong with the job (nothing was appended). */
const char *guest_make_job(guest_t *guest, const guest_job_t *job, buffer_t *out);
/* Bytes of the runner's stdout, as they come. */
void guest_take(guest_t *guest, const void *bytes, size_t len);
/* So many bytes came on another stream, which nobody looks at: they count towards what a run can have all the same. */
void guest_skip(guest_t *guest, size_t len);
guest_state_t guest_state(const guest_t *guest);
/* Why it is broken; NULL otherwise. Static text. */
const char *guest_problem(const guest_t *guest);
/* What has come so far, in every state; valid until guest_destroy. Buffers may be moved out (and re-initialised). */
guest_result_t *guest_result(guest_t *guest);
uint64_t guest_unframed_bytes(const guest_t *guest);

#endif
