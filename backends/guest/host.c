#include "backends/guest/host.h"

#include <stdlib.h>
#include <string.h>

#include "backends/guest/job.h"
#include "core/mem.h"
#include "core/protojson.h"
#include "core/random.h"

/*
 * Bytes a runner may send in all, frames or not (spec 2.3). What a right one sends: output of 3 MiB and artifacts of 8
 * MiB, 30 bytes of frame around at most 4 048 of them (0.1 MiB), and its small output frames, which it spaces out to
 * at most 32 768 a job (1 MiB). The rest of the 16 MiB is for what a guest may have put in between.
 */
enum { TAKEN_MAX = 16 * 1024 * 1024 };

_Static_assert((int)GUEST_KEY_BYTES == (int)FRAME_KEY, "one size of key");
_Static_assert((int)GUEST_STEPS_MAX == (int)JOB_STEPS_MAX, "one number of steps");
_Static_assert((int)GUEST_ARTIFACTS_MAX == (int)JOB_ARTIFACTS_MAX, "one number of artifacts");
_Static_assert((int)GUEST_FILES_MAX == (int)JOB_FILES_MAX, "one number of files");
_Static_assert((int)GUEST_FILES_BYTES_MAX == (int)JOB_FILES_BYTES_MAX, "one size of files");
_Static_assert(sizeof(((guest_result_t *)0)->detail) > JOB_DETAIL_MAX, "a detail and its NUL");

struct guest {
    guest_state_t state;
    const char *problem;
    uint8_t key[FRAME_KEY]; /* erased once it is in HELLO */
    bool is_greeted, is_preboot_wanted;
    frame_writer_t writer;
    frame_reader_t reader;
    crypto_hash_sha256_state digest; /* of every payload so far */
    uint64_t taken;

    /* what the job allows */
    uint8_t job_digest[JOB_DIGEST];
    size_t steps_max, output_left, artifacts_left;
    char **paths; /* of the artifacts asked for */
    size_t path_count;

    size_t next_number;    /* the lowest number the next artifact may have */
    size_t artifact_have;  /* bytes of the last artifact that have come */
    bool is_artifact_kept; /* the one of number next_number - 1 */
    guest_result_t result;
};

guest_t *guest_create(void)
{
    guest_t *guest = mem_alloc(sizeof(*guest));
    random_bytes(guest->key, sizeof(guest->key));
    frame_writer_init(&guest->writer, guest->key, FRAME_TO_RUNNER, 1);
    frame_reader_init(&guest->reader, guest->key, FRAME_TO_GATEWAY, 0);
    crypto_hash_sha256_init(&guest->digest);
    guest->result.outcome = GUEST_RUNNER_FAILED; /* until FINAL says otherwise */
    return guest;
}

static void free_artifact(guest_artifact_t *artifact)
{
    free(artifact->path);
    free(artifact->content);
    *artifact = (guest_artifact_t){0};
}

void guest_destroy(guest_t *guest)
{
    if (guest == NULL)
        return;
    frame_reader_dispose(&guest->reader);
    for (size_t i = 0; i < guest->steps_max; i++) {
        buffer_dispose(&guest->result.steps[i].out);
        buffer_dispose(&guest->result.steps[i].err);
    }
    free(guest->result.steps);
    for (size_t i = 0; i < guest->result.artifact_count; i++)
        free_artifact(&guest->result.artifacts[i]);
    free(guest->result.artifacts);
    for (size_t i = 0; i < guest->path_count; i++)
        free(guest->paths[i]);
    free(guest->paths);
    sodium_memzero(guest, sizeof(*guest));
    free(guest);
}

guest_state_t guest_state(const guest_t *guest)
{
    return guest->state;
}

const char *guest_problem(const guest_t *guest)
{
    return guest->problem;
}

guest_result_t *guest_result(guest_t *guest)
{
    return &guest->result;
}

uint64_t guest_unframed_bytes(const guest_t *guest)
{
    return guest->reader.unframed;
}

/* --- sending --- */

/* A message of several frames, made in place. */
typedef struct {
    frame_writer_t *writer;
    uint8_t *at;  /* where the present frame begins */
    size_t fill;  /* of its payload */
    uint8_t type; /* of the present frame */
    uint8_t more; /* of those after it */
    crypto_hash_sha256_state digest;
} frames_t;

static size_t frames_size(size_t message)
{
    size_t len = message + 4, frames = (len + FRAME_PAYLOAD_MAX - 1) / FRAME_PAYLOAD_MAX;
    return len + frames * (FRAME_HEAD + FRAME_TAG);
}

static void frames_end_one(frames_t *f)
{
    const uint8_t *payload = f->at + FRAME_HEAD;
    f->at += f->type == FRAME_HELLO ? frame_write_hello(payload, f->fill, f->at)
                                    : frame_write(f->writer, f->type, payload, f->fill, f->at);
    f->type = f->more;
    f->fill = 0;
}

static void frames_add(frames_t *f, const void *bytes, size_t len)
{
    for (const uint8_t *from = bytes; len != 0;) {
        if (f->fill == FRAME_PAYLOAD_MAX)
            frames_end_one(f);
        size_t room = FRAME_PAYLOAD_MAX - f->fill, n = len < room ? len : room;
        memcpy(f->at + FRAME_HEAD + f->fill, from, n);
        f->fill += n;
        from += n;
        len -= n;
    }
}

static void frames_put(void *data, const void *bytes, size_t len)
{
    frames_t *f = data;
    crypto_hash_sha256_update(&f->digest, bytes, len);
    frames_add(f, bytes, len);
}

static void frames_begin(frames_t *f, frame_writer_t *writer, uint8_t *at, uint8_t type, uint8_t more, size_t message)
{
    uint8_t len[4];
    *f = (frames_t){.writer = writer, .at = at, .type = type, .more = more};
    crypto_hash_sha256_init(&f->digest);
    frame_put32(len, (uint32_t)message);
    frames_add(f, len, sizeof(len));
}

static job_bytes_t text(const char *s)
{
    return (job_bytes_t){(const uint8_t *)s, strlen(s)};
}

bool guest_make_hello(guest_t *guest, const guest_hello_t *hello, buffer_t *out)
{
    job_hello_t message = {.job_max = JOB_BYTES_MAX};
    frames_t f;
    uint8_t *at;
    bool is_made = false;
    if (guest->is_greeted || hello->env_count > JOB_ENV_MAX)
        return false;
    message.preboot = hello->preboot == GUEST_PREBOOT_JAVASCRIPT ? JOB_PREBOOT_NODE : JOB_PREBOOT_NONE;
    message.run_id = text(hello->run_id != NULL ? hello->run_id : "");
    for (size_t i = 0; i < hello->env_count; i++)
        message.env[i] = text(hello->env[i]);
    message.env_count = hello->env_count;
    memcpy(message.key, guest->key, sizeof(message.key));
    if (job_hello_check(&message) != NULL)
        goto end;
    size_t size = job_hello_size(&message), room = frames_size(size);
    at = buffer_reserve(out, room);
    if (at == NULL)
        goto end;
    frames_begin(&f, &guest->writer, at, FRAME_HELLO, FRAME_HELLO_MORE, size);
    job_hello_encode(&message, (job_sink_t){frames_put, &f});
    frames_end_one(&f);
    buffer_commit(out, (size_t)(f.at - at));
    guest->is_greeted = true;
    guest->is_preboot_wanted = hello->preboot != GUEST_PREBOOT_NONE;
    sodium_memzero(guest->key, sizeof(guest->key));
    is_made = true;
end:
    sodium_memzero(&message, sizeof(message));
    return is_made;
}

static const char *fill_message(const guest_job_t *job, job_t *message)
{
    static const job_kind_t KINDS[] = {
        [GUEST_SNIPPET] = JOB_SNIPPET, [GUEST_PROJECT] = JOB_PROJECT, [GUEST_PROBE] = JOB_PROBE};
    if ((size_t)job->kind >= sizeof(KINDS) / sizeof(*KINDS))
        return "a job of no known kind";
    if (job->file_count > JOB_FILES_MAX)
        return "too many files";
    if (job->step_count > JOB_STEPS_MAX)
        return "too many steps";
    if (job->artifact_count > JOB_ARTIFACTS_MAX)
        return "too many artifacts";
    *message = (job_t){.kind = KINDS[job->kind],
                       .timeout_ms = job->timeout_ms,
                       .stream_max = job->stream_max,
                       .output_max = job->output_max,
                       .artifacts_max = job->artifacts_max,
                       .code = {job->code, job->code_len},
                       .file_count = job->file_count,
                       .step_count = job->step_count,
                       .artifact_count = job->artifact_count};
    for (size_t i = 0; i < job->file_count; i++)
        message->files[i] = (job_file_t){text(job->files[i].path), {job->files[i].content, job->files[i].len}};
    for (size_t i = 0; i < job->step_count; i++)
        message->steps[i] = text(job->steps[i]);
    for (size_t i = 0; i < job->artifact_count; i++)
        message->artifacts[i] = text(job->artifacts[i]);
    return job_check(message);
}

/* Keeps what the answer is held to. */
static void remember(guest_t *guest, const guest_job_t *job)
{
    guest->steps_max = job->kind == GUEST_PROJECT ? job->step_count : 1;
    guest->output_left = job->output_max;
    guest->artifacts_left = job->artifacts_max;
    guest->result.steps = mem_alloc_array(guest->steps_max, sizeof(*guest->result.steps));
    for (size_t i = 0; i < guest->steps_max; i++) {
        buffer_init(&guest->result.steps[i].out, job->stream_max);
        buffer_init(&guest->result.steps[i].err, job->stream_max);
    }
    if (job->artifact_count == 0)
        return;
    guest->result.artifacts = mem_alloc_array(job->artifact_count, sizeof(*guest->result.artifacts));
    guest->paths = mem_alloc_array(job->artifact_count, sizeof(*guest->paths));
    for (size_t i = 0; i < job->artifact_count; i++)
        guest->paths[i] = mem_strdup(job->artifacts[i]);
    guest->path_count = job->artifact_count;
}

const char *guest_make_job(guest_t *guest, const guest_job_t *job, buffer_t *out)
{
    job_t *message = mem_alloc(sizeof(*message));
    const char *err = "the runner is not waiting for a job";
    frames_t f;
    if (guest->state != GUEST_READY)
        goto end;
    err = fill_message(job, message);
    if (err != NULL)
        goto end;
    err = "no room for the job";
    size_t size = job_size(message);
    uint8_t *at = buffer_reserve(out, frames_size(size));
    if (at == NULL)
        goto end;
    frames_begin(&f, &guest->writer, at, FRAME_JOB, FRAME_JOB_MORE, size);
    job_encode(message, (job_sink_t){frames_put, &f});
    frames_end_one(&f);
    buffer_commit(out, (size_t)(f.at - at));
    crypto_hash_sha256_final(&f.digest, guest->job_digest);
    remember(guest, job);
    guest->state = GUEST_GIVEN;
    err = NULL;
end:
    free(message);
    return err;
}

/* --- taking --- */

static const char *take_ready(guest_t *guest, const frame_t *frame)
{
    job_ready_t ready;
    if (guest->state != GUEST_NEW || !guest->is_greeted)
        return "a greeting out of order";
    if (!job_ready_decode(frame->payload, frame->len, &ready))
        return "a greeting that makes no sense";
    if (ready.version != JOB_PROTOCOL)
        return "the runner speaks another protocol version";
    if (guest->is_preboot_wanted && ready.started != JOB_STARTED)
        return "the interpreter could not be started ahead";
    guest->state = GUEST_READY;
    return NULL;
}

static const char *take_accepted(guest_t *guest, const frame_t *frame)
{
    if (guest->state != GUEST_GIVEN)
        return "an acceptance out of order";
    if (frame->len != JOB_DIGEST || memcmp(frame->payload, guest->job_digest, JOB_DIGEST) != 0)
        return "the runner has another job";
    guest->state = GUEST_ACCEPTED;
    return NULL;
}

/* The step a frame speaks of, begun by it when it is the next one; NULL when it can be neither. */
static guest_step_t *step_of(guest_t *guest, size_t number)
{
    guest_result_t *result = &guest->result;
    bool is_open = result->step_count != 0 && !result->steps[result->step_count - 1].has_ended;
    if (is_open)
        return number == result->step_count - 1 ? &result->steps[number] : NULL;
    if (number != result->step_count || number >= guest->steps_max || guest->next_number != 0)
        return NULL;
    return &result->steps[result->step_count++];
}

static const char *take_output(guest_t *guest, const frame_t *frame)
{
    guest_step_t *step = frame->len > 1 ? step_of(guest, frame->payload[0]) : NULL;
    if (step == NULL)
        return "output of no step";
    buffer_t *stream = frame->type == FRAME_OUT ? &step->out : &step->err;
    size_t len = frame->len - 1, room = stream->limit - stream->len;
    if (room > guest->output_left)
        room = guest->output_left;
    size_t kept = len < room ? len : room;
    buffer_append(stream, frame->payload + 1, kept);
    guest->output_left -= kept;
    return kept == len ? NULL : "more output than the job allows";
}

static bool is_exit_sensible(const job_step_end_t *end)
{
    if (end->is_timed_out)
        return end->exit_code == 124 && end->signal == 0;
    if (end->signal != 0)
        return end->exit_code == -1 && end->signal <= 64;
    return end->exit_code >= 0 && end->exit_code <= 255;
}

static bool is_count_right(const buffer_t *stream, uint32_t kept, uint64_t total, bool is_truncated)
{
    return kept == stream->len && total >= kept && is_truncated == (total > kept);
}

static const char *take_step_end(guest_t *guest, const frame_t *frame)
{
    job_step_end_t end;
    if (!job_step_end_decode(frame->payload, frame->len, &end) || !is_exit_sensible(&end))
        return "a step's end that makes no sense";
    guest_step_t *step = step_of(guest, end.step);
    if (step == NULL)
        return "the end of no step";
    if (!is_count_right(&step->out, end.out_kept, end.out_total, end.is_out_truncated) ||
        !is_count_right(&step->err, end.err_kept, end.err_total, end.is_err_truncated))
        return "a step's output is not what was sent";
    step->has_ended = true;
    step->is_out_truncated = end.is_out_truncated;
    step->is_err_truncated = end.is_err_truncated;
    step->is_timed_out = end.is_timed_out;
    step->exit_code = end.exit_code;
    step->signal = end.signal;
    step->duration_us = end.duration_us;
    return NULL;
}

static bool is_step_open(const guest_t *guest)
{
    size_t n = guest->result.step_count;
    return n != 0 && !guest->result.steps[n - 1].has_ended;
}

static bool is_artifact_open(const guest_t *guest)
{
    size_t n = guest->result.artifact_count;
    return n != 0 && guest->artifact_have < guest->result.artifacts[n - 1].len;
}

static const char *withdraw(guest_t *guest, size_t number)
{
    guest_result_t *result = &guest->result;
    if (!guest->is_artifact_kept || number + 1 != guest->next_number)
        return "an artifact withdrawn that was not sent last";
    guest_artifact_t *last = &result->artifacts[result->artifact_count - 1];
    guest->artifacts_left += last->len;
    free_artifact(last);
    result->artifact_count--;
    guest->is_artifact_kept = false;
    /* the one before it, if any, is whole */
    guest->artifact_have = result->artifact_count != 0 ? result->artifacts[result->artifact_count - 1].len : 0;
    return NULL;
}

static const char *take_artifact(guest_t *guest, const frame_t *frame)
{
    guest_result_t *result = &guest->result;
    job_artifact_t head;
    if (is_step_open(guest) || !job_artifact_decode(frame->payload, frame->len, &head))
        return "an artifact out of order";
    if (head.len == JOB_WITHDRAWN)
        return withdraw(guest, head.number);
    if (is_artifact_open(guest) || head.number >= guest->path_count || head.number < guest->next_number)
        return "an artifact that was not asked for";
    if (head.len > guest->artifacts_left)
        return "larger artifacts than the job allows";
    guest->artifacts_left -= head.len;
    guest->next_number = (size_t)head.number + 1;
    guest->artifact_have = 0;
    guest->is_artifact_kept = true;
    result->artifacts[result->artifact_count++] = (guest_artifact_t){
        .path = mem_strdup(guest->paths[head.number]), .content = mem_alloc(head.len + 1), .len = head.len};
    return NULL;
}

static const char *take_artifact_more(guest_t *guest, const frame_t *frame)
{
    if (!is_artifact_open(guest))
        return "an artifact's bytes out of order";
    guest_artifact_t *last = &guest->result.artifacts[guest->result.artifact_count - 1];
    if (frame->len == 0 || frame->len > last->len - guest->artifact_have)
        return "an artifact longer than it said";
    memcpy(last->content + guest->artifact_have, frame->payload, frame->len);
    guest->artifact_have += frame->len;
    return NULL;
}

/* A path in it is the caller's, and is said to be text; here it is made sure of. */
static void copy_detail(job_bytes_t from, char *to)
{
    bool is_text = utf8_is_valid(from.bytes, from.len);
    for (size_t i = 0; i < from.len; i++) {
        bool is_plain = from.bytes[i] >= 0x20 && from.bytes[i] != 0x7f && (is_text || from.bytes[i] < 0x80);
        to[i] = is_plain ? (char)from.bytes[i] : '?';
    }
    to[from.len] = '\0';
}

static const char *take_final(guest_t *guest, const frame_t *frame)
{
    static const guest_outcome_t OUTCOMES[] = {[JOB_COMPLETED] = GUEST_COMPLETED,
                                               [JOB_SETUP_FAILED] = GUEST_SETUP_FAILED,
                                               [JOB_TIMED_OUT] = GUEST_TIMED_OUT,
                                               [JOB_RUNNER_FAILED] = GUEST_RUNNER_FAILED};
    guest_result_t *result = &guest->result;
    uint8_t digest[JOB_DIGEST];
    job_final_t final;
    if (!job_final_decode(frame->payload, frame->len, &final))
        return "an end that makes no sense";
    if (is_step_open(guest) || is_artifact_open(guest))
        return "an end with a part still open";
    if (final.steps != result->step_count || final.artifacts != result->artifact_count)
        return "the end counts other parts than came";
    crypto_hash_sha256_state copy = guest->digest;
    crypto_hash_sha256_final(&copy, digest);
    if (memcmp(digest, final.digest, sizeof(digest)) != 0)
        return "the end is of another stream";
    copy_detail(final.detail, result->detail);
    result->outcome = OUTCOMES[final.outcome];
    result->is_artifacts_truncated = final.is_artifacts_truncated;
    guest->state = GUEST_FINISHED;
    return NULL;
}

static const char *take_frame(guest_t *guest, const frame_t *frame)
{
    if (frame->flags != 0)
        return "a frame of no known kind";
    if (frame->type == FRAME_READY)
        return take_ready(guest, frame);
    if (frame->type == FRAME_ACCEPTED)
        return take_accepted(guest, frame);
    if (guest->state != GUEST_ACCEPTED)
        return "a frame out of order";
    switch (frame->type) {
    case FRAME_OUT:
    case FRAME_ERR:
        return take_output(guest, frame);
    case FRAME_STEP_END:
        return take_step_end(guest, frame);
    case FRAME_ARTIFACT:
        return take_artifact(guest, frame);
    case FRAME_ARTIFACT_MORE:
        return take_artifact_more(guest, frame);
    case FRAME_FINAL:
        return take_final(guest, frame);
    default:
        return "a frame of no known kind";
    }
}

static bool is_over(const guest_t *guest)
{
    return guest->state == GUEST_FINISHED || guest->state == GUEST_BROKEN;
}

static void break_off(guest_t *guest, const char *problem)
{
    guest->state = GUEST_BROKEN;
    guest->problem = problem;
}

void guest_take(guest_t *guest, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    frame_t frame;
    /* what was within the limit is still looked at, so that where the pieces were cut makes no difference */
    bool is_too_much = !is_over(guest) && len > TAKEN_MAX - guest->taken;
    if (is_too_much)
        len = (size_t)(TAKEN_MAX - guest->taken);
    guest->taken += len;
    while (!is_over(guest) && frame_reader_next(&guest->reader, &at, &len, &frame)) {
        const char *problem = take_frame(guest, &frame);
        if (problem != NULL)
            break_off(guest, problem);
        crypto_hash_sha256_update(&guest->digest, frame.payload, frame.len);
    }
    if (!is_over(guest) && frame_reader_is_spent(&guest->reader))
        break_off(guest, "too many forged frames");
    if (!is_over(guest) && is_too_much)
        break_off(guest, "more bytes than a run can have");
}

void guest_skip(guest_t *guest, size_t len)
{
    if (is_over(guest))
        return;
    if (len > TAKEN_MAX - guest->taken)
        break_off(guest, "more bytes than a run can have");
    else
        guest->taken += len;
}
