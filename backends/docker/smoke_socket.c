#include "backends/docker/smoke_socket.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "backends/docker/smoke_report.h"
#include "core/mem.h"
#include "core/random.h"
#include "core/watch.h"

enum { SMOKE_SOCKET_MAGIC = 0x736f636b };

/* One visitor at a time; the next one ends the last. */
struct smoke_socket {
    unsigned magic;
    loop_t *loop;
    int listen_fd, visitor_fd;
    watch_t *listen, *visitor;
    struct sockaddr_un name;
    char bind[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(SMOKE_HOST_SOCKET) + 2];
};

static smoke_socket_t *check(void *data)
{
    smoke_socket_t *host_socket = data;
    if (host_socket->magic != SMOKE_SOCKET_MAGIC)
        mem_fatal("not a smoke test's socket");
    return host_socket;
}

static void end_visit(smoke_socket_t *host_socket)
{
    if (host_socket->visitor != NULL)
        watch_destroy(host_socket->visitor);
    if (host_socket->visitor_fd >= 0)
        close(host_socket->visitor_fd);
    host_socket->visitor = NULL;
    host_socket->visitor_fd = -1;
}

static void on_visitor(void *data, unsigned events)
{
    smoke_socket_t *host_socket = check(data);
    char said[4];
    (void)events;
    ssize_t n = recv(host_socket->visitor_fd, said, sizeof(said), MSG_PEEK);
    if (n > 0 && n < (ssize_t)sizeof(said))
        return; /* the rest follows, or the visitor goes */
    if (n == (ssize_t)sizeof(said) && memcmp(said, "ping", 4) == 0 &&
        send(host_socket->visitor_fd, "pong", 4, MSG_NOSIGNAL) == 4)
        shutdown(host_socket->visitor_fd, SHUT_WR);
    if (n >= 0 || (errno != EAGAIN && errno != EINTR))
        end_visit(host_socket);
}

static void on_listen(void *data, unsigned events)
{
    smoke_socket_t *host_socket = check(data);
    (void)events;
    int fd = accept4(host_socket->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    end_visit(host_socket);
    host_socket->visitor_fd = fd;
    host_socket->visitor = watch_create(host_socket->loop, fd, on_visitor, host_socket);
    if (host_socket->visitor == NULL)
        end_visit(host_socket);
    else
        watch_set(host_socket->visitor, WATCH_READ);
}

/* Whether nobody has listened at it for a while. One that is young may be about to be listened at, by another wall. */
static bool is_left_behind(const struct sockaddr_un *name)
{
    struct stat st;
    if (lstat(name->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode) || time(NULL) - st.st_mtime < SMOKE_SOCKET_YOUNG_S)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool is_refused = connect(fd, (const struct sockaddr *)name, sizeof(*name)) != 0 && errno == ECONNREFUSED;
    close(fd);
    return is_refused;
}

/* What a process that was killed could not remove (spec backend-docker 1.10). */
static void remove_left_behind(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        if (strncmp(entry->d_name, "smoke-", 6) != 0)
            continue;
        int n = snprintf(name.sun_path, sizeof(name.sun_path), "%s/%s", path, entry->d_name);
        if (n > 0 && (size_t)n < sizeof(name.sun_path) && is_left_behind(&name))
            unlink(name.sun_path);
    }
    if (dir != NULL)
        closedir(dir);
}

static bool listen_at(smoke_socket_t *host_socket, const char *dir)
{
    int n = snprintf(host_socket->name.sun_path, sizeof(host_socket->name.sun_path), "%s/smoke-%08x.sock", dir,
                     (unsigned)random_below(UINT32_MAX));
    /* A colon would end the name in a bind. */
    if (n < 0 || (size_t)n >= sizeof(host_socket->name.sun_path) || strchr(dir, ':') != NULL)
        return false;
    host_socket->name.sun_family = AF_UNIX;
    host_socket->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The guest has another number than this process. The directory is private. */
    return host_socket->listen_fd >= 0 &&
           bind(host_socket->listen_fd, (struct sockaddr *)&host_socket->name, sizeof(host_socket->name)) == 0 &&
           chmod(host_socket->name.sun_path, 0666) == 0 && listen(host_socket->listen_fd, 4) == 0;
}

smoke_socket_t *smoke_socket_open(loop_t *loop, const char *dir)
{
    smoke_socket_t *host_socket = mem_alloc(sizeof(*host_socket));
    host_socket->magic = SMOKE_SOCKET_MAGIC;
    host_socket->loop = loop;
    host_socket->listen_fd = host_socket->visitor_fd = -1;
    remove_left_behind(dir);
    if (!listen_at(host_socket, dir) ||
        (host_socket->listen = watch_create(loop, host_socket->listen_fd, on_listen, host_socket)) == NULL) {
        smoke_socket_close(host_socket);
        return NULL;
    }
    watch_set(host_socket->listen, WATCH_READ);
    snprintf(host_socket->bind, sizeof(host_socket->bind), "%s:%s", host_socket->name.sun_path, SMOKE_HOST_SOCKET);
    return host_socket;
}

const char *smoke_socket_bind(const smoke_socket_t *host_socket)
{
    return host_socket->bind;
}

void smoke_socket_close(smoke_socket_t *host_socket)
{
    end_visit(host_socket);
    if (host_socket->listen != NULL)
        watch_destroy(host_socket->listen);
    if (host_socket->listen_fd >= 0)
        close(host_socket->listen_fd);
    if (host_socket->name.sun_family == AF_UNIX)
        unlink(host_socket->name.sun_path);
    host_socket->magic = 0;
    free(host_socket);
}
