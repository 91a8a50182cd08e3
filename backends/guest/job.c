#include "backends/guest/job.h"

#include <stdlib.h>
#include <string.h>

/* --- writing --- */

static void put(job_sink_t sink, const void *bytes, size_t len)
{
    if (len != 0)
        sink.put(sink.data, bytes, len);
}

static void put8(job_sink_t sink, size_t value)
{
    uint8_t byte = (uint8_t)value;
    put(sink, &byte, 1);
}

static void put16(job_sink_t sink, size_t value)
{
    uint8_t bytes[2];
    frame_put16(bytes, (uint16_t)value);
    put(sink, bytes, sizeof(bytes));
}

static void put32(job_sink_t sink, size_t value)
{
    uint8_t bytes[4];
    frame_put32(bytes, (uint32_t)value);
    put(sink, bytes, sizeof(bytes));
}

static void put_short(job_sink_t sink, job_bytes_t b)
{
    put16(sink, b.len);
    put(sink, b.bytes, b.len);
}

static void put_long(job_sink_t sink, job_bytes_t b)
{
    put32(sink, b.len);
    put(sink, b.bytes, b.len);
}

static void add_len(void *data, const void *bytes, size_t len)
{
    (void)bytes;
    *(size_t *)data += len;
}

void job_hello_encode(const job_hello_t *hello, job_sink_t sink)
{
    put16(sink, JOB_PROTOCOL);
    put8(sink, hello->preboot);
    put(sink, hello->key, sizeof(hello->key));
    put32(sink, hello->job_max);
    put8(sink, hello->run_id.len);
    put(sink, hello->run_id.bytes, hello->run_id.len);
    put16(sink, hello->env_count);
    for (size_t i = 0; i < hello->env_count; i++)
        put_short(sink, hello->env[i]);
}

size_t job_hello_size(const job_hello_t *hello)
{
    size_t size = 0;
    job_hello_encode(hello, (job_sink_t){add_len, &size});
    return size;
}

void job_encode(const job_t *job, job_sink_t sink)
{
    put8(sink, job->kind);
    put32(sink, job->timeout_ms);
    put32(sink, job->stream_max);
    put32(sink, job->output_max);
    put32(sink, job->artifacts_max);
    put_long(sink, job->code);
    put16(sink, job->file_count);
    for (size_t i = 0; i < job->file_count; i++) {
        put_short(sink, job->files[i].path);
        put_long(sink, job->files[i].content);
    }
    put16(sink, job->step_count);
    for (size_t i = 0; i < job->step_count; i++)
        put_long(sink, job->steps[i]);
    put16(sink, job->artifact_count);
    for (size_t i = 0; i < job->artifact_count; i++)
        put_short(sink, job->artifacts[i]);
}

size_t job_size(const job_t *job)
{
    size_t size = 0;
    job_encode(job, (job_sink_t){add_len, &size});
    return size;
}

/* --- what is allowed --- */

static bool has_nul(job_bytes_t b)
{
    return b.len != 0 && memchr(b.bytes, '\0', b.len) != NULL;
}

bool job_is_path_valid(job_bytes_t path)
{
    if (path.len == 0 || path.len > JOB_PATH_MAX || has_nul(path))
        return false;
    for (size_t i = 0; i <= path.len; i++) {
        size_t begin = i;
        while (i < path.len && path.bytes[i] != '/')
            i++;
        size_t len = i - begin;
        const uint8_t *component = path.bytes + begin;
        if (len == 0 || (len == 1 && component[0] == '.') || (len == 2 && component[0] == '.' && component[1] == '.'))
            return false;
    }
    return true;
}

const char *job_hello_check(const job_hello_t *hello)
{
    size_t total = 0;
    if (hello->preboot > JOB_PREBOOT_NODE)
        return "an interpreter of no known kind";
    if (hello->run_id.len > JOB_RUN_ID_MAX)
        return "the run id is too long";
    if (hello->env_count > JOB_ENV_MAX)
        return "too many variables";
    for (size_t i = 0; i < hello->env_count; i++) {
        job_bytes_t v = hello->env[i];
        if (v.len >= JOB_ENV_BYTES_MAX || (total += v.len + 1) > JOB_ENV_BYTES_MAX)
            return "the variables are too long";
        const uint8_t *sign = v.len != 0 ? memchr(v.bytes, '=', v.len) : NULL;
        if (sign == NULL || sign == v.bytes || has_nul(v))
            return "a variable is not NAME=value";
    }
    return NULL;
}

static bool is_limits_allowed(const job_t *job)
{
    return job->timeout_ms > 0 && job->timeout_ms <= JOB_TIMEOUT_MS_MAX && job->stream_max <= JOB_STREAM_MAX &&
           job->output_max <= JOB_OUTPUT_MAX && job->artifacts_max <= JOB_ARTIFACTS_BYTES_MAX;
}

static const char *check_files(const job_t *job)
{
    size_t total = 0;
    if (job->file_count > JOB_FILES_MAX)
        return "too many files";
    for (size_t i = 0; i < job->file_count; i++) {
        const job_file_t *file = &job->files[i];
        if (file->path.len == 0 || file->path.len > JOB_PATH_MAX)
            return "a file's path is empty or too long";
        if (file->content.len > JOB_FILES_BYTES_MAX || (total += file->content.len) > JOB_FILES_BYTES_MAX)
            return "the files are too large";
    }
    return NULL;
}

const char *job_check(const job_t *job)
{
    bool has_plan = job->file_count != 0 || job->step_count != 0 || job->artifact_count != 0;
    if (job->kind > JOB_PROBE)
        return "a job of no known kind";
    if (!is_limits_allowed(job))
        return "a limit of the job's is out of range";
    if (job->code.len > JOB_CODE_MAX)
        return "the code is too long";
    if (job->kind == JOB_PROJECT ? job->code.len != 0 || job->step_count == 0 : has_plan)
        return "a job of one kind with parts of another";
    if (job->step_count > JOB_STEPS_MAX)
        return "too many steps";
    for (size_t i = 0; i < job->step_count; i++)
        if (job->steps[i].len > JOB_STEP_MAX || has_nul(job->steps[i]))
            return "a step is too long or holds a NUL";
    if (job->artifact_count > JOB_ARTIFACTS_MAX)
        return "too many artifacts";
    for (size_t i = 0; i < job->artifact_count; i++)
        if (job->artifacts[i].len == 0 || job->artifacts[i].len > JOB_PATH_MAX)
            return "an artifact's path is empty or too long";
    return check_files(job);
}

/* --- reading --- */

typedef struct {
    const uint8_t *at;
    size_t left;
    bool is_bad; /* it ended early; what was read since is zero */
} source_t;

static const uint8_t *get(source_t *source, size_t len)
{
    if (source->is_bad || len > source->left) {
        source->is_bad = true;
        return NULL;
    }
    const uint8_t *at = source->at;
    source->at += len;
    source->left -= len;
    return at;
}

static uint8_t get8(source_t *source)
{
    const uint8_t *at = get(source, 1);
    return at != NULL ? *at : 0;
}

static uint16_t get16(source_t *source)
{
    const uint8_t *at = get(source, 2);
    return at != NULL ? frame_get16(at) : 0;
}

static uint32_t get32(source_t *source)
{
    const uint8_t *at = get(source, 4);
    return at != NULL ? frame_get32(at) : 0;
}

static uint64_t get64(source_t *source)
{
    const uint8_t *at = get(source, 8);
    return at != NULL ? frame_get64(at) : 0;
}

static job_bytes_t get_bytes(source_t *source, size_t len)
{
    const uint8_t *at = get(source, len);
    return (job_bytes_t){at, at != NULL ? len : 0};
}

static job_bytes_t get_short(source_t *source)
{
    return get_bytes(source, get16(source));
}

static job_bytes_t get_long(source_t *source)
{
    return get_bytes(source, get32(source));
}

static bool is_read_whole(const source_t *source)
{
    return !source->is_bad && source->left == 0;
}

const char *job_hello_decode(const uint8_t *bytes, size_t len, job_hello_t *hello)
{
    source_t source = {bytes, len, false};
    *hello = (job_hello_t){0};
    if (get16(&source) != JOB_PROTOCOL)
        return "another protocol version";
    hello->preboot = get8(&source);
    const uint8_t *key = get(&source, sizeof(hello->key));
    if (key != NULL)
        memcpy(hello->key, key, sizeof(hello->key));
    hello->job_max = get32(&source);
    hello->run_id = get_bytes(&source, get8(&source));
    hello->env_count = get16(&source);
    if (hello->env_count > JOB_ENV_MAX)
        return "too many variables";
    for (size_t i = 0; i < hello->env_count; i++)
        hello->env[i] = get_short(&source);
    if (!is_read_whole(&source))
        return "not a whole greeting";
    return job_hello_check(hello);
}

static void get_files(source_t *source, job_t *job)
{
    for (size_t i = 0; i < job->file_count; i++) {
        job->files[i].path = get_short(source);
        job->files[i].content = get_long(source);
    }
}

const char *job_decode(const uint8_t *bytes, size_t len, job_t *job)
{
    source_t source = {bytes, len, false};
    memset(job, 0, sizeof(*job));
    job->kind = get8(&source);
    job->timeout_ms = get32(&source);
    job->stream_max = get32(&source);
    job->output_max = get32(&source);
    job->artifacts_max = get32(&source);
    job->code = get_long(&source);
    job->file_count = get16(&source);
    if (job->file_count > JOB_FILES_MAX)
        return "too many files";
    get_files(&source, job);
    job->step_count = get16(&source);
    if (job->step_count > JOB_STEPS_MAX)
        return "too many steps";
    for (size_t i = 0; i < job->step_count; i++)
        job->steps[i] = get_long(&source);
    job->artifact_count = get16(&source);
    if (job->artifact_count > JOB_ARTIFACTS_MAX)
        return "too many artifacts";
    for (size_t i = 0; i < job->artifact_count; i++)
        job->artifacts[i] = get_short(&source);
    if (!is_read_whole(&source))
        return "not a whole job";
    return job_check(job);
}

/* --- small messages --- */

size_t job_ready_encode(const job_ready_t *ready, uint8_t out[FRAME_PAYLOAD_MAX])
{
    frame_put16(out, ready->version);
    out[2] = (uint8_t)ready->started;
    frame_put16(out + 3, ready->processes);
    return 5;
}

bool job_ready_decode(const uint8_t *bytes, size_t len, job_ready_t *ready)
{
    source_t source = {bytes, len, false};
    ready->version = get16(&source);
    ready->started = get8(&source);
    ready->processes = get16(&source);
    /* of another version, what follows is its own affair */
    if (ready->version != JOB_PROTOCOL)
        return !source.is_bad;
    return is_read_whole(&source) && ready->started <= JOB_START_FAILED;
}

size_t job_step_end_encode(const job_step_end_t *end, uint8_t out[FRAME_PAYLOAD_MAX])
{
    out[0] = end->step;
    out[1] = (uint8_t)((end->is_timed_out ? 1 : 0) | (end->is_out_truncated ? 2 : 0) | (end->is_err_truncated ? 4 : 0));
    frame_put32(out + 2, (uint32_t)end->exit_code);
    out[6] = end->signal;
    frame_put32(out + 7, end->out_kept);
    frame_put32(out + 11, end->err_kept);
    frame_put64(out + 15, end->out_total);
    frame_put64(out + 23, end->err_total);
    frame_put64(out + 31, end->duration_us);
    return 39;
}

bool job_step_end_decode(const uint8_t *bytes, size_t len, job_step_end_t *end)
{
    source_t source = {bytes, len, false};
    end->step = get8(&source);
    uint8_t flags = get8(&source);
    end->is_timed_out = (flags & 1) != 0;
    end->is_out_truncated = (flags & 2) != 0;
    end->is_err_truncated = (flags & 4) != 0;
    end->exit_code = (int32_t)get32(&source);
    end->signal = get8(&source);
    end->out_kept = get32(&source);
    end->err_kept = get32(&source);
    end->out_total = get64(&source);
    end->err_total = get64(&source);
    end->duration_us = get64(&source);
    return is_read_whole(&source) && flags < 8;
}

size_t job_artifact_encode(const job_artifact_t *artifact, uint8_t out[FRAME_PAYLOAD_MAX])
{
    frame_put16(out, artifact->number);
    frame_put32(out + 2, artifact->len);
    return JOB_ARTIFACT_HEAD;
}

bool job_artifact_decode(const uint8_t *bytes, size_t len, job_artifact_t *artifact)
{
    source_t source = {bytes, len, false};
    artifact->number = get16(&source);
    artifact->len = get32(&source);
    return is_read_whole(&source);
}

size_t job_final_encode(const job_final_t *final, uint8_t out[FRAME_PAYLOAD_MAX])
{
    size_t detail = final->detail.len < JOB_DETAIL_MAX ? final->detail.len : JOB_DETAIL_MAX;
    out[0] = (uint8_t) final->outcome;
    out[1] = final->is_artifacts_truncated ? 1 : 0;
    frame_put16(out + 2, final->steps);
    frame_put16(out + 4, final->artifacts);
    memcpy(out + 6, final->digest, JOB_DIGEST);
    if (detail != 0)
        memcpy(out + 6 + JOB_DIGEST, final->detail.bytes, detail);
    return 6 + JOB_DIGEST + detail;
}

bool job_final_decode(const uint8_t *bytes, size_t len, job_final_t *final)
{
    source_t source = {bytes, len, false};
    *final = (job_final_t){.outcome = get8(&source)};
    uint8_t flags = get8(&source);
    final->is_artifacts_truncated = (flags & 1) != 0;
    final->steps = get16(&source);
    final->artifacts = get16(&source);
    const uint8_t *digest = get(&source, JOB_DIGEST);
    if (digest == NULL || flags > 1 || final->outcome > JOB_RUNNER_FAILED || source.left > JOB_DETAIL_MAX)
        return false;
    memcpy(final->digest, digest, JOB_DIGEST);
    final->detail = get_bytes(&source, source.left);
    return true;
}

/* --- messages of several frames --- */

const char *job_message_add(job_message_t *message, bool is_first, const uint8_t *payload, size_t len, size_t max)
{
    if (is_first != (message->bytes == NULL))
        return "a message's frames out of order";
    if (is_first) {
        if (len < 4)
            return "a message without its length";
        size_t whole = frame_get32(payload);
        if (whole > max)
            return "a message past its limit";
        message->bytes = malloc(whole + 1);
        if (message->bytes == NULL)
            return "no memory for a message";
        message->len = whole;
        message->have = 0;
        payload += 4;
        len -= 4;
    }
    if (len > message->len - message->have)
        return "a message longer than it said";
    if (len != 0)
        memcpy(message->bytes + message->have, payload, len);
    message->have += len;
    return NULL;
}

bool job_message_is_whole(const job_message_t *message)
{
    return message->bytes != NULL && message->have == message->len;
}

void job_message_dispose(job_message_t *message)
{
    if (message->bytes != NULL)
        sodium_memzero(message->bytes, message->len);
    free(message->bytes);
    *message = (job_message_t){0};
}
