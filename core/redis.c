#include "core/redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/evp.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/redis_link.h"

enum {
    REDIS_MAGIC = 0x72656469,
    COMMAND_MAGIC = 0x636f6d6d,
    SHA1_BYTES = 20,
    ARGUMENT_FRAME = 32, /* "$", a 20-digit length, two CRLF, and slack: what the protocol adds to one argument */
    ARGUMENTS_MAX = 1024 * 1024, /* what the server takes in one command */
};

typedef struct command {
    unsigned magic;
    redis_t *redis;
    redis_cb cb; /* NULL: our own question whether the server is there */
    void *data;
    uint64_t due_at;           /* monotonic ms */
    size_t bytes;              /* counted against REDIS_OUTPUT_MAX */
    bool is_overdue;           /* told at its deadline, still held by hiredis */
    struct command_list *list; /* where its callback is still owed from; NULL = it was called */
    struct command *next, *prev;
    /* EVALSHA only: how to send it as EVAL. `tail` is the protocol's text after the script. */
    const redis_script_t *script;
    int argument_count;
    size_t tail_len;
    char tail[];
} command_t;

typedef struct command_list {
    command_t *head, *tail;
} command_list_t;

/*
 * A command whose callback is owed is in exactly one list. Its memory belongs to hiredis from being sent until hiredis'
 * one callback for it, whatever became of our own: an overdue command is answered to its caller at the deadline and
 * freed when the reply (dropped) or the connection's end arrives.
 */
struct redis {
    unsigned magic;
    redis_link_t link;
    void (*on_state)(void *data, bool up, const char *reason);
    void *data;
    command_list_t sent;    /* on the connection, waiting for its reply or its deadline */
    command_list_t overdue; /* past the deadline, in the moment between being found and being told */
    command_list_t unsent;  /* REDIS_NOT_SENT, told at the end of the tick */
    size_t in_flight;       /* commands hiredis holds, overdue ones included */
    size_t overdue_count;   /* those of them whose callers were told at the deadline */
    size_t bytes_in_flight;
    loop_timer_t deadline; /* runs for the earliest deadline seen; a command that was answered leaves it as it is */
    uint64_t deadline_at;  /* UINT64_MAX = not running */
    loop_task_t tell_unsent;
    bool refusing;  /* the connection is about to be dropped: nothing more goes onto it */
    bool asks_role; /* until this connection's server did not tell it */
    /* of failed attempts: two, as a host's two addresses may fail by turns */
    char last_reason[LINK_REASON_MAX], reason_before[LINK_REASON_MAX];
};

static void redis_check(const redis_t *r)
{
    if (r == NULL || r->magic != REDIS_MAGIC)
        mem_fatal("not a redis connection");
}

static void list_add(command_list_t *list, command_t *c)
{
    c->list = list;
    c->next = NULL;
    c->prev = list->tail;
    if (list->tail != NULL)
        list->tail->next = c;
    else
        list->head = c;
    list->tail = c;
}

static void list_remove(command_t *c)
{
    command_list_t *list = c->list;
    *(c->prev != NULL ? &c->prev->next : &list->head) = c->next;
    *(c->next != NULL ? &c->next->prev : &list->tail) = c->prev;
    c->list = NULL;
}

static bool is_owed(const command_t *c)
{
    return c->list != NULL;
}

static void tell(command_t *c, redis_status_t status, const redisReply *reply, const char *err)
{
    list_remove(c);
    if (c->cb != NULL)
        c->cb(c->data, status, reply, err);
}

/* --- not sent --- */

static void free_command(command_t *c)
{
    c->magic = 0;
    free(c);
}

static void tell_unsent(redis_t *r)
{
    while (r->unsent.head != NULL) {
        command_t *c = r->unsent.head;
        tell(c, REDIS_NOT_SENT, NULL, NULL);
        free_command(c);
    }
}

static void on_tell_unsent(loop_task_t *task)
{
    redis_t *r = task->data;
    redis_check(r);
    redis_link_hold(&r->link);
    tell_unsent(r);
    redis_link_release(&r->link);
}

static void fail_unsent(redis_t *r, command_t *c)
{
    list_add(&r->unsent, c);
    if (r->link.state != LINK_DEAD)
        loop_defer(r->link.loop, &r->tell_unsent);
}

/* --- deadlines --- */

static void watch_deadline(redis_t *r, uint64_t due_at, uint64_t now)
{
    if (due_at >= r->deadline_at)
        return;
    r->deadline_at = due_at;
    loop_timer_start(r->link.loop, &r->deadline, due_at > now ? due_at - now : 0);
}

static void on_deadline(loop_timer_t *timer)
{
    redis_t *r = timer->data;
    redis_check(r);
    uint64_t now = clock_mono_ms(), earliest = UINT64_MAX;
    redis_link_hold(&r->link);
    for (command_t *c = r->sent.head, *next; c != NULL; c = next) {
        next = c->next;
        if (c->due_at <= now) {
            list_remove(c);
            list_add(&r->overdue, c);
            c->is_overdue = true;
            r->overdue_count++;
        } else if (c->due_at < earliest) {
            earliest = c->due_at;
        }
    }
    r->deadline_at = UINT64_MAX;
    watch_deadline(r, earliest, now);
    while (r->overdue.head != NULL)
        tell(r->overdue.head, REDIS_UNKNOWN, NULL, NULL);
    redis_link_release(&r->link);
}

/* --- replies --- */

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The server is no longer the one to write to. Servers before 7 wrap what a script's command was told into a text of
 * their own. */
static bool is_wrong_server(const char *text)
{
    return starts_with(text, "READONLY") || starts_with(text, "LOADING") || starts_with(text, "MASTERDOWN") ||
           (starts_with(text, "ERR Error running script") && strstr(text, "-READONLY ") != NULL);
}

static bool resend_as_eval(command_t *c);

static void on_refusal(command_t *c, const char *text)
{
    redis_t *r = c->redis;
    bool has_moved = starts_with(text, "MOVED "), must_drop = has_moved || is_wrong_server(text);
    r->refusing = r->refusing || must_drop; /* a retry out of the callback must not meet the same server */
    tell(c, REDIS_REFUSED, NULL, text);
    if (has_moved)
        redis_link_follow(&r->link, text);
    else if (must_drop)
        redis_link_fail(&r->link, text);
}

/* hiredis calls this exactly once for every command it took: with the reply, or with NULL when the connection ends. */
static void on_reply(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    command_t *c = privdata;
    redis_t *r = c->redis;
    (void)ac;
    if (c->magic != COMMAND_MAGIC)
        mem_fatal("not a redis command");
    redis_check(r);
    redis_link_hold(&r->link);
    r->in_flight--;
    r->bytes_in_flight -= c->bytes;
    r->overdue_count -= c->is_overdue;
    if (is_owed(c)) {
        if (reply == NULL)
            tell(c, REDIS_UNKNOWN, NULL, NULL);
        else if (reply->type != REDIS_REPLY_ERROR)
            tell(c, REDIS_REPLY, reply, NULL);
        else if (starts_with(reply->str, "NOSCRIPT") && c->script != NULL && resend_as_eval(c))
            goto Resent;
        else
            on_refusal(c, reply->str);
    }
    free_command(c);
Resent:
    redis_link_release(&r->link);
}

/* --- sending --- */

static bool has_room(const redis_t *r, size_t bytes)
{
    return r->in_flight < REDIS_PENDING_MAX && bytes <= REDIS_OUTPUT_MAX &&
           r->bytes_in_flight <= REDIS_OUTPUT_MAX - bytes;
}

static bool may_send(const redis_t *r, size_t bytes)
{
    return redis_link_is_up(&r->link) && !r->refusing && has_room(r, bytes);
}

static void count_sent(command_t *c)
{
    redis_t *r = c->redis;
    r->in_flight++;
    r->bytes_in_flight += c->bytes;
}

static command_t *new_command(redis_t *r, uint32_t deadline_ms, redis_cb cb, void *data, size_t tail_len)
{
    command_t *c = mem_realloc(NULL, sizeof(*c) + tail_len);
    *c = (command_t){.magic = COMMAND_MAGIC, .redis = r, .cb = cb, .data = data, .tail_len = tail_len};
    c->due_at = clock_mono_ms() + deadline_ms;
    return c;
}

/* The bytes a command takes on the wire, at most; more than REDIS_OUTPUT_MAX when it is past every limit. */
static size_t wire_size(int argc, const char **argv, const size_t *argvlen)
{
    size_t total = ARGUMENT_FRAME;
    if (argc > ARGUMENTS_MAX)
        return SIZE_MAX;
    for (int i = 0; i < argc; i++) {
        size_t len = argvlen != NULL ? argvlen[i] : strlen(argv[i]);
        if (len > REDIS_OUTPUT_MAX || total > REDIS_OUTPUT_MAX)
            return SIZE_MAX;
        total += len + ARGUMENT_FRAME;
    }
    return total;
}

static void after_sending(command_t *c, int status)
{
    redis_t *r = c->redis;
    if (status != REDIS_OK) { /* hiredis is closing */
        fail_unsent(r, c);
        return;
    }
    count_sent(c);
    list_add(&r->sent, c);
    if (c->due_at < r->deadline_at)
        watch_deadline(r, c->due_at, clock_mono_ms());
}

void redis_command(redis_t *r, uint32_t deadline_ms, redis_cb cb, void *data, int argc, const char **argv,
                   const size_t *argvlen)
{
    redis_check(r);
    if (argc < 1)
        mem_fatal("a redis command without a name");
    command_t *c = new_command(r, deadline_ms, cb, data, 0);
    c->bytes = wire_size(argc, argv, argvlen);
    if (!may_send(r, c->bytes))
        fail_unsent(r, c);
    else
        after_sending(c, redisAsyncCommandArgv(r->link.ac, on_reply, c, argc, argv, argvlen));
}

/* --- scripts --- */

void redis_script_init(redis_script_t *script, const char *name, const char *body)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    *script = (redis_script_t){.name = name, .body = body};
    if (EVP_Digest(body, strlen(body), digest, &len, EVP_sha1(), NULL) != 1 || len != SHA1_BYTES)
        mem_fatal("no SHA-1");
    for (int i = 0; i < SHA1_BYTES; i++)
        snprintf(script->sha1 + 2 * i, 3, "%02x", digest[i]);
}

static size_t put_argument(char *out, const char *base, size_t len)
{
    size_t n = (size_t)sprintf(out, "$%zu\r\n", len);
    memcpy(out + n, base, len);
    memcpy(out + n + len, "\r\n", 2);
    return n + len + 2;
}

/* Sends "VERB script" before the command's tail. */
static int send_script(command_t *c, const char *verb, const char *script, size_t script_len)
{
    char *wire = mem_realloc(NULL, 4 * ARGUMENT_FRAME + script_len + c->tail_len);
    size_t n = (size_t)sprintf(wire, "*%d\r\n", c->argument_count);
    n += put_argument(wire + n, verb, strlen(verb));
    n += put_argument(wire + n, script, script_len);
    memcpy(wire + n, c->tail, c->tail_len);
    int status = redisAsyncFormattedCommand(c->redis->link.ac, on_reply, c, wire, n + c->tail_len);
    free(wire);
    return status;
}

/* NOSCRIPT: nothing ran. The command keeps its deadline and its place among those owed. */
static bool resend_as_eval(command_t *c)
{
    const redis_script_t *script = c->script;
    c->script = NULL; /* once */
    if (!may_send(c->redis, c->bytes) || send_script(c, "EVAL", script->body, strlen(script->body)) != REDIS_OK)
        return false;
    count_sent(c);
    return true;
}

void redis_eval(redis_t *r, const redis_script_t *script, uint32_t deadline_ms, redis_cb cb, void *data, int nkeys,
                int argc, const char **argv, const size_t *argvlen)
{
    redis_check(r);
    if (argc < 0 || nkeys < 0 || nkeys > argc)
        mem_fatal("redis_eval: more keys than arguments");
    size_t size = wire_size(argc, argv, argvlen), bytes = size;
    /* the script's text counts from the start, so that the second sending cannot be what breaks the limit */
    if (size <= REDIS_OUTPUT_MAX)
        bytes = size + 4 * ARGUMENT_FRAME + strlen(script->body);
    bool sendable = may_send(r, bytes);
    command_t *c = new_command(r, deadline_ms, cb, data, sendable ? size + ARGUMENT_FRAME : 0);
    c->bytes = bytes;
    if (!sendable) {
        fail_unsent(r, c);
        return;
    }
    char number[16];
    snprintf(number, sizeof(number), "%d", nkeys);
    size_t n = put_argument(c->tail, number, strlen(number));
    for (int i = 0; i < argc; i++)
        n += put_argument(c->tail + n, argv[i], argvlen != NULL ? argvlen[i] : strlen(argv[i]));
    c->tail_len = n;
    c->argument_count = 3 + argc;
    c->script = script;
    after_sending(c, send_script(c, "EVALSHA", script->sha1, 2 * SHA1_BYTES));
}

/* --- the connection --- */

static void say_state(redis_t *r, bool up, const char *reason)
{
    if (r->on_state != NULL)
        r->on_state(r->data, up, reason);
}

static void on_up(void *owner)
{
    redis_t *r = owner;
    redis_check(r);
    r->refusing = false;
    r->asks_role = true;
    r->last_reason[0] = r->reason_before[0] = '\0';
    say_state(r, true, "connected");
}

static bool was_told(const redis_t *r, const char *reason)
{
    return strcmp(r->last_reason, reason) == 0 || strcmp(r->reason_before, reason) == 0;
}

static void on_down(void *owner, bool was_up, const char *reason)
{
    redis_t *r = owner;
    redis_check(r);
    /* hiredis has told all it held; this is for a callback of those that made the link fail */
    while (r->sent.head != NULL)
        tell(r->sent.head, REDIS_UNKNOWN, NULL, NULL);
    if (r->link.state == LINK_DEAD || (!was_up && was_told(r, reason)))
        return;
    memcpy(r->reason_before, r->last_reason, sizeof(r->reason_before));
    snprintf(r->last_reason, sizeof(r->last_reason), "%s", reason);
    say_state(r, false, reason);
}

static void on_role(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    redis_t *r = data;
    redis_check(r);
    (void)err;
    if (status == REDIS_REFUSED)
        r->asks_role = false;
    else if (status == REDIS_REPLY && redis_link_is_role(reply, "slave"))
        redis_link_fail(&r->link, "the server is a replica");
}

/* Whether it is there, and still the one to write to: a master that was demoted answers every read. Of a node of a
 * Cluster, whether it still has the slot. */
static void ask_the_idle(redis_t *r)
{
    const char *home[] = {"EXISTS", r->link.address.home}, *role[] = {"ROLE"}, *ping[] = {"PING"};
    bool has_home = r->link.address.home != NULL;
    if (has_home)
        redis_command(r, REDIS_SILENT_MS, NULL, NULL, 2, home, NULL);
    if (r->asks_role && !r->link.address.is_sentinel)
        redis_command(r, REDIS_SILENT_MS, on_role, r, 1, role, NULL);
    else if (!has_home)
        redis_command(r, REDIS_SILENT_MS, NULL, NULL, 1, ping, NULL);
}

static void on_beat(void *owner)
{
    redis_t *r = owner;
    redis_check(r);
    uint64_t silent = clock_mono_ms() - r->link.heard_at;
    if (!redis_link_is_up(&r->link))
        return;
    if (r->in_flight == 0 && silent >= REDIS_IDLE_MS)
        ask_the_idle(r);
    else if (silent >= REDIS_SILENT_MS && r->overdue_count != 0)
        redis_link_fail(&r->link, "no answer");
}

static void on_free(void *owner)
{
    redis_t *r = owner;
    r->magic = 0;
    free(r);
}

static const redis_link_callbacks_t LINK_CALLBACKS = {on_up, on_down, on_beat, on_free};

redis_t *redis_create(loop_t *loop, const redis_address_t *address,
                      void (*on_state)(void *data, bool up, const char *reason), void *data)
{
    redis_t *r = mem_alloc(sizeof(*r));
    r->magic = REDIS_MAGIC;
    r->on_state = on_state;
    r->data = data;
    r->deadline_at = UINT64_MAX;
    loop_timer_init(&r->deadline, on_deadline, r);
    loop_task_init(&r->tell_unsent, on_tell_unsent, r);
    redis_link_init(&r->link, loop, address, &LINK_CALLBACKS, r);
    return r;
}

void redis_destroy(redis_t *r)
{
    redis_check(r);
    redis_link_hold(&r->link);
    redis_link_destroy(&r->link);
    loop_timer_stop(&r->deadline);
    loop_task_cancel(r->link.loop, &r->tell_unsent);
    while (r->sent.head != NULL)
        tell(r->sent.head, REDIS_UNKNOWN, NULL, NULL);
    while (r->overdue.head != NULL)
        tell(r->overdue.head, REDIS_UNKNOWN, NULL, NULL);
    tell_unsent(r);
    redis_link_release(&r->link);
}

bool redis_is_up(const redis_t *r)
{
    redis_check(r);
    return redis_link_is_up(&r->link) && !r->refusing;
}
