/* The smoke test's host socket: a killed process's is removed by the next, nobody else's is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "backends/docker/smoke_socket.h"
#include "core/random.h"

static char dir[] = "/tmp/smoke-socket-XXXXXX";

static void path_of(const char *name, char path[108])
{
    assert_true(snprintf(path, 108, "%s/%s", dir, name) < 108);
}

static bool exists(const char *name)
{
    char path[108];
    struct stat st;
    path_of(name, path);
    return lstat(path, &st) == 0;
}

/* `age_s` seconds old. The descriptor, which may listen. */
static int make_socket(const char *name, bool is_listening, int age_s)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    path_of(name, address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    if (is_listening)
        assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(utimensat(AT_FDCWD, address.sun_path, times, 0), 0);
    return fd;
}

static void make_file(const char *name, int age_s)
{
    char path[108];
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    path_of(name, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void removes_what_a_killed_process_left(void **state)
{
    loop_t *loop = loop_create();
    (void)state;
    int listening = make_socket("smoke-00000001.sock", true, 60);
    close(make_socket("smoke-00000002.sock", true, 60));
    close(make_socket("smoke-00000003.sock", true, SMOKE_SOCKET_YOUNG_S - 2));
    int bound = make_socket("smoke-00000004.sock", false, 0);
    close(make_socket("docker.sock", true, 60));
    make_file("smoke-00000005.sock", 60);

    smoke_socket_t *host_socket = smoke_socket_open(loop, dir);
    assert_non_null(host_socket);
    assert_false(exists("smoke-00000002.sock"));
    assert_true(exists("smoke-00000001.sock")); /* somebody listens */
    assert_true(exists("smoke-00000003.sock")); /* young */
    assert_true(exists("smoke-00000004.sock")); /* about to be listened at */
    assert_true(exists("docker.sock"));
    assert_true(exists("smoke-00000005.sock")); /* no socket */
    smoke_socket_close(host_socket);
    close(listening);
    close(bound);
    loop_destroy(loop);
}

static int set_up(void **state)
{
    (void)state;
    random_init();
    return mkdtemp(dir) == NULL;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"smoke-00000001.sock", "smoke-00000003.sock", "smoke-00000004.sock",
                                        "docker.sock", "smoke-00000005.sock"};
    char path[108];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        path_of(names[i], path);
        unlink(path);
    }
    return rmdir(dir); /* and nothing else is there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(removes_what_a_killed_process_left)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
