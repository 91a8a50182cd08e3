/*
 * The Engine's calls against a real one, at the socket that PLIMSOLL_TEST_ENGINE names. Without it only the first test
 * runs, which needs none. The image is a static program, made with the compiler at hand and imported.
 */
#include "fake_engine.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "backends/docker/attach.h"
#include "core/buffer.h"
#include "core/http_client.h"
#include "core/random.h"

/* Says "up" on stderr, then echoes what it reads, until there is no more. gVisor writes less than it was given when the
 * pipe is full. */
static const char program[] =
    "#include <unistd.h>\n"
    "int main(void) { char b[65536]; ssize_t n, w;\n"
    "if (write(2, \"up\", 2) != 2) return 1;\n"
    "while ((n = read(0, b, sizeof(b))) > 0)\n"
    "for (ssize_t at = 0; at < n; at += w) if ((w = write(1, b + at, n - at)) <= 0) return 1;\n"
    "return 7; }\n";

enum { SAMPLES = 10 };

static char image[80]; /* its content ID; "" without an Engine */
static char tag[64];   /* its name */
static char label[64]; /* of every container made here */
static char runtimes[2][8] = {"runc", "runsc"};
static unsigned runtime_count;

#define NEEDS_AN_ENGINE()                                                                                              \
    do {                                                                                                               \
        if (image[0] == '\0')                                                                                          \
            skip();                                                                                                    \
    } while (0)

static void open_live(void)
{
    loop = loop_create();
    engine = engine_create(loop, getenv("PLIMSOLL_TEST_ENGINE"));
}

static void close_live(void)
{
    engine_destroy(engine);
    for (int i = 0; i < 3; ++i)
        loop_run_once(loop, 0);
    loop_destroy(loop);
}

static int setup_live(void **state)
{
    (void)state;
    if (image[0] != '\0') {
        open_live();
        negotiate();
    }
    return 0;
}

static int teardown_live(void **state)
{
    (void)state;
    if (image[0] != '\0')
        close_live();
    return 0;
}

/* ---- the image ---- */

static void add_to_tar(buffer_t *tar, const char *name, const void *bytes, size_t len)
{
    char head[512] = {0};
    unsigned sum = 0;
    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "0000755");
    snprintf(head + 108, 8, "0000000");
    snprintf(head + 116, 8, "0000000");
    snprintf(head + 124, 12, "%011zo", len);
    snprintf(head + 136, 12, "00000000000");
    memset(head + 148, ' ', 8);
    head[156] = '0';
    memcpy(head + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof(head); ++i)
        sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    assert_true(buffer_append(tar, head, sizeof(head)) && buffer_append(tar, bytes, len));
    while (tar->len % 512 != 0)
        assert_true(buffer_append(tar, "", 1));
}

static void compile(buffer_t *out)
{
    char dir[] = "/tmp/engine-live-XXXXXX", source[64], binary[64], command[256];
    uint8_t bytes[4096];
    ssize_t n;
    assert_non_null(mkdtemp(dir));
    snprintf(source, sizeof(source), "%s/echo.c", dir);
    snprintf(binary, sizeof(binary), "%s/echo", dir);
    FILE *file = fopen(source, "w");
    assert_true(fputs(program, file) >= 0 && fclose(file) == 0);
    snprintf(command, sizeof(command), "cc -static -Os -s -o %s %s", binary, source);
    assert_int_equal(system(command), 0);
    int fd = open(binary, O_RDONLY | O_CLOEXEC);
    while ((n = read(fd, bytes, sizeof(bytes))) > 0)
        assert_true(buffer_append(out, bytes, (size_t)n));
    close(fd);
    unlink(binary);
    unlink(source);
    rmdir(dir);
}

typedef struct {
    const char *method, *path;
    const buffer_t *body;
    http_response_t response;
    bool has_ended;
} raw_call_t;

static void raw_call(void *arg)
{
    raw_call_t *c = arg;
    char url[512];
    const char *headers[] = {"Content-Type: application/x-tar"};
    http_client_options_t options = {.header_max = 16384};
    http_client_t *http = http_client_create(loop, &options);
    snprintf(url, sizeof(url), "http://d/v1.41%s", c->path);
    http_request_t request = {.method = c->method,
                              .url = url,
                              .unix_path = getenv("PLIMSOLL_TEST_ENGINE"),
                              .headers = headers,
                              .header_count = c->body != NULL ? 1 : 0,
                              .body = c->body != NULL ? c->body->base : NULL,
                              .body_len = c->body != NULL ? c->body->len : 0,
                              .deadline_ms = 60000,
                              .response_max = 65536};
    http_call_co(http, &request, &c->response);
    http_client_destroy(http);
}

static void on_raw_end(void *arg)
{
    raw_call_t *c = arg;
    c->has_ended = true;
}

static void make_raw_call(raw_call_t *c)
{
    co_start(loop, raw_call, c, on_raw_end);
    wait_for(c->has_ended);
    assert_int_equal(c->response.outcome, HTTP_DONE);
}

static void import_image(void)
{
    buffer_t binary, tar;
    char path[256], hex[17];
    static const char zeros[1024];
    buffer_init(&binary, 16 << 20);
    buffer_init(&tar, 17 << 20);
    compile(&binary);
    add_to_tar(&tar, "echo", binary.base, binary.len);
    assert_true(buffer_append(&tar, zeros, sizeof(zeros)));
    random_hex(hex, 8);
    snprintf(tag, sizeof(tag), "plimsoll-engine/test%s:one", hex);
    snprintf(label, sizeof(label), "sbx.test=%s", hex);
    snprintf(path, sizeof(path), "/images/create?fromSrc=-&repo=plimsoll-engine/test%s&tag=one&changes=LABEL%%20a=b",
             hex);
    raw_call_t c = {.method = "POST", .path = path, .body = &tar};
    make_raw_call(&c);
    assert_int_equal(c.response.status, 200);
    const char *id = strstr((const char *)c.response.body.base, "sha256:");
    assert_non_null(id);
    snprintf(image, sizeof(image), "%.71s", id);
    buffer_dispose(&c.response.body);
    buffer_dispose(&tar);
    buffer_dispose(&binary);
}

static int setup_all(void **state)
{
    (void)state;
    random_init();
    if (getenv("PLIMSOLL_TEST_ENGINE") == NULL)
        return 0;
    open_live();
    negotiate();
    import_image();
    call_t c = call(OP_INFO, NULL);
    assert_answer(&c, ENGINE_OK, "");
    runtime_count = json_object_get(json_object_get(c.answer.json, "Runtimes"), "runsc") != NULL ? 2 : 1;
    engine_answer_dispose(&c.answer);
    close_live();
    return 0;
}

static int teardown_all(void **state)
{
    char path[128];
    (void)state;
    if (image[0] == '\0')
        return 0;
    open_live();
    negotiate();
    const char *labels[] = {label};
    call_t c = {.op = OP_LIST, .labels = labels, .label_count = 1};
    make(&c);
    size_t left = json_array_size(c.answer.json);
    for (size_t i = 0; i < left; ++i) {
        call_t r = call(OP_REMOVE, json_string_value(json_object_get(json_array_get(c.answer.json, i), "Id")));
        engine_answer_dispose(&r.answer);
    }
    engine_answer_dispose(&c.answer);
    snprintf(path, sizeof(path), "/images/%s?force=1", tag);
    raw_call_t raw = {.method = "DELETE", .path = path};
    make_raw_call(&raw);
    bool is_gone = raw.response.status == 200;
    buffer_dispose(&raw.response.body);
    close_live();
    return is_gone && left == 0 ? 0 : -1;
}

/* ---- containers ---- */

/* Spec backend-docker 1.2, without the parts other files decide on. */
static json_t *make_body(const char *runtime, const char *entry)
{
    json_t *labels = json_object();
    char *equals = strchr(label, '=');
    char key[64];
    snprintf(key, sizeof(key), "%.*s", (int)(equals - label), label);
    json_object_set_new(labels, key, json_string(equals + 1));
    json_t *body = json_pack("{s:s, s:[s], s:[], s:s, s:[], s:b, s:b, s:b, s:b, s:b, s:b, s:o, s:s, s:i,"
                             " s:{s:s, s:s, s:b, s:b, s:[s], s:[s], s:i, s:i, s:i, s:I, s:{s:s}, s:{s:s}, s:b}}",
                             "Image", image, "Entrypoint", entry, "Cmd", "User", "61000:61000", "Env", "Tty", 0,
                             "OpenStdin", 1, "StdinOnce", 1, "AttachStdin", 1, "AttachStdout", 1, "AttachStderr", 1,
                             "Labels", labels, "StopSignal", "SIGKILL", "StopTimeout", 0, "HostConfig", "Runtime",
                             runtime, "NetworkMode", "none", "ReadonlyRootfs", 1, "Privileged", 0, "CapDrop", "ALL",
                             "SecurityOpt", "no-new-privileges", "PidsLimit", 256, "Memory", 268435456, "MemorySwap",
                             268435456, "NanoCpus", (json_int_t)1000000000, "Tmpfs", "/tmp",
                             "rw,noexec,nosuid,nodev,size=16m,mode=1777", "LogConfig", "Type", "none", "AutoRemove", 0);
    assert_non_null(body);
    return body;
}

typedef struct {
    char id[ENGINE_ID_BYTES + 1];
    char name[32];
} made_t;

static made_t create(const char *runtime, const char *entry)
{
    made_t made;
    char hex[17];
    random_hex(hex, 8);
    snprintf(made.name, sizeof(made.name), "plimsoll-%s", hex);
    call_t c = {.op = OP_CREATE, .name = made.name, .body = make_body(runtime, entry)};
    make(&c);
    assert_answer(&c, ENGINE_OK, "");
    memcpy(made.id, c.id, sizeof(made.id));
    engine_answer_dispose(&c.answer);
    json_decref((json_t *)c.body);
    return made;
}

static void remove_it(const made_t *made)
{
    expect(OP_REMOVE, made->id, ENGINE_OK, "");
    expect(OP_INSPECT, made->id, ENGINE_ABSENT, "No such container");
    expect(OP_INSPECT, made->name, ENGINE_ABSENT, "No such container");
    expect(OP_REMOVE, made->id, ENGINE_ABSENT, "No such container");
}

typedef struct {
    const char *id;
    attach_t *attach;
    char failure[ENGINE_TEXT_MAX];
    size_t out_len, err_len;
    unsigned ends, sents;
    bool has_ended, is_wrong;
    char err[8];
} stream_t;

static void on_bytes(void *data, int stream, const uint8_t *bytes, size_t len)
{
    stream_t *s = data;
    for (size_t i = 0; i < len; ++i) {
        if (stream == 1)
            s->is_wrong = s->is_wrong || bytes[i] != (uint8_t)(s->out_len++ * 7 % 251);
        else if (s->err_len < sizeof(s->err))
            s->err[s->err_len++] = (char)bytes[i];
    }
}

static void on_end(void *data, const char *why)
{
    stream_t *s = data;
    ++s->ends;
    assert_string_equal(why, "the stream ended");
}

static void on_sent(void *data)
{
    stream_t *s = data;
    ++s->sents;
}

static void open_in_co(void *arg)
{
    static const attach_events_t events = {.on_bytes = on_bytes, .on_end = on_end, .on_sent = on_sent};
    stream_t *s = arg;
    s->attach = attach_open(engine, loop, s->id, &events, s, 20000, s->failure);
}

static void on_open_end(void *arg)
{
    stream_t *s = arg;
    s->has_ended = true;
}

static void open_stream(stream_t *s)
{
    co_start(loop, open_in_co, s, on_open_end);
    wait_for(s->has_ended);
}

static json_int_t state_of(const char *id, const char *key)
{
    call_t c = call(OP_INSPECT, id);
    assert_answer(&c, ENGINE_OK, "");
    const json_t *value = json_object_get(json_object_get(c.answer.json, "State"), key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : json_is_true(value);
    engine_answer_dispose(&c.answer);
    return number;
}

/* ---- tests ---- */

static void no_engine_is_told_as_such(void **state)
{
    (void)state;
    loop = loop_create();
    engine = engine_create(loop, "/nowhere/docker.sock");
    call_t c = {.op = OP_NEGOTIATE};
    make(&c);
    assert_false(c.is_negotiated);
    assert_non_null(strstr(c.failure, "does not answer"));
    close_live();
}

static void images_are_found_by_name_and_by_content(void **state)
{
    (void)state;
    NEEDS_AN_ENGINE();
    const char *refs[] = {tag, image};
    for (size_t i = 0; i < 2; ++i) {
        call_t c = call(OP_IMAGE, refs[i]);
        assert_answer(&c, ENGINE_OK, "");
        assert_string_equal(json_string_value(json_object_get(c.answer.json, "Id")), image);
        const json_t *config = json_object_get(c.answer.json, "Config");
        assert_string_equal(json_string_value(json_object_get(json_object_get(config, "Labels"), "a")), "b");
        engine_answer_dispose(&c.answer);
    }
    expect(OP_IMAGE, "plimsoll-engine/nothing:here", ENGINE_ABSENT, "No such image");
    expect(OP_IMAGE, "sha256:" ID, ENGINE_ABSENT, "No such image");
    /* an escape that is undone twice would be a path of the API */
    expect(OP_IMAGE, "a%2f..%2f..%2finfo", ENGINE_REFUSED, "");
    expect(OP_IMAGE, "a?b", ENGINE_REFUSED, "");
}

static void a_create_that_cannot_be_makes_nothing(void **state)
{
    (void)state;
    NEEDS_AN_ENGINE();
    made_t made = create("runc", "/echo");
    json_t *body = make_body("runc", "/echo");
    call_t c = {.op = OP_CREATE, .name = made.name, .body = body};
    make(&c);
    assert_answer(&c, ENGINE_CONFLICT, "in use");
    assert_string_equal(c.id, "");
    json_object_set_new(body, "Image", json_string("sha256:" ID));
    c = (call_t){.op = OP_CREATE, .name = "plimsoll-0000000000000000", .body = body};
    make(&c);
    assert_answer(&c, ENGINE_ABSENT, "No such image");
    json_object_set_new(body, "Image", json_string(image));
    json_object_set_new(json_object_get(body, "HostConfig"), "Runtime", json_string("nothing"));
    c = (call_t){.op = OP_CREATE, .name = "plimsoll-0000000000000000", .body = body};
    make(&c);
    assert_answer(&c, ENGINE_REFUSED, "untime");
    expect(OP_INSPECT, "plimsoll-0000000000000000", ENGINE_ABSENT, "");
    json_decref(body);
    remove_it(&made);
}

static void containers_are_listed_by_label(void **state)
{
    (void)state;
    NEEDS_AN_ENGINE();
    const char *labels[] = {label, "sbx.test"}, *other[] = {label, "sbx.test=\"other\""};
    made_t made[2] = {create("runc", "/echo"), create("runc", "/echo")};
    call_t c = {.op = OP_LIST, .labels = labels, .label_count = 2};
    make(&c);
    assert_answer(&c, ENGINE_OK, "");
    assert_int_equal(json_array_size(c.answer.json), 2);
    engine_answer_dispose(&c.answer);
    c = (call_t){.op = OP_LIST, .labels = other, .label_count = 2};
    make(&c);
    assert_answer(&c, ENGINE_OK, "");
    assert_int_equal(json_array_size(c.answer.json), 0);
    engine_answer_dispose(&c.answer);
    remove_it(&made[0]);
    remove_it(&made[1]);
}

static void a_program_that_is_not_there_does_not_start(void **state)
{
    (void)state;
    NEEDS_AN_ENGINE();
    made_t made = create("runc", "/nothing");
    expect(OP_START, made.id, ENGINE_REFUSED, "");
    assert_int_equal(state_of(made.id, "ExitCode"), 127);
    remove_it(&made);
}

static void a_life_of_a_container(void **state)
{
    (void)state;
    NEEDS_AN_ENGINE();
    for (unsigned r = 0; r < runtime_count; ++r) {
        made_t made = create(runtimes[r], "/echo");
        stream_t s = {.id = made.id};
        uint8_t bytes[300000];
        expect(OP_INSPECT, made.name, ENGINE_OK, "");
        expect(OP_KILL, made.id, ENGINE_CONFLICT, "not running");
        open_stream(&s);
        assert_string_equal(s.failure, "");
        expect(OP_START, made.id, ENGINE_OK, "");
        expect(OP_START, made.id, ENGINE_UNCHANGED, "");
        assert_int_equal(state_of(made.id, "Running"), 1);
        for (size_t i = 0; i < sizeof(bytes); ++i)
            bytes[i] = (uint8_t)(i * 7 % 251);
        assert_true(attach_write(s.attach, bytes, sizeof(bytes)));
        wait_for(s.out_len == sizeof(bytes) && s.err_len == 2);
        wait_for(s.sents == 1);
        assert_false(s.is_wrong);
        assert_memory_equal(s.err, "up", 2);
        assert_int_equal(s.ends, 0);
        expect(OP_KILL, made.id, ENGINE_OK, "");
        wait_for(s.ends == 1);
        wait_for(state_of(made.id, "Running") == 0);
        assert_int_equal(state_of(made.id, "ExitCode"), 137);
        attach_close(s.attach);
        remove_it(&made);
    }
}

/* Spec backend-docker 1.4: closing our end does not stop the container. */
static void a_closed_stream_leaves_the_container_running(void **state)
{
    (void)state;
    NEEDS_AN_ENGINE();
    made_t made = create("runc", "/echo");
    stream_t s = {.id = made.id};
    open_stream(&s);
    expect(OP_START, made.id, ENGINE_OK, "");
    wait_for(s.err_len == 2);
    call_t c = call(OP_UNPAUSE, made.id);
    assert_true(c.answer.outcome == ENGINE_CONFLICT || c.answer.outcome == ENGINE_FAILED); /* it was a 500 */
    assert_non_null(strstr(c.answer.text, "not paused"));
    expect(OP_REMOVE, made.id, ENGINE_OK, "");
    wait_for(s.ends == 1);
    attach_close(s.attach);
    expect(OP_UNPAUSE, made.id, ENGINE_ABSENT, "");
    expect(OP_KILL, made.id, ENGINE_ABSENT, "");
    expect(OP_START, made.id, ENGINE_ABSENT, "");
    stream_t gone = {.id = made.id};
    open_stream(&gone);
    assert_null(gone.attach);
    assert_non_null(strstr(gone.failure, "status 404: No such container"));
}

/* ---- how long it takes; reported, not asserted ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *runtime, const char *what, uint64_t *samples)
{
    qsort(samples, SAMPLES, sizeof(samples[0]), by_size);
    print_message("%-5s %-8s p50 %6.2f ms  p90 %6.2f ms\n", runtime, what, (double)samples[SAMPLES / 2] / 1000,
                  (double)samples[SAMPLES * 9 / 10] / 1000);
}

static void times_are_reported(void **state)
{
    enum { CREATE, INSPECT, ATTACH, START, ECHO, REMOVE, KINDS };
    static const char *const names[KINDS] = {"create", "inspect", "attach", "start", "echo", "remove"};
    static uint64_t took[KINDS][SAMPLES];
    (void)state;
    NEEDS_AN_ENGINE();
    for (unsigned r = 0; r < runtime_count; ++r) {
        for (int i = -2; i < SAMPLES; ++i) {
            uint64_t at[KINDS + 1];
            at[0] = clock_mono_us();
            made_t made = create(runtimes[r], "/echo");
            at[1] = clock_mono_us();
            expect(OP_INSPECT, made.id, ENGINE_OK, "");
            at[2] = clock_mono_us();
            stream_t s = {.id = made.id};
            open_stream(&s);
            assert_string_equal(s.failure, "");
            at[3] = clock_mono_us();
            expect(OP_START, made.id, ENGINE_OK, "");
            wait_for(s.err_len == 2);
            at[4] = clock_mono_us();
            assert_true(attach_write(s.attach, "", 1));
            wait_for(s.out_len == 1);
            at[5] = clock_mono_us();
            expect(OP_REMOVE, made.id, ENGINE_OK, "");
            at[6] = clock_mono_us();
            attach_close(s.attach);
            for (int k = 0; k < KINDS && i >= 0; ++k)
                took[k][i] = at[k + 1] - at[k];
        }
        for (int k = 0; k < KINDS; ++k)
            report(runtimes[r], names[k], took[k]);
    }
}

#define LIVE(f) cmocka_unit_test_setup_teardown(f, setup_live, teardown_live)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_engine_is_told_as_such),        LIVE(images_are_found_by_name_and_by_content),
        LIVE(a_create_that_cannot_be_makes_nothing),        LIVE(containers_are_listed_by_label),
        LIVE(a_program_that_is_not_there_does_not_start),   LIVE(a_life_of_a_container),
        LIVE(a_closed_stream_leaves_the_container_running), LIVE(times_are_reported),
    };
    return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
