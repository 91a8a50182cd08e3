/*
 * What the frames between the gateway and the runner say (spec backend-docker 2.4): the encoding of each message, for
 * both ends. libsodium and libc only: the same code is in the static runner. Integers are big endian; lists are a count
 * and then their entries, bytes a length and then the bytes, nothing is padded, and bytes left over are an error.
 *
 * HELLO and JOB are longer than a frame may be: their first frame's payload begins with the message's length (4 bytes),
 * and the message goes on in the frames that follow.
 */
#ifndef BACKENDS_GUEST_JOB_H
#define BACKENDS_GUEST_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/guest/frame.h"

enum {
    JOB_PROTOCOL = 1, /* label sbx.runner.protocol of the images */

    JOB_RUN_ID_MAX = 64,
    JOB_ENV_MAX = 128,                                                         /* variables */
    JOB_ENV_BYTES_MAX = 32 * 1024,                                             /* of all of them, with a NUL each */
    JOB_HELLO_MAX = 42 + JOB_RUN_ID_MAX + JOB_ENV_BYTES_MAX + JOB_ENV_MAX * 2, /* key and numbers 42; see below */

    JOB_CODE_MAX = 256 * 1024,
    JOB_FILES_MAX = 200,
    JOB_FILES_BYTES_MAX = 4 * 1024 * 1024,
    JOB_PATH_MAX = 1024,
    JOB_STEPS_MAX = 20,
    JOB_STEP_MAX = 16384,
    JOB_ARTIFACTS_MAX = 100,
    JOB_TIMEOUT_MS_MAX = 15 * 60 * 1000,
    JOB_STREAM_MAX = 1024 * 1024,     /* kept of one stream of one step */
    JOB_OUTPUT_MAX = 3 * 1024 * 1024, /* kept of all streams */
    JOB_ARTIFACTS_BYTES_MAX = 8 * 1024 * 1024,
    /* head and counts 64, code 256 KiB, files 4 MiB, 200 paths of 1 024 and 6 for their lengths, 20 steps of 16 384 and
     * 4, 100 artifacts of 1 024 and 2 */
    JOB_BYTES_MAX = 64 + JOB_CODE_MAX + JOB_FILES_BYTES_MAX + JOB_FILES_MAX * (JOB_PATH_MAX + 6) +
                    JOB_STEPS_MAX * (JOB_STEP_MAX + 4) + JOB_ARTIFACTS_MAX * (JOB_PATH_MAX + 2),

    JOB_DIGEST = 32, /* SHA-256 */
    JOB_DETAIL_MAX = 255,
    JOB_CHUNK_MAX = FRAME_PAYLOAD_MAX - 1, /* of an output frame, after its step's number */
    JOB_HELLO_KEY = 7,                     /* where the key is in the payload of the first HELLO frame */
};

typedef struct {
    const uint8_t *bytes;
    size_t len;
} job_bytes_t;

typedef enum { JOB_PREBOOT_NONE, JOB_PREBOOT_NODE } job_preboot_t;

/* version 2 | preboot 1 | key 32 | most bytes of a JOB 4 | run id: length 1, bytes | variables: count 2, length 2 and
 * "NAME=value" each */
typedef struct {
    job_preboot_t preboot;
    uint8_t key[FRAME_KEY];
    uint32_t job_max;
    job_bytes_t run_id;
    job_bytes_t env[JOB_ENV_MAX];
    size_t env_count;
} job_hello_t;

typedef enum { JOB_SNIPPET, JOB_PROJECT, JOB_PROBE } job_kind_t;

typedef struct {
    job_bytes_t path, content;
} job_file_t;

/* kind 1 | timeout, stream, output, artifact bytes 4 each | code: length 4, bytes | files: count 2, each path length 2,
 * path, content length 4, content | steps: count 2, length 4 and line each | artifacts: count 2, length 2 and path each
 */
typedef struct {
    job_kind_t kind;
    uint32_t timeout_ms, stream_max, output_max, artifacts_max;
    job_bytes_t code;
    job_file_t files[JOB_FILES_MAX];
    size_t file_count;
    job_bytes_t steps[JOB_STEPS_MAX];
    size_t step_count;
    job_bytes_t artifacts[JOB_ARTIFACTS_MAX];
    size_t artifact_count;
} job_t;

/* version 2 | state of the interpreter started ahead 1 | processes in the sandbox 2, the runner included */
typedef enum { JOB_STARTED_NONE, JOB_STARTED, JOB_START_FAILED } job_started_t;
typedef struct {
    uint16_t version;
    job_started_t started;
    uint16_t processes;
} job_ready_t;

/* step 1 | flags 1: 1 timed out, 2 stdout cut, 4 stderr cut | exit code 4 | signal 1 | bytes of stdout and stderr kept
 * 4 each | bytes written by the guest 8 each | microseconds 8 */
typedef struct {
    uint8_t step;
    bool is_timed_out, is_out_truncated, is_err_truncated;
    int32_t exit_code;
    uint8_t signal;
    uint32_t out_kept, err_kept;
    uint64_t out_total, err_total, duration_us;
} job_step_end_t;

/* number in the job's list 2 | bytes that follow 4. JOB_WITHDRAWN instead of a length: the artifact of that number,
 * sent last, is none (it changed while it was read). */
enum { JOB_ARTIFACT_HEAD = 6 };
#define JOB_WITHDRAWN UINT32_MAX
typedef struct {
    uint16_t number;
    uint32_t len;
} job_artifact_t;

typedef enum { JOB_COMPLETED, JOB_SETUP_FAILED, JOB_TIMED_OUT, JOB_RUNNER_FAILED } job_outcome_t;

/* outcome 1 | flags 1: 1 artifacts cut | steps begun 2 | artifacts sent 2 | SHA-256 over the payloads of every frame of
 * the runner's before this one | detail: the rest, UTF-8 */
typedef struct {
    job_outcome_t outcome;
    bool is_artifacts_truncated;
    uint16_t steps, artifacts;
    uint8_t digest[JOB_DIGEST];
    job_bytes_t detail;
} job_final_t;

/* Writers: the bytes of one message go to `put` in pieces, of any size. */
typedef struct {
    void (*put)(void *data, const void *bytes, size_t len);
    void *data;
} job_sink_t;

/* Bytes of the message, and the message: of what passed its check below. */
size_t job_hello_size(const job_hello_t *hello);
void job_hello_encode(const job_hello_t *hello, job_sink_t sink);
size_t job_size(const job_t *job);
void job_encode(const job_t *job, job_sink_t sink);

/* Readers: what they give points into `bytes`. NULL, or what is wrong (static text). */
const char *job_hello_decode(const uint8_t *bytes, size_t len, job_hello_t *hello);
const char *job_decode(const uint8_t *bytes, size_t len, job_t *job);

/* NULL, or what is wrong or past a limit (static text). The decoders have asked; an encoder's caller must. */
const char *job_hello_check(const job_hello_t *hello);
const char *job_check(const job_t *job);
/* Relative, 1 to JOB_PATH_MAX bytes, no NUL, no component empty, "." or "..". */
bool job_is_path_valid(job_bytes_t path);

/* The small messages fit a frame; encoders give their length. A decoder's false: not such a message. */
size_t job_ready_encode(const job_ready_t *ready, uint8_t out[FRAME_PAYLOAD_MAX]);
bool job_ready_decode(const uint8_t *bytes, size_t len, job_ready_t *ready);
size_t job_step_end_encode(const job_step_end_t *end, uint8_t out[FRAME_PAYLOAD_MAX]);
bool job_step_end_decode(const uint8_t *bytes, size_t len, job_step_end_t *end);
size_t job_artifact_encode(const job_artifact_t *artifact, uint8_t out[FRAME_PAYLOAD_MAX]);
bool job_artifact_decode(const uint8_t *bytes, size_t len, job_artifact_t *artifact);
size_t job_final_encode(const job_final_t *final, uint8_t out[FRAME_PAYLOAD_MAX]);
bool job_final_decode(const uint8_t *bytes, size_t len, job_final_t *final);

/* A message in frames: `begin` and then the type `more`. The receiving side, for both HELLO and JOB. */
typedef struct {
    uint8_t *bytes; /* malloc'ed */
    size_t len, have;
} job_message_t;
/* One frame's payload. NULL, or what is wrong: longer than `max`, or more than was announced. */
const char *job_message_add(job_message_t *message, bool is_first, const uint8_t *payload, size_t len, size_t max);
bool job_message_is_whole(const job_message_t *message);
void job_message_dispose(job_message_t *message);

#endif
