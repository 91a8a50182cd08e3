/* The command around every guest command, really run under each shell that an image may have (spec 4.3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/dockercloud/wrapper.h"
#include "core/sha256.h"

enum { OUTPUT_MAX = 1 << 20, CAP = 100, RUN_MAX_S = 30 };

/* A shell as argv[0] (and an applet's name), and the PATH it finds its tools in. */
typedef struct {
    const char *name, *program, *applet, *path;
} shell_t;

static char busybox_bin[] = "/tmp/test-wrapper-XXXXXX", no_head_bin[] = "/tmp/test-wrapper-XXXXXX";
static shell_t shells[3];
static size_t shell_count;

typedef struct {
    int exit_code;
    char *out, *err;
    size_t out_len, err_len;
    double seconds;
} ran_t;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void start(const shell_t *shell, const wrapper_t *wrapper, const int out[2], const int err[2])
{
    const char *argv[WRAPPER_ARGV_MAX + 3];
    size_t n = 0;
    argv[n++] = shell->applet != NULL ? "busybox" : "sh";
    if (shell->applet != NULL)
        argv[n++] = shell->applet;
    for (size_t i = 1; wrapper->argv[i] != NULL; ++i)
        argv[n++] = wrapper->argv[i];
    argv[n] = NULL;
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (int fd = 3; fd < 32; ++fd)
        close(fd);
    setenv("PATH", shell->path, 1);
    signal(SIGPIPE, SIG_DFL);
    execv(shell->program, (char *const *)argv);
    _exit(126);
}

/* Reads both until both are closed. */
static void drain(const int fds[2], ran_t *ran)
{
    struct pollfd polls[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
    char *to[2] = {ran->out, ran->err};
    size_t *len[2] = {&ran->out_len, &ran->err_len};
    while (polls[0].fd >= 0 || polls[1].fd >= 0) {
        assert_true(poll(polls, 2, RUN_MAX_S * 1000) > 0);
        for (int i = 0; i < 2; ++i) {
            if (polls[i].fd < 0 || polls[i].revents == 0)
                continue;
            ssize_t n = read(polls[i].fd, to[i] + *len[i], OUTPUT_MAX - *len[i]);
            assert_true(n >= 0);
            *len[i] += (size_t)n;
            if (n == 0)
                polls[i].fd = -1;
        }
    }
}

static void run(const shell_t *shell, const cloud_command_t *command, uint32_t limit_ms, size_t cap, ran_t *ran)
{
    int out[2], err[2], status;
    wrapper_t wrapper;
    double began = now();

    *ran = (ran_t){.out = calloc(1, OUTPUT_MAX + 1), .err = calloc(1, OUTPUT_MAX + 1)};
    wrapper_make(&wrapper, command, limit_ms, cap);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    pid_t pid = fork();
    if (pid == 0)
        start(shell, &wrapper, out, err);
    close(out[1]);
    close(err[1]);
    const int fds[2] = {out[0], err[0]};
    drain(fds, ran);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    ran->exit_code = WEXITSTATUS(status);
    ran->seconds = now() - began;
    close(out[0]);
    close(err[0]);
}

static void done(ran_t *ran)
{
    free(ran->out);
    free(ran->err);
}

#define SH(text)                                                                                                       \
    {                                                                                                                  \
        .argv = {"sh", "-c", text}, .argc = 3                                                                          \
    }

static void ends_as_the_command_does(void **state)
{
    const cloud_command_t command = SH("echo out; echo err >&2; exit 3");
    (void)state;
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        run(&shells[i], &command, 10000, CAP, &ran);
        print_message("%s\n", shells[i].name);
        assert_int_equal(ran.exit_code, 3);
        assert_string_equal(ran.out, "out\n");
        assert_string_equal(ran.err, "err\n");
        done(&ran);
    }
}

static void is_ended_at_its_limit(void **state)
{
    const cloud_command_t command = SH("printf A; printf E >&2; trap '' TERM INT HUP; while :; do sleep 1; done");
    (void)state;
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        run(&shells[i], &command, 1300, CAP, &ran);
        print_message("%s: %.3f s\n", shells[i].name, ran.seconds);
        assert_int_equal(ran.exit_code, WRAPPER_KILLED);
        assert_string_equal(ran.out, "A");
        assert_string_equal(ran.err, "E");
        /* a sleep that is left holds the streams for a second at most */
        assert_true(ran.seconds >= 1.0 && ran.seconds < 5.0);
        done(&ran);
    }
}

static void each_stream_is_cut_at_its_cap(void **state)
{
    static const cloud_command_t floods[] = {SH("exec yes"), SH("exec yes >&2"), SH("yes & exec yes >&2")};
    (void)state;
    for (size_t i = 0; i < shell_count; ++i)
        for (size_t k = 0; k < 3; ++k) {
            ran_t ran;
            run(&shells[i], &floods[k], 10000, CAP, &ran);
            assert_int_equal(ran.out_len, k != 1 ? CAP : 0);
            assert_int_equal(ran.err_len, k != 0 ? CAP : 0);
            assert_int_equal(ran.exit_code, 141);
            assert_true(ran.seconds < 8);
            done(&ran);
        }
}

static void a_whole_output_is_told_from_one_that_was_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < shell_count; ++i)
        for (int size = CAP - 1; size <= CAP + 1; ++size) {
            char text[64];
            snprintf(text, sizeof(text), "head -c %d /dev/zero", size);
            const cloud_command_t command = SH(text);
            ran_t ran;
            run(&shells[i], &command, 10000, CAP, &ran);
            assert_int_equal(ran.out_len, size < CAP ? size : CAP);
            done(&ran);
        }
}

static void what_is_not_there(void **state)
{
    static const cloud_command_t command = {.argv = {"no-such-command"}, .argc = 1};
    (void)state;
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        run(&shells[i], &command, 10000, CAP, &ran);
        assert_int_equal(ran.exit_code, WRAPPER_TOOL_MISSING);
        assert_int_equal(ran.out_len, 0);
        done(&ran);
    }
}

/* With a FIFO and nobody to read it, this would wait for ever. */
static void a_tool_that_is_not_there(void **state)
{
    static const cloud_command_t command = SH("echo hello");
    (void)state;
    shell_t shell = {.name = "dash", .program = shells[0].program, .path = no_head_bin};
    ran_t ran;
    run(&shell, &command, 10000, CAP, &ran);
    assert_int_equal(ran.exit_code, WRAPPER_TOOL_MISSING);
    assert_int_equal(ran.out_len, 0);
    assert_true(ran.seconds < 5);
    done(&ran);
}

static void arguments_arrive_as_they_are(void **state)
{
    static const cloud_command_t command = {.argv = {"printf", "%s|", "a b", "$(echo x)", "'", "\"", "-n", ""},
                                            .argc = 8};
    (void)state;
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        run(&shells[i], &command, 10000, CAP, &ran);
        assert_string_equal(ran.out, "a b|$(echo x)|'|\"|-n||");
        done(&ran);
    }
}

static void leaves_nothing_behind(void **state)
{
    static const cloud_command_t command = SH("readlink /proc/$$/fd/1"); /* the pipe that its stdout is */
    (void)state;
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        run(&shells[i], &command, 10000, CAP, &ran);
        assert_int_equal(strncmp(ran.out, "/tmp/.gwx.", 10), 0);
        ran.out[strcspn(ran.out, "\n")] = '\0';
        assert_int_not_equal(access(ran.out, F_OK), 0);
        *strrchr(ran.out, '/') = '\0';
        assert_int_not_equal(access(ran.out, F_OK), 0);
        done(&ran);
    }
}

static void stdin_is_empty(void **state)
{
    static const cloud_command_t command = SH("cat; echo end");
    (void)state;
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        run(&shells[i], &command, 10000, CAP, &ran);
        assert_string_equal(ran.out, "end\n");
        done(&ran);
    }
}

static void limits_as_text(void **state)
{
    static const struct {
        uint32_t ms;
        const char *text;
    } table[] = {{1000, "1"}, {1, "0.100"}, {100, "0.100"}, {1999, "1.999"}, {30000, "30"}, {270001, "270.001"}};
    static const cloud_command_t command = {.argv = {"node", "x.mjs"}, .argc = 2, .cwd = "/tmp"};
    wrapper_t wrapper;
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        wrapper_make(&wrapper, &command, table[i].ms, 65537);
        assert_string_equal(wrapper.argv[0], "sh");
        assert_string_equal(wrapper.argv[3], "gwx");
        assert_string_equal(wrapper.argv[4], table[i].text);
        assert_string_equal(wrapper.argv[5], "65537");
        assert_string_equal(wrapper.argv[6], "node");
        assert_string_equal(wrapper.argv[7], "x.mjs");
        assert_null(wrapper.argv[8]);
    }
}

/* --- what was uploaded --- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int verify(const shell_t *shell, const char *list, const char *sum, ran_t *ran)
{
    const cloud_command_t command = {.argv = {"sh", "-c", WRAPPER_VERIFY, "gwv", sum, list}, .argc = 6};
    run(shell, &command, 10000, 4096, ran);
    return ran->exit_code;
}

static void files_are_looked_at(void **state)
{
    char dir[] = "/tmp/test-verify-XXXXXX", path[64], list[64], text[256], hex[SHA256_HEX + 1], sum[SHA256_HEX + 1];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/a b\xc3\xa9.txt", dir);
    snprintf(list, sizeof(list), "%s/sums", dir);
    sha256_hex("whole", 5, hex);
    snprintf(text, sizeof(text), "%s  %s\n", hex, path);
    sha256_hex(text, strlen(text), sum);
    for (size_t i = 0; i < shell_count; ++i) {
        ran_t ran;
        write_file(path, "whole");
        write_file(list, text);
        assert_int_equal(verify(&shells[i], list, sum, &ran), 0);
        done(&ran);
        assert_int_not_equal(access(list, F_OK), 0); /* it is taken away again */
        write_file(path, "");
        write_file(list, text);
        assert_int_equal(verify(&shells[i], list, sum, &ran), 1);
        assert_non_null(strstr(ran.out, ": FAILED"));
        assert_non_null(strstr(ran.out, path));
        done(&ran);
        unlink(path);
        assert_int_equal(verify(&shells[i], list, sum, &ran), 1);
        done(&ran);
        /* a list that is itself cut proves nothing */
        write_file(path, "whole");
        write_file(list, "");
        assert_int_equal(verify(&shells[i], list, sum, &ran), 1);
        done(&ran);
        unlink(list);
        assert_int_equal(verify(&shells[i], list, sum, &ran), 1);
        done(&ran);
    }
    unlink(path);
    rmdir(dir);
}

/* --- the shells --- */

enum { PROGRAM_MAX = 64 };

static bool find_program(const char *name, char out[PROGRAM_MAX])
{
    static const char *const places[] = {"/usr/bin", "/bin"};
    for (size_t i = 0; i < 2; ++i) {
        snprintf(out, PROGRAM_MAX, "%s/%s", places[i], name);
        if (access(out, X_OK) == 0)
            return true;
    }
    return false;
}

/* A folder with these tools alone, as links to `to` or to the system's own. */
static void make_bin(char *dir, const char *const *tools, const char *to)
{
    char link[128], own[PROGRAM_MAX];
    assert_non_null(mkdtemp(dir));
    for (; *tools != NULL; ++tools) {
        snprintf(link, sizeof(link), "%s/%s", dir, *tools);
        assert_true(to != NULL || find_program(*tools, own));
        assert_int_equal(symlink(to != NULL ? to : own, link), 0);
    }
}

static int set_up(void **state)
{
    static const char *const applets[] = {"sh",  "timeout", "head",     "mktemp", "mkfifo",    "rm", "sleep",
                                          "yes", "cat",     "readlink", "printf", "sha256sum", NULL};
    static const char *const some[] = {"sh", "timeout", "mktemp", "mkfifo", "rm", NULL};
    (void)state;
    static char dash[PROGRAM_MAX], bash[PROGRAM_MAX], busybox[PROGRAM_MAX];
    assert_true(find_program("dash", dash));
    shells[shell_count++] = (shell_t){"dash", dash, NULL, "/usr/bin:/bin"};
    if (find_program("bash", bash))
        shells[shell_count++] = (shell_t){"bash", bash, NULL, "/usr/bin:/bin"};
    make_bin(no_head_bin, some, NULL);
    if (find_program("busybox", busybox)) {
        make_bin(busybox_bin, applets, busybox);
        shells[shell_count++] = (shell_t){"busybox", busybox, "sh", busybox_bin};
    } else {
        print_message("no busybox here: its shell is left out\n");
    }
    return 0;
}

static void remove_bin(const char *dir)
{
    char command[128];
    if (strstr(dir, "XXXXXX") != NULL)
        return;
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static int tear_down(void **state)
{
    (void)state;
    remove_bin(busybox_bin);
    remove_bin(no_head_bin);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_as_the_command_does),
        cmocka_unit_test(is_ended_at_its_limit),
        cmocka_unit_test(each_stream_is_cut_at_its_cap),
        cmocka_unit_test(a_whole_output_is_told_from_one_that_was_cut),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(a_tool_that_is_not_there),
        cmocka_unit_test(arguments_arrive_as_they_are),
        cmocka_unit_test(leaves_nothing_behind),
        cmocka_unit_test(stdin_is_empty),
        cmocka_unit_test(limits_as_text),
        cmocka_unit_test(files_are_looked_at),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
