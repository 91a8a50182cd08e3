/*
 * A runner in its guest's hands against the gateway's end. The input is a script: raw bytes for the stream, and frames
 * with any type, number and payload that carry the right tag, as if the key were known. Whatever comes, the job's
 * limits hold, and how the bytes were cut changes nothing. The decoders of what goes to the runner get it raw as well.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/guest/host.h"
#include "backends/guest/job.h"
#include "core/random.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STREAM_MAX = 300, OUTPUT_MAX = 500, ARTIFACTS_MAX = 400, SCRIPT_MAX = 64 * 1024 };

static const char *const STEPS[] = {"a", "b", "c"};
static const char *const PATHS[] = {"x", "y/z"};

typedef struct {
    frame_writer_t writer;
    crypto_hash_sha256_state digest;
    uint8_t job_digest[JOB_DIGEST];
} other_end_t;

/* A guest that waits for the job's acceptance, and the runner's end of it. */
static guest_t *begin(other_end_t *end)
{
    guest_hello_t hello = {.run_id = "fuzz"};
    guest_job_t job = {.kind = GUEST_PROJECT,
                       .timeout_ms = 1,
                       .stream_max = STREAM_MAX,
                       .output_max = OUTPUT_MAX,
                       .artifacts_max = ARTIFACTS_MAX,
                       .steps = STEPS,
                       .step_count = 3,
                       .artifacts = PATHS,
                       .artifact_count = 2};
    uint8_t bytes[FRAME_MAX], ready[] = {0, JOB_PROTOCOL, 0, 0, 1};
    buffer_t sent;
    guest_t *guest = guest_create();
    buffer_init(&sent, 64 * 1024);
    if (!guest_make_hello(guest, &hello, &sent))
        abort();
    frame_writer_init(&end->writer, sent.base + FRAME_HEAD + JOB_HELLO_KEY, FRAME_TO_GATEWAY, 0);
    crypto_hash_sha256_init(&end->digest);
    guest_take(guest, bytes, frame_write(&end->writer, FRAME_READY, ready, sizeof(ready), bytes));
    crypto_hash_sha256_update(&end->digest, ready, sizeof(ready));
    buffer_clear(&sent);
    if (guest_make_job(guest, &job, &sent) != NULL)
        abort();
    crypto_hash_sha256(end->job_digest, sent.base + FRAME_HEAD + 4, sent.len - FRAME_HEAD - 4 - FRAME_TAG);
    buffer_dispose(&sent);
    return guest;
}

static void check(guest_t *guest)
{
    const guest_result_t *result = guest_result(guest);
    size_t output = 0, artifacts = 0;
    if (result->step_count > 3 || result->artifact_count > 2)
        abort();
    for (size_t i = 0; i < result->step_count; i++) {
        const guest_step_t *step = &result->steps[i];
        if (step->out.len > STREAM_MAX || step->err.len > STREAM_MAX ||
            (i + 1 < result->step_count && !step->has_ended))
            abort();
        output += step->out.len + step->err.len;
    }
    for (size_t i = 0; i < result->artifact_count; i++)
        artifacts += result->artifacts[i].len;
    if (output > OUTPUT_MAX || artifacts > ARTIFACTS_MAX)
        abort();
    if ((guest_state(guest) == GUEST_BROKEN) != (guest_problem(guest) != NULL))
        abort();
    if (guest_state(guest) != GUEST_FINISHED && result->outcome != GUEST_RUNNER_FAILED)
        abort();
    if (strnlen(result->detail, sizeof(result->detail)) == sizeof(result->detail))
        abort();
}

/* Commands: 'r' n bytes raw; 'w' type n payload with the right number and tag; 'n' type seq n payload with a number of
 * its own; 'a' the right acceptance; 'x' outcome steps artifacts, an end with the right digest. */
static size_t play(other_end_t *end, const uint8_t *data, size_t size, uint8_t *stream)
{
    size_t n = 0;
    while (size >= 4 && n < SCRIPT_MAX - 2 * FRAME_MAX) {
        uint8_t command = data[0], a = data[1], b = data[2], payload[FRAME_PAYLOAD_MAX];
        size_t len = data[3] < size - 4 ? data[3] : size - 4, used = 4 + len;
        if (command == 'r') {
            memcpy(stream + n, data + 4, len);
            n += len;
        } else if (command == 'w') {
            n += frame_write(&end->writer, a, data + 4, len, stream + n);
            crypto_hash_sha256_update(&end->digest, data + 4, len);
        } else if (command == 'n') {
            uint32_t seq = end->writer.seq;
            end->writer.seq += (uint32_t)(int8_t)b;
            n += frame_write(&end->writer, a, data + 4, len, stream + n);
            end->writer.seq = seq;
        } else if (command == 'a') {
            n += frame_write(&end->writer, FRAME_ACCEPTED, end->job_digest, JOB_DIGEST, stream + n);
            crypto_hash_sha256_update(&end->digest, end->job_digest, JOB_DIGEST);
            used = 1;
        } else if (command == 'x') {
            job_final_t final = {.outcome = a & 3, .steps = b & 3, .artifacts = b >> 2 & 3, .detail = {data + 4, len}};
            crypto_hash_sha256_state copy = end->digest;
            crypto_hash_sha256_final(&copy, final.digest);
            size_t final_len = job_final_encode(&final, payload);
            n += frame_write(&end->writer, FRAME_FINAL, payload, final_len, stream + n);
        } else {
            used = 1;
        }
        data += used;
        size -= used;
    }
    return n;
}

/* What came of it, in one number. */
static uint64_t run(const uint8_t *data, size_t size, size_t piece)
{
    static uint8_t stream[SCRIPT_MAX];
    other_end_t end;
    guest_t *guest = begin(&end);
    size_t n = play(&end, data, size, stream);
    for (size_t at = 0; at < n;) {
        size_t len = piece < n - at ? piece : n - at;
        uint8_t *copy = malloc(len); /* so that a read past the piece is seen */
        memcpy(copy, stream + at, len);
        guest_take(guest, copy, len);
        free(copy);
        check(guest);
        at += len;
    }
    const guest_result_t *result = guest_result(guest);
    uint64_t sum =
        (uint64_t)guest_state(guest) * 131 + result->step_count * 17 + result->artifact_count * 3 + result->outcome;
    for (size_t i = 0; i < result->step_count; i++) {
        const guest_step_t *step = &result->steps[i];
        sum = sum * 131 + step->out.len * 7 + step->err.len * 3 + (uint64_t)(uint32_t)step->exit_code + step->has_ended;
        for (size_t j = 0; j < step->out.len; j++)
            sum = sum * 131 + step->out.base[j];
    }
    guest_destroy(guest);
    return sum;
}

static void decode(const uint8_t *data, size_t size)
{
    static job_t job;
    static job_hello_t hello;
    uint8_t *copy = malloc(size + 1);
    memcpy(copy, data, size);
    if (job_decode(copy, size, &job) == NULL && (job_check(&job) != NULL || job_size(&job) != size))
        abort();
    if (job_hello_decode(copy, size, &hello) == NULL && job_hello_size(&hello) != size)
        abort();
    job_is_path_valid((job_bytes_t){copy, size});
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;
    if (!is_ready)
        random_init();
    is_ready = true;
    if (size == 0)
        return 0;
    decode(data + 1, size - 1);
    if (run(data + 1, size - 1, (size_t)data[0] + 1) != run(data + 1, size - 1, SIZE_MAX))
        abort();
    return 0;
}
