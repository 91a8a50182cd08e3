/* Where roles meet: Unix stream sockets only this user can open. */
#include "core/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    SOCKET_MODE = 0600,
    SOCKET_BACKLOG = 128, /* connects that may wait for accept; roles connect once each */
};

static int unix_address(const char *path, struct sockaddr_un *out)
{
    size_t len = strlen(path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len == 0 || len >= sizeof(out->sun_path)) {
        errno = len == 0 ? ENOENT : ENAMETOOLONG;
        return -1;
    }
    memcpy(out->sun_path, path, len);
    return 0;
}

static int close_keeping_errno(int fd)
{
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Only a socket is replaced: a path given by mistake must not cost a file. */
static bool is_free_for_a_socket(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT;
    if (!S_ISSOCK(st.st_mode)) {
        errno = EEXIST;
        return false;
    }
    return unlink(path) == 0 || errno == ENOENT;
}

int ipc_listen(const char *path)
{
    struct sockaddr_un address;
    if (unix_address(path, &address) != 0 || !is_free_for_a_socket(path))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* The mode is set before bind, so there is no moment at which others could connect; chmod undoes a umask that took
     * more. */
    if (fchmod(fd, SOCKET_MODE) != 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        chmod(path, SOCKET_MODE) != 0 || listen(fd, SOCKET_BACKLOG) != 0)
        return close_keeping_errno(fd);
    return fd;
}

int ipc_connect(const char *path)
{
    struct sockaddr_un address;
    if (unix_address(path, &address) != 0)
        return -1;
    /* non-blocking: a listener whose backlog is full answers EAGAIN instead of making us wait */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return close_keeping_errno(fd);
    return fd;
}
