#include "gateway/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/limits.h"

static int bind_one(const struct addrinfo *ai)
{
    int on = 1, off = 0;
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    /* accepted sockets inherit it: small answers are not held back */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int listener_bind(const char *setting, const char *address, problems_t *problems)
{
    char host[256], service[8];
    uint16_t port;
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int fd = -1;
    if (!address_parse(address, host, &port)) {
        problems_add(problems, "%s: %s is not an address", setting, address);
        return -1;
    }
    snprintf(service, sizeof(service), "%u", port);
    int err = getaddrinfo(host[0] != '\0' ? host : NULL, service, &hints, &list);
    if (err != 0) {
        problems_add(problems, "%s: %s cannot be resolved (%s)", setting, address, gai_strerror(err));
        return -1;
    }
    /* with no host, the v6 wildcard serves v4 too; it is not always listed first */
    for (int pass = 0; pass < 2 && fd < 0; pass++)
        for (struct addrinfo *ai = list; ai != NULL && fd < 0; ai = ai->ai_next)
            if (host[0] != '\0' || (ai->ai_family == AF_INET6) == (pass == 0))
                fd = bind_one(ai);
    if (fd < 0)
        problems_add(problems, "%s: cannot listen on %s (%s)", setting, address, strerror(errno));
    freeaddrinfo(list);
    return fd;
}
