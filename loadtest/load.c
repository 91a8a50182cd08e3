/*
 * A load generator for one URL on loopback, with what wrk lacks: a fresh request ID on every request, and the stages of
 * Server-Timing read back. One thread, epoll, HTTP/1.1 with keep-alive.
 *
 *   load --port N --path P --body FILE [--token T] [--connections N] [--seconds S | --requests N] [--ids none|fresh|N]
 *        closed loop; prints one JSON object
 *   load --hold [--pace US] ...
 *        one request a connection, sent one after the other; prints {"held":N,"answered":M} and keeps them open until
 *        its standard input ends
 *
 * --ids N uses N IDs in turn, so that requests with the same one follow each other's run.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <netinet/tcp.h>

enum {
    HEAD_BYTES = 1024,        /* of a request */
    ANSWER_HEAD_BYTES = 4096, /* most of an answer's head */
    SAMPLES_MAX = 20000000,   /* 80 MB each kind: above what a minute can bring */
    STATUS_MAX = 600,
    EVENTS = 256,
    ID_LEN = 32,
    HOLD_PACE_US = 50,       /* between two held requests: 20,000 a second */
    HOLD_SETTLE_US = 500000, /* for the last ones to arrive */
    STAGES = 5,
};

static const char *const STAGE_NAMES[STAGES] = {"auth", "claim", "queue", "execute", "settle"};

typedef struct {
    int fd;
    char head[HEAD_BYTES];
    size_t head_len, sent;
    char answer[ANSWER_HEAD_BYTES];
    size_t answer_len;
    bool has_head, closes, is_waiting;
    int status;
    uint64_t body_left, began_us;
} conn_t;

static struct {
    uint16_t port;
    const char *path, *token, *ids;
    char *body;
    size_t body_len;
    uint64_t connections, seconds, requests, id_count, pace_us;
    bool hold;
} want = {
    .port = 8746, .path = "/", .token = "", .ids = "none", .connections = 4, .seconds = 5, .pace_us = HOLD_PACE_US};

static struct {
    uint64_t began, ended, broken, statuses[STATUS_MAX];
    uint32_t *took_us, *own_us, *stage_us[STAGES];
    size_t took_count, own_count;
} seen;

static int epoll_fd;
static uint64_t id_prefix, deadline_us;

static void fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* --- requests --- */

static bool is_over(void)
{
    return want.requests != 0 ? seen.began >= want.requests : now_us() >= deadline_us;
}

static void set_head(conn_t *conn)
{
    char id[96] = "", authorization[512] = "";
    uint64_t number = want.id_count != 0 ? seen.began % want.id_count : seen.began;
    if (strcmp(want.ids, "none") != 0)
        snprintf(id, sizeof(id), "Plimsoll-Request-Id: %016" PRIx64 "%016" PRIx64 "\r\n", id_prefix, number);
    if (want.token[0] != '\0')
        snprintf(authorization, sizeof(authorization), "Authorization: Bearer %s\r\n", want.token);
    int len = snprintf(conn->head, sizeof(conn->head),
                       "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Type: application/json\r\n%sContent-Length: "
                       "%zu\r\n\r\n",
                       want.path, authorization, id, want.body_len);
    if (len < 0 || (size_t)len >= sizeof(conn->head)) {
        fprintf(stderr, "load: the head is too long\n");
        exit(2);
    }
    conn->head_len = (size_t)len;
}

static void wait_for(conn_t *conn, uint32_t events, int op)
{
    struct epoll_event event = {.events = events, .data.ptr = conn};
    if (epoll_ctl(epoll_fd, op, conn->fd, &event) != 0)
        fail("epoll_ctl");
}

/* The rest of the request, as far as the socket takes it. False when the connection is broken. */
static bool send_more(conn_t *conn)
{
    while (conn->sent < conn->head_len + want.body_len) {
        struct iovec parts[2];
        int count = 0;
        if (conn->sent < conn->head_len)
            parts[count++] = (struct iovec){conn->head + conn->sent, conn->head_len - conn->sent};
        size_t of_body = conn->sent > conn->head_len ? conn->sent - conn->head_len : 0;
        if (of_body < want.body_len)
            parts[count++] = (struct iovec){want.body + of_body, want.body_len - of_body};
        ssize_t n = writev(conn->fd, parts, count);
        if (n < 0 && errno == EAGAIN) {
            wait_for(conn, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return true;
        }
        if (n < 0)
            return false;
        conn->sent += (size_t)n;
    }
    return true;
}

static bool begin(conn_t *conn)
{
    set_head(conn);
    ++seen.began;
    conn->sent = conn->answer_len = 0;
    conn->has_head = false;
    conn->is_waiting = true;
    conn->began_us = now_us();
    return send_more(conn);
}

static void connect_now(conn_t *conn)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(want.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if ((conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        fail("socket");
    if (connect(conn->fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        fail("connect");
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(conn->fd, F_SETFL, O_NONBLOCK);
    wait_for(conn, EPOLLIN, EPOLL_CTL_ADD);
}

/* --- answers --- */

static const char *field(const conn_t *conn, const char *name)
{
    const char *at = strcasestr(conn->answer, name);
    return at != NULL ? at + strlen(name) : NULL;
}

/* The stages of Server-Timing, and the gateway's own share of the time: every one but the execution. */
static void take_timing(const conn_t *conn)
{
    const char *at = field(conn, "\r\nServer-Timing:");
    double own_ms = 0, ms;
    char stage[32];
    int used;
    if (at == NULL || seen.own_count == SAMPLES_MAX)
        return;
    while (sscanf(at, " %31[a-z];dur=%lf%n", stage, &ms, &used) == 2) {
        if (strcmp(stage, "execute") != 0)
            own_ms += ms;
        for (size_t i = 0; i < STAGES; ++i) {
            if (strcmp(stage, STAGE_NAMES[i]) == 0)
                seen.stage_us[i][seen.own_count] = (uint32_t)(ms * 1000);
        }
        at += used;
        at += *at == ',';
    }
    seen.own_us[seen.own_count++] = (uint32_t)(own_ms * 1000);
}

/* False: no HTTP answer. */
static bool read_head(conn_t *conn)
{
    conn->answer[conn->answer_len] = '\0';
    char *end = strstr(conn->answer, "\r\n\r\n");
    if (end == NULL)
        return conn->answer_len < sizeof(conn->answer) - 1;
    const char *length = field(conn, "\r\nContent-Length:"), *connection = field(conn, "\r\nConnection:");
    if (sscanf(conn->answer, "HTTP/1.1 %d", &conn->status) != 1 || conn->status < 0 || conn->status >= STATUS_MAX ||
        length == NULL || length > end)
        return false;
    uint64_t have = conn->answer_len - (size_t)(end + 4 - conn->answer), body = strtoull(length, NULL, 10);
    if (have > body)
        return false;
    conn->has_head = true;
    conn->body_left = body - have;
    conn->closes = connection != NULL && connection < end && strncasecmp(connection, " close", 6) == 0;
    return true;
}

static void reopen(conn_t *conn)
{
    close(conn->fd);
    connect_now(conn);
}

static void answered(conn_t *conn)
{
    ++seen.ended;
    ++seen.statuses[conn->status];
    if (want.hold && seen.ended == 1)
        fprintf(stderr, "load: a request to be held was answered: %s\n", conn->answer);
    conn->is_waiting = false;
    if (seen.took_count < SAMPLES_MAX)
        seen.took_us[seen.took_count++] = (uint32_t)(now_us() - conn->began_us);
    take_timing(conn);
    if (conn->closes)
        reopen(conn);
    if (!is_over() && !want.hold && !begin(conn))
        fail("send");
}

/* The connection ended under a request: the request is counted, and another is begun on a new connection. */
static void broke(conn_t *conn)
{
    seen.broken += conn->is_waiting;
    conn->is_waiting = false;
    reopen(conn);
    if (!is_over() && !want.hold && !begin(conn))
        fail("send");
}

static void on_readable(conn_t *conn)
{
    static char rest[65536];
    ssize_t n = !conn->has_head
                    ? read(conn->fd, conn->answer + conn->answer_len, sizeof(conn->answer) - 1 - conn->answer_len)
                    : read(conn->fd, rest, conn->body_left < sizeof(rest) ? conn->body_left : sizeof(rest));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !conn->is_waiting) {
        broke(conn);
        return;
    }
    if (conn->has_head) {
        conn->body_left -= (uint64_t)n;
    } else {
        conn->answer_len += (size_t)n;
        if (!read_head(conn)) {
            fprintf(stderr, "load: not an answer: %.200s\n", conn->answer);
            exit(1);
        }
    }
    if (conn->has_head && conn->body_left == 0)
        answered(conn);
}

static void on_event(const struct epoll_event *event)
{
    conn_t *conn = event->data.ptr;
    if ((event->events & EPOLLOUT) != 0) {
        wait_for(conn, EPOLLIN, EPOLL_CTL_MOD);
        if (!send_more(conn)) {
            broke(conn);
            return;
        }
    }
    if ((event->events & ~(unsigned)EPOLLOUT) != 0)
        on_readable(conn);
}

static void run_events(int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(epoll_fd, events, EVENTS, timeout_ms);
    if (n < 0 && errno != EINTR)
        fail("epoll_wait");
    for (int i = 0; i < n; ++i)
        on_event(&events[i]);
}

/* --- the two ways of loading --- */

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t at_share(const uint32_t *sorted, size_t count, double share)
{
    return count != 0 ? sorted[(size_t)((double)(count - 1) * share)] : 0;
}

static void print_statuses(void)
{
    const char *comma = "";
    printf("\"status\":{");
    for (int i = 0; i < STATUS_MAX; ++i) {
        if (seen.statuses[i] == 0)
            continue;
        printf("%s\"%d\":%" PRIu64, comma, i, seen.statuses[i]);
        comma = ",";
    }
    printf("}}\n");
}

static void print_all(double seconds)
{
    qsort(seen.took_us, seen.took_count, sizeof(*seen.took_us), by_size);
    qsort(seen.own_us, seen.own_count, sizeof(*seen.own_us), by_size);
    printf("{\"requests\":%" PRIu64 ",\"seconds\":%.3f,\"rate\":%.1f,\"broken\":%" PRIu64, seen.ended, seconds,
           (double)seen.ended / seconds, seen.broken);
    printf(",\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u", at_share(seen.took_us, seen.took_count, 0.5),
           at_share(seen.took_us, seen.took_count, 0.99), at_share(seen.took_us, seen.took_count, 1));
    printf(",\"own_count\":%zu,\"own_p50_us\":%u,\"own_p99_us\":%u,", seen.own_count,
           at_share(seen.own_us, seen.own_count, 0.5), at_share(seen.own_us, seen.own_count, 0.99));
    printf("\"stages_p50_us\":{");
    for (size_t i = 0; i < STAGES; ++i) {
        qsort(seen.stage_us[i], seen.own_count, sizeof(*seen.stage_us[i]), by_size);
        printf("%s\"%s\":%u", i > 0 ? "," : "", STAGE_NAMES[i], at_share(seen.stage_us[i], seen.own_count, 0.5));
    }
    printf("},");
    print_statuses();
}

static void loop_closed(conn_t *conns)
{
    uint64_t start_us = now_us(), give_up_us;
    deadline_us = start_us + want.seconds * 1000000;
    give_up_us = deadline_us + 60 * 1000000ull;
    for (uint64_t i = 0; i < want.connections && !is_over(); ++i)
        if (!begin(&conns[i]))
            fail("send");
    while ((!is_over() || seen.ended + seen.broken < seen.began) && now_us() < give_up_us)
        run_events(100);
    print_all((double)(now_us() - start_us) / 1e6);
}

static void hold(conn_t *conns)
{
    char byte;
    for (uint64_t i = 0; i < want.connections; ++i) {
        uint64_t next_us = now_us() + want.pace_us;
        if (!begin(&conns[i]))
            fail("send");
        do
            run_events(0);
        while (now_us() < next_us);
    }
    for (uint64_t until_us = now_us() + HOLD_SETTLE_US; now_us() < until_us;)
        run_events(10);
    printf("{\"held\":%" PRIu64 ",\"answered\":%" PRIu64 ",\"broken\":%" PRIu64 ",",
           want.connections - seen.ended - seen.broken, seen.ended, seen.broken);
    print_statuses();
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
}

/* --- the start --- */

static void read_body(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t cap = 0;
    ssize_t len;
    if (file == NULL || (len = getdelim(&want.body, &cap, EOF, file)) < 0)
        fail(path);
    want.body_len = (size_t)len;
    fclose(file);
}

static uint64_t number_of(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value == 0 || value > UINT32_MAX) {
        fprintf(stderr, "load: not a number from 1: %s\n", text);
        exit(2);
    }
    return value;
}

static void read_arguments(int argc, char **argv)
{
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"path", required_argument, NULL, 'u'},
                                            {"body", required_argument, NULL, 'b'},
                                            {"token", required_argument, NULL, 't'},
                                            {"connections", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"requests", required_argument, NULL, 'n'},
                                            {"ids", required_argument, NULL, 'i'},
                                            {"hold", no_argument, NULL, 'h'},
                                            {"pace", required_argument, NULL, 'w'},
                                            {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p':
            want.port = (uint16_t)number_of(optarg);
            break;
        case 'u':
            want.path = optarg;
            break;
        case 'b':
            read_body(optarg);
            break;
        case 't':
            want.token = optarg;
            break;
        case 'c':
            want.connections = number_of(optarg);
            break;
        case 's':
            want.seconds = number_of(optarg);
            break;
        case 'n':
            want.requests = number_of(optarg);
            break;
        case 'i':
            want.ids = optarg;
            if (strcmp(optarg, "none") != 0 && strcmp(optarg, "fresh") != 0)
                want.id_count = number_of(optarg);
            break;
        case 'w':
            want.pace_us = number_of(optarg);
            break;
        case 'h':
            want.hold = true;
            break;
        default:
            exit(2);
        }
    }
    if (want.body == NULL) {
        fprintf(stderr, "load: --body is missing\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    conn_t *conns = calloc(want.connections, sizeof(*conns));
    seen.took_us = calloc(SAMPLES_MAX, sizeof(*seen.took_us)); /* pages are taken as they are used */
    seen.own_us = calloc(SAMPLES_MAX, sizeof(*seen.own_us));
    for (size_t i = 0; i < STAGES; ++i) {
        if ((seen.stage_us[i] = calloc(SAMPLES_MAX, sizeof(*seen.stage_us[i]))) == NULL)
            fail("calloc");
    }
    if (conns == NULL || seen.took_us == NULL || seen.own_us == NULL || (epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        getrandom(&id_prefix, sizeof(id_prefix), 0) != sizeof(id_prefix))
        fail("start");
    for (uint64_t i = 0; i < want.connections; ++i)
        connect_now(&conns[i]);
    if (want.hold)
        hold(conns);
    else
        loop_closed(conns);
    return 0;
}
