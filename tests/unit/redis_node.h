/*
 * A server that a thread plays: it answers each command by its first word, as the test has it, one connection after the
 * other. What it was asked is counted.
 */
#ifndef TESTS_REDIS_NODE_H
#define TESTS_REDIS_NODE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NODE_WORD_MAX = 64, NODE_ANSWER_MAX = 512 };

static const char NODE_MASTER[] = "*3\r\n$6\r\nmaster\r\n:0\r\n*0";

typedef struct {
    int port, listener;
    pthread_t thread;
    pthread_mutex_t lock;
    /* answers without their last line end; "" = none is given */
    char home[NODE_ANSWER_MAX], set[NODE_ANSWER_MAX], role[NODE_ANSWER_MAX], named[NODE_ANSWER_MAX];
    atomic_int connections, sets, asked;
    atomic_bool refuses; /* hangs up on everybody */
} node_t;

/* NULL: "+OK". */
static inline const char *node_answer(node_t *n, const char *word)
{
    if (strcmp(word, "EXISTS") == 0)
        return n->home;
    if (strcmp(word, "SET") == 0) {
        atomic_fetch_add(&n->sets, 1);
        return n->set;
    }
    if (strcmp(word, "SENTINEL") == 0) {
        atomic_fetch_add(&n->asked, 1);
        return n->named;
    }
    if (strcmp(word, "ROLE") == 0)
        return n->role;
    if (strcmp(word, "PING") == 0)
        return "+PONG";
    return strcmp(word, "SUBSCRIBE") == 0 ? "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1" : NULL;
}

static inline void node_say(node_t *n, int fd, const char *word)
{
    char line[NODE_ANSWER_MAX + 2];
    pthread_mutex_lock(&n->lock);
    const char *text = node_answer(n, word);
    int len = snprintf(line, sizeof(line), "%s\r\n", text != NULL ? text : "+OK");
    pthread_mutex_unlock(&n->lock);
    if (len > 2 && send(fd, line, (size_t)len, MSG_NOSIGNAL) != len)
        return;
}

/* Until the peer leaves. */
static inline void node_serve(node_t *n, int fd)
{
    FILE *f = fdopen(fd, "r");
    char line[256];
    while (fgets(line, sizeof(line), f) != NULL) {
        char word[NODE_WORD_MAX] = "";
        int words = line[0] == '*' ? atoi(line + 1) : 0;
        for (int i = 0; i < words; i++) {
            if (fgets(line, sizeof(line), f) == NULL || fgets(line, sizeof(line), f) == NULL)
                break;
            if (i == 0)
                snprintf(word, sizeof(word), "%.*s", (int)strcspn(line, "\r"), line);
        }
        if (word[0] != '\0')
            node_say(n, fd, word);
    }
    fclose(f);
}

static inline void *node_main(void *arg)
{
    node_t *n = arg;
    int fd;
    while ((fd = accept(n->listener, NULL, NULL)) >= 0) {
        atomic_fetch_add(&n->connections, 1);
        if (atomic_load(&n->refuses))
            close(fd);
        else
            node_serve(n, fd);
    }
    return NULL;
}

/* `where` is one of the node's answers. */
static inline void say(char *where, node_t *n, const char *text)
{
    pthread_mutex_lock(&n->lock);
    snprintf(where, NODE_ANSWER_MAX, "%s", text);
    pthread_mutex_unlock(&n->lock);
}

static inline void node_start(node_t *n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    memset(n, 0, sizeof(*n));
    pthread_mutex_init(&n->lock, NULL);
    n->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(n->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(n->listener, 16), 0);
    assert_int_equal(getsockname(n->listener, (struct sockaddr *)&a, &len), 0);
    n->port = ntohs(a.sin_port);
    say(n->home, n, ":0");
    say(n->set, n, "+OK");
    say(n->role, n, NODE_MASTER);
    assert_int_equal(pthread_create(&n->thread, NULL, node_main, n), 0);
}

/* After its connection ended. */
static inline void node_stop(node_t *n)
{
    shutdown(n->listener, SHUT_RDWR);
    pthread_join(n->thread, NULL);
    close(n->listener);
    pthread_mutex_destroy(&n->lock);
}

#endif
