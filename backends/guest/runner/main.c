/*
 * PID 1 of every guest: `runner --mode=run --preboot=node|none [--patience=MS]` (spec backend-docker 2.2). It takes a
 * greeting with a key, starts the interpreter ahead, takes one job, runs it, and ends. It says nothing on its streams
 * but frames, on stderr only why it could not begin, and knows nothing of what carries them.
 *
 * `--mode=exec --work=DIRECTORY`: the same as one process among others, where PID 1 is somebody else's and guests have
 * the runner's own uid. Its memory and descriptors are hidden from them all the same; that they cannot end it is not
 * promised. What they leave behind becomes its children (prctl(2), PR_SET_CHILD_SUBREAPER), and only those are ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/guest/runner/run.h"

enum { EXIT_START = 125 };

static const char WORK[] = "/work";

static runner_t runner;
static const char *work_path; /* --work */
static bool is_exec;          /* --mode=exec */
static uint32_t patience_ms;
static char run_id[JOB_RUN_ID_MAX + 2]; /* and a space before it */

static void fail_start(const char *why)
{
    dprintf(STDERR_FILENO, "runner%s: %s\n", run_id, why);
    _exit(EXIT_START);
}

/* At most eight digits: no overflow. */
static bool read_number(const char *text, uint32_t *out)
{
    size_t len = strlen(text);
    if (len < 1 || len > 8 || strspn(text, "0123456789") != len)
        return false;
    *out = (uint32_t)strtoul(text, NULL, 10);
    return true;
}

/* What may be asked for: one mode, what is started ahead, and how long a greeting, and then a job, is waited for when
 * that is to be less than usual. */
static bool read_arguments(int argc, char **argv, bool *is_preboot)
{
    static const char patience[] = "--patience=", work[] = "--work=/";
    *is_preboot = false;
    patience_ms = UINT32_MAX;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--preboot=node") == 0)
            *is_preboot = true;
        else if (strcmp(argv[i], "--preboot=none") == 0)
            *is_preboot = false;
        else if (strncmp(argv[i], patience, sizeof(patience) - 1) == 0) {
            if (!read_number(argv[i] + sizeof(patience) - 1, &patience_ms))
                return false;
        } else if (strncmp(argv[i], work, sizeof(work) - 1) == 0)
            work_path = argv[i] + sizeof(work) - 2;
        else if (strcmp(argv[i], "--mode=exec") == 0)
            is_exec = true;
        else if (strcmp(argv[i], "--mode=run") != 0)
            return false;
    }
    return is_exec == (work_path != NULL);
}

static void wait_at_most(uint32_t ms)
{
    link_wait_at_most(&runner.link, ms < patience_ms ? ms : patience_ms);
}

/* Nobody may read its memory or open its descriptors by way of /proc. */
static bool is_hidden(void)
{
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0;
}

/* PID 1, or the parent of whatever its children leave. */
static bool is_in_place(void)
{
    if (!is_exec)
        return getpid() == 1;
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

static bool is_streams_open(void)
{
    return fcntl(0, F_GETFD) >= 0 && fcntl(1, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0;
}

/* Its own is forgotten, bytes and all; what guests get comes in the greeting. */
static void clear_environment(void)
{
    for (char **v = environ; v != NULL && *v != NULL; v++)
        explicit_bzero(*v, strlen(*v));
    clearenv();
}

static char **copy_variables(const job_hello_t *hello)
{
    char **env = calloc(hello->env_count + 1, sizeof(*env));
    if (env == NULL)
        fail_start("no memory");
    for (size_t i = 0; i < hello->env_count; i++) {
        env[i] = strndup((const char *)hello->env[i].bytes, hello->env[i].len);
        if (env[i] == NULL)
            fail_start("no memory");
    }
    return env;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Where guests start: an image's own directory, or one that is made here. */
static const char *find_work(void)
{
    if (work_path == NULL)
        return is_directory(WORK) ? WORK : "/";
    if (mkdir(work_path, 0700) != 0 && errno != EEXIST)
        return NULL;
    return is_directory(work_path) ? work_path : NULL;
}

/* Takes the greeting, the only message with a secret in it. true when the gateway wants an interpreter started ahead.
 */
static bool take_greeting(uint32_t *job_max)
{
    static job_hello_t hello;
    job_message_t message = {0};
    wait_at_most(LINK_GREETING_MS);
    const char *err = link_greet(&runner.link, &hello, &message);
    if (err != NULL && *err == '\0')
        _exit(0); /* nobody has come */
    if (err != NULL)
        fail_start(err);
    bool is_preboot = hello.preboot == JOB_PREBOOT_NODE;
    run_id[0] = ' ';
    memcpy(run_id + 1, hello.run_id.bytes, hello.run_id.len);
    *job_max = hello.job_max < JOB_BYTES_MAX ? hello.job_max : JOB_BYTES_MAX;
    runner.world.env = copy_variables(&hello);
    job_message_dispose(&message);
    sodium_memzero(&hello, sizeof(hello));
    return is_preboot;
}

static void send_ready(bool is_preboot)
{
    uint8_t payload[FRAME_PAYLOAD_MAX];
    job_ready_t ready = {.version = JOB_PROTOCOL, .started = JOB_STARTED_NONE, .processes = 1};
    if (is_preboot && run_start_interpreter(&runner) == 0) {
        ready.started = JOB_STARTED;
        ready.processes++;
    } else if (is_preboot) {
        ready.started = JOB_START_FAILED;
    }
    link_send(&runner.link, FRAME_READY, payload, job_ready_encode(&ready, payload));
    link_flush(&runner.link);
}

/* Its frames, until the whole message is there. */
static void take_job(job_message_t *message, uint32_t job_max)
{
    frame_t frame;
    wait_at_most(LINK_JOB_MS);
    while (!job_message_is_whole(message)) {
        if (!link_read(&runner.link, &frame))
            _exit(0); /* it is not needed any more */
        bool is_first = frame.type == FRAME_JOB;
        if (!is_first && frame.type != FRAME_JOB_MORE)
            fail_start("a frame that is no job");
        const char *err = job_message_add(message, is_first, frame.payload, frame.len, job_max);
        if (err != NULL)
            fail_start(err);
    }
}

static void send_accepted(const job_message_t *message)
{
    uint8_t digest[JOB_DIGEST];
    crypto_hash_sha256(digest, message->bytes, message->len);
    link_send(&runner.link, FRAME_ACCEPTED, digest, sizeof(digest));
}

/* Its end makes the engine clear its sandbox away, which costs the machine more than a short run does: whoever holds
 * the stream open says when. */
static void linger(void)
{
    frame_t frame;
    wait_at_most(LINK_LINGER_MS);
    while (link_read(&runner.link, &frame))
        ;
}

int main(int argc, char **argv)
{
    bool is_preboot;
    uint32_t job_max;
    job_message_t message = {0};
    if (!is_hidden())
        fail_start("its memory cannot be hidden");
    if (!is_streams_open())
        fail_start("a standard stream is missing");
    if (!read_arguments(argc, argv, &is_preboot))
        fail_start("unknown argument");
    if (!is_in_place())
        fail_start("not process 1");
    const char *err = process_init(&runner.world);
    if (err != NULL)
        fail_start(err);
    clear_environment();
    umask(022);
    runner.world.is_among_others = is_exec;
    if ((runner.world.directory = find_work()) == NULL)
        fail_start("the work directory");
    if (fcntl(LINK_OUT, F_SETFL, fcntl(LINK_OUT, F_GETFL) | O_NONBLOCK) != 0)
        fail_start("stdout");
    bool is_wanted = take_greeting(&job_max);
    send_ready(is_preboot && is_wanted);
    take_job(&message, job_max);
    send_accepted(&message);
    err = job_decode(message.bytes, message.len, &runner.job);
    if (err != NULL)
        run_refuse(&runner, err);
    else
        run_job(&runner);
    linger();
    return 0;
}
