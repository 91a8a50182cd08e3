/* The store while Redis is frozen, dead, read-only, full, corrupt or not Redis at all. */
#include "tests/unit/store_fixture.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "records/store_internal.h"

enum {
    ANSWER_DUE_MS = 300,
    SLACK_MS = 150, /* of a busy machine under the sanitizers */
};

static void expect_nothing_kept(const ids_t *ids)
{
    assert_int_equal(direct_int("EXISTS %sslots %srate", ids->prefix, ids->prefix), 0);
    assert_int_equal(look(ids).outcome, ADMIT_OK);
}

/* ---- frozen ---- */

/* U21 */
static void a_frozen_redis_is_answered_for_in_time_and_keeps_nothing(void **state)
{
    (void)state;
    enum { RUNS = 20 };
    static admitted_t out[RUNS];
    memset(out, 0, sizeof(out));
    ids_t first = ids_fresh(), ids[RUNS];
    kill(fx.pid, SIGSTOP);
    uint64_t began = clock_mono_ms();
    for (int i = 0; i != RUNS; ++i) {
        ids[i] = ids_next_request(first);
        store_admission_t admission = admission_of(&ids[i]);
        if (i % 2 != 0)
            admission.request_id = NULL;
        admission.caps.slots = RUNS;
        admission.caps.rate_per_min = 1;
        admission.caps.burst = RUNS;
        store_admit(fx.store, &admission, note_admitted, &out[i]);
    }
    for (int i = 0; i != RUNS; ++i) {
        await_calls(&out[i].calls);
        assert_int_equal(out[i].said.outcome, ADMIT_STORE_UNKNOWN);
    }
    assert_true(clock_mono_ms() - began <= ANSWER_DUE_MS + SLACK_MS);
    assert_int_equal(store_backlog(fx.store), RUNS);
    /* what comes later is not even sent, so there is nothing to take back */
    ids_t late = ids_next_request(first);
    began = clock_mono_ms();
    assert_int_equal(admit(&late).outcome, ADMIT_NO_STORE);
    assert_true(clock_mono_ms() - began < STORE_DEADLINE_MS);
    assert_int_equal(store_backlog(fx.store), RUNS);
    turn_for(1000);
    assert_int_equal(store_backlog(fx.store), RUNS);
    kill(fx.pid, SIGCONT);
    began = clock_mono_ms();
    turn_until(store_idle);
    turn_until(store_up);
    assert_true(clock_mono_ms() - began < 1500);
    for (int i = 0; i != RUNS; ++i) {
        expect_nothing_kept(&ids[i]);
        const seen_t *seen = get_run(ids[i].caller, ids[i].run_id);
        assert_int_equal(seen->found, STORE_FOUND);
        assert_string_equal(seen->runs[0].verdict, "refused");
        assert_string_equal(seen->runs[0].reason, "capacity");
    }
    for (int i = 0; i != RUNS; ++i) {
        ids_t again = ids_next_run(ids[i]);
        assert_int_equal(admit(&again).outcome, ADMIT_OK);
    }
}

/* An admission on a dead connection may reach Redis after it was taken back. */
static void an_admission_taken_back_before_it_came_does_nothing(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), other = ids_next_run(ids);
    store_withdraw(fx.store, &(store_settlement_t){.caller = ids.caller,
                                                   .request_id = ids.request_id,
                                                   .run_id = ids.run_id,
                                                   .verdict = VERDICT_REFUSED,
                                                   .request_sha256 = ids.digest});
    turn_until(store_idle);
    assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), 1, STORE_WITHDRAWN_TTL_MS);
    assert_int_equal(admit(&ids).outcome, ADMIT_NO_STORE);
    expect_nothing_kept(&ids);
    assert_int_equal(admit(&other).outcome, ADMIT_OK);
    assert_int_equal(admit(&ids).outcome, ADMIT_JOIN);
    assert_true(settle(&other, VERDICT_ANSWERED));
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
}

static void a_settlement_of_a_run_that_was_taken_back_still_counts(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_withdraw(fx.store, &(store_settlement_t){.caller = ids.caller,
                                                   .request_id = ids.request_id,
                                                   .run_id = ids.run_id,
                                                   .verdict = VERDICT_REFUSED,
                                                   .request_sha256 = ids.digest});
    turn_until(store_idle);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
    assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), 604800000 - 5000, 604800000);
}

static void withdrawals_leave_room_for_records(void **state)
{
    (void)state;
    enum { MOST = STORE_WITHDRAWALS_MAX };
    static admitted_t out[MOST + 1];
    static ids_t ids[MOST + 1];
    for (int past = -1; past <= 1; ++past) {
        ids_t first = ids_fresh();
        uint64_t dropped = store_dropped(fx.store);
        memset(out, 0, sizeof(out));
        kill(fx.pid, SIGSTOP);
        for (int i = 0; i != MOST + past; ++i) {
            ids[i] = ids_next_request(first);
            store_admission_t admission = admission_of(&ids[i]);
            store_admit(fx.store, &admission, note_admitted, &out[i]);
        }
        for (int i = 0; i != MOST + past; ++i) {
            await_calls(&out[i].calls);
            assert_int_equal(out[i].said.outcome, ADMIT_STORE_UNKNOWN);
        }
        assert_int_equal(store_dropped(fx.store) - dropped, past > 0 ? 1 : 0);
        assert_int_equal(store_backlog(fx.store), past > 0 ? MOST : MOST + past);
        assert_false(settle(&first, VERDICT_UNKNOWN));
        assert_int_equal(store_dropped(fx.store) - dropped, past > 0 ? 1 : 0);
        kill(fx.pid, SIGCONT);
        turn_until(store_idle);
        turn_until(store_up);
        assert_int_equal(get_run(first.caller, first.run_id)->found, STORE_FOUND);
    }
}

/* ---- dead ---- */

static void claims_survive_a_killed_redis(void **state)
{
    (void)state;
    ids_t live = ids_fresh(), done = ids_fresh(), unknown = ids_fresh();
    store_admission_t admission = admission_of(&live);
    admission.caps.slots = 1;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    assert_int_equal(admit(&done).outcome, ADMIT_OK);
    assert_int_equal(admit(&unknown).outcome, ADMIT_OK);
    assert_true(settle(&done, VERDICT_ANSWERED));
    assert_true(settle(&unknown, VERDICT_UNKNOWN));
    server_kill();
    turn_until(store_down);
    assert_int_equal(admit(&live).outcome, ADMIT_NO_STORE);
    assert_int_equal(look(&live).outcome, ADMIT_NO_STORE);
    assert_int_equal(get_run(done.caller, done.run_id)->found, STORE_AWAY);
    assert_int_equal(list_runs(done.caller, 10, NULL)->found, STORE_AWAY);
    server_start();
    turn_until(store_up);
    assert_int_equal(admit(&live).outcome, ADMIT_JOIN);
    ids_t second = ids_next_request(live);
    admission = admission_of(&second);
    admission.caps.slots = 1;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_CAPPED);
    assert_int_equal(admit(&done).outcome, ADMIT_ANSWERED);
    assert_int_equal(admit(&unknown).outcome, ADMIT_OUTCOME_UNKNOWN);
    assert_string_equal(get_run(done.caller, done.run_id)->runs[0].verdict, "answered");
}

static void what_was_settled_meanwhile_follows_in_order(void **state)
{
    (void)state;
    enum { RUNS = 200 }; /* more than a window */
    static ids_t ids[RUNS];
    ids[0] = ids_fresh();
    assert_int_equal(admit(&ids[0]).outcome, ADMIT_OK);
    server_kill();
    turn_until(store_down);
    for (int i = 0; i != RUNS; ++i) {
        if (i != 0)
            ids[i] = ids_next_request(ids[0]);
        assert_false(settle(&ids[i], VERDICT_ANSWERED));
        assert_int_equal(store_backlog(fx.store), i + 1);
    }
    server_start();
    turn_until(store_idle);
    turn_until(store_up);
    char cursor[64] = "";
    int next = RUNS;
    do {
        const seen_t *seen = list_runs(ids[0].caller, STORE_LIST_MAX, cursor);
        for (size_t i = 0; i != seen->count; ++i)
            assert_string_equal(seen->runs[i].run_id, ids[--next].run_id);
        strcpy(cursor, seen->next);
    } while (cursor[0] != '\0');
    assert_int_equal(next, 0);
    assert_int_equal(admit(&ids[0]).outcome, ADMIT_ANSWERED);
}

static void the_newest_is_refused_when_there_is_no_room(void **state)
{
    (void)state;
    ids_t first = ids_fresh(), ids = first;
    server_kill();
    turn_until(store_down);
    settled_t out = {.calls = 0};
    for (int i = 0; i != STORE_RETRY_MAX - 1; ++i) {
        ids = i == 0 ? first : ids_next_request(first);
        store_settlement_t s = settlement_of(&ids, VERDICT_UNKNOWN);
        store_settle(fx.store, &s, note_stored, &out);
    }
    turn_for(50);
    assert_int_equal(out.calls, STORE_RETRY_MAX - 1);
    assert_false(out.stored);
    uint64_t dropped = store_dropped(fx.store);
    for (int past = 0; past <= 1; ++past) {
        ids = ids_next_request(first);
        assert_false(settle(&ids, VERDICT_UNKNOWN));
        assert_int_equal(store_dropped(fx.store) - dropped, past);
        assert_int_equal(store_backlog(fx.store), STORE_RETRY_MAX);
    }
    server_start();
    turn_until(store_idle);
    turn_until(store_up);
    assert_int_equal(direct_int("LLEN %sruns", first.prefix), STORE_RETRY_MAX);
    assert_int_equal(get_run(first.caller, first.run_id)->found, STORE_FOUND);
    assert_int_equal(get_run(first.caller, ids.run_id)->found, STORE_NOT_FOUND);
}

/* A kept output of this size may take longer than an admission waits for it, on a busy machine under the sanitizers. */
static store_admitted_t admit_at_last(ids_t ids)
{
    for (int tries = 1;; ++tries) {
        store_admitted_t said = admit(&ids);
        if ((said.outcome != ADMIT_STORE_UNKNOWN && said.outcome != ADMIT_NO_STORE) || tries == 10)
            return said;
        ids = ids_next_run(ids);
        turn_until(store_idle);
        turn_until(store_up);
    }
}

static void outputs_are_given_up_before_records(void **state)
{
    (void)state;
    enum { RUNS = STORE_RETRY_BYTES_MAX / STORE_ANSWER_MAX + 2, FIT = STORE_RETRY_BYTES_MAX / STORE_ANSWER_MAX - 1 };
    static ids_t ids[RUNS];
    uint8_t *answer = mem_alloc(STORE_ANSWER_MAX);
    memset(answer, 'x', STORE_ANSWER_MAX);
    server_kill();
    turn_until(store_down);
    uint64_t dropped = store_dropped(fx.store);
    for (int i = 0; i != RUNS; ++i) {
        ids[i] = ids_fresh();
        store_settlement_t s = settlement_of(&ids[i], VERDICT_ANSWERED);
        s.answer = answer;
        s.answer_len = STORE_ANSWER_MAX;
        assert_false(settle_now(&s));
    }
    free(answer);
    assert_int_equal(store_dropped(fx.store), dropped);
    server_start();
    turn_until(store_idle);
    turn_until(store_up);
    for (int i = 0; i != RUNS; ++i) {
        store_admitted_t said = admit_at_last(ids[i]);
        assert_int_equal(said.outcome, i < FIT ? ADMIT_ANSWERED : ADMIT_ANSWER_GONE);
        assert_string_equal(said.record_sha256, ids[i].digest);
        assert_int_equal(get_run(ids[i].caller, ids[i].run_id)->found, STORE_FOUND);
        direct_do("DEL %sclaim:%s", ids[i].prefix, ids[i].request_id);
    }
}

/* The store has several connections; any of them will do. */
static void a_lost_connection_is_not_waited_for(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), running = ids_fresh();
    assert_int_equal(admit(&running).outcome, ADMIT_OK);
    redisReply *clients = direct("CLIENT LIST TYPE normal");
    long long mine = direct_int("CLIENT ID"), highest = 0;
    for (char *line = strtok(clients->str, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        long long id = atoll(line + 3);
        if (id != mine && id > highest)
            highest = id;
    }
    freeReplyObject(clients);
    direct_do("CONFIG SET maxclients 1"); /* it cannot come back */
    direct_do("CLIENT KILL ID %lld", highest);
    turn_for(400);
    assert_true(store_is_up(fx.store));
    for (int i = 0; i != 16; ++i) { /* run ids of every connection */
        ids = ids_next_request(ids);
        ids.run_id[0] = "0123456789abcdef"[i];
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        assert_true(settle(&ids, VERDICT_ANSWERED));
    }
    direct_do("CONFIG SET maxclients 10000");
    turn_for(1500);
}

/* ---- refusing ---- */

/* U22 */
static void a_read_only_redis_refuses_and_comes_back(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), running = ids_fresh();
    assert_int_equal(admit(&running).outcome, ADMIT_OK);
    direct_do("REPLICAOF 127.0.0.1 1");
    assert_int_equal(admit(&ids).outcome, ADMIT_NO_STORE);
    turn_until(store_up);
    assert_false(settle(&running, VERDICT_ANSWERED));
    assert_int_equal(store_backlog(fx.store), 1);
    direct_do("REPLICAOF NO ONE");
    turn_until(store_idle);
    turn_until(store_up);
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_int_equal(admit(&running).outcome, ADMIT_ANSWERED);
}

static void a_full_redis_refuses_whole_scripts(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), running = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.caps.rate_per_min = admission.caps.burst = 10;
    assert_int_equal(admit(&running).outcome, ADMIT_OK);
    direct_do("CONFIG SET maxmemory 1");
    assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
    assert_false(settle(&running, VERDICT_ANSWERED));
    assert_int_equal(store_backlog(fx.store), 1);
    /* all or nothing: the slot is still held, the claim still live, no record */
    assert_int_equal(direct_int("ZCARD %sslots", running.prefix), 1);
    assert_int_equal(look(&running).outcome, ADMIT_JOIN);
    assert_int_equal(get_run(running.caller, running.run_id)->found, STORE_NOT_FOUND);
    expect_nothing_kept(&ids);
    direct_do("CONFIG SET maxmemory 0");
    turn_until(store_idle);
    assert_int_equal(admit(&running).outcome, ADMIT_ANSWERED);
    assert_int_equal(direct_int("EXISTS %sslots", running.prefix), 0);
}

/* ---- corrupt ---- */

static void a_corrupt_claim_is_unknown_and_stays_as_it_is(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    uint8_t good[48];
    store_raw_of(ids.digest, 32, good);
    store_raw_of(ids.run_id, 16, good + 32);
    static const struct {
        char state;
        const char *rest;
    } rows[] = {
        {'X', ""},                 /* no such state */
        {'L', ""},                 /* no lease end */
        {'L', "abc"},              /* not a number */
        {'L', "1234567890123456"}, /* longer than a time is */
        {'L', "12 "},
        {'J', "x1"},
        {'U', ""}, /* no code */
        {'U', "Bad Code"},
        {'U', "abcdefghijklmnopqrstuvwxyzabcdef"}, /* 32 letters */
        {'A', "x"},                                /* more than ids */
        {'W', "x"},
        {'R', ""}, /* never stored */
    };
    char key[STORE_CLAIM_KEY_MAX];
    store_claim_key(fx.store, ids.caller, ids.request_id, key);
    for (size_t i = 0; i != 2 * sizeof(rows) / sizeof(rows[0]); ++i) {
        uint8_t value[128];
        size_t row = i / 2, rest = strlen(rows[row].rest), len = 49 + rest;
        value[0] = (uint8_t)rows[row].state;
        memcpy(value + 1, good, 48);
        memcpy(value + 49, rows[row].rest, rest);
        if (i % 2 != 0) { /* cut within the ids, whatever the state */
            value[0] = "LJAUW"[row % 5];
            len = row % 2 != 0 ? 48 : row;
        }
        direct_do("SET %s %b", key, value, len);
        for (int looks = 0; looks != 2; ++looks) {
            store_admitted_t said = looks ? look(&ids) : admit(&ids);
            assert_int_equal(said.outcome, ADMIT_OUTCOME_UNKNOWN);
            assert_string_equal(said.unknown_code, "unavailable");
            assert_string_equal(said.backend, "");
            assert_null(said.answer);
        }
        redisReply *kept = direct("GET %s", key);
        assert_int_equal(kept->len, len);
        assert_memory_equal(kept->str, value, len);
        freeReplyObject(kept);
        direct_do("DEL %s", key);
    }
    assert_int_equal(direct_int("EXISTS %sslots", ids.prefix), 0);
}

static void settling_leaves_a_corrupt_claim_alone_and_keeps_the_record(void **state)
{
    (void)state;
    for (int kind = 0; kind != 2; ++kind) {
        for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
            ids_t ids = ids_fresh();
            assert_int_equal(admit(&ids).outcome, ADMIT_OK);
            direct_do("DEL %sclaim:%s", ids.prefix, ids.request_id);
            direct_do(kind ? "SET %sclaim:%s junk" : "LPUSH %sclaim:%s junk", ids.prefix, ids.request_id);
            assert_true(settle(&ids, (verdict_t)verdict));
            assert_int_equal(admit(&ids).outcome, ADMIT_OUTCOME_UNKNOWN);
            assert_int_equal(direct_int("EXISTS %sslots", ids.prefix), 0);
            assert_int_equal(get_run(ids.caller, ids.run_id)->found, STORE_FOUND);
            if (kind) {
                redisReply *kept = direct("GET %sclaim:%s", ids.prefix, ids.request_id);
                assert_string_equal(kept->str, "junk");
                freeReplyObject(kept);
            } else {
                assert_int_equal(direct_int("LLEN %sclaim:%s", ids.prefix, ids.request_id), 1);
            }
        }
    }
}

static void corrupt_counts_refuse_and_end_by_themselves(void **state)
{
    (void)state;
    static const char *const rates[] = {"junk", "12", "12 ", "-1 5", "1e9 5", "12345678901234567 1000", "99.5 1000"};
    for (size_t i = 0; i != sizeof(rates) / sizeof(rates[0]); ++i) {
        ids_t ids = ids_fresh();
        store_admission_t admission = admission_of(&ids);
        admission.caps.rate_per_min = 60;
        admission.caps.burst = 5;
        direct_do("SET %srate %s", ids.prefix, rates[i]);
        assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
        assert_in_range(direct_int("PTTL %srate", ids.prefix), 1, 5000);
        assert_int_equal(direct_int("EXISTS %sslots %sclaim:%s", ids.prefix, ids.prefix, ids.request_id), 0);
    }
    ids_t ids = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.caps.rate_per_min = 60;
    admission.caps.burst = 5;
    direct_do("LPUSH %srate junk", ids.prefix);
    assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
    direct_do("DEL %srate", ids.prefix);
    direct_do("SET %sslots junk", ids.prefix);
    assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
    assert_in_range(direct_int("PTTL %sslots", ids.prefix), 1, 86400000);
    assert_int_equal(direct_int("EXISTS %srate %sclaim:%s", ids.prefix, ids.prefix, ids.request_id), 0);
    assert_true(settle(&ids, VERDICT_UNKNOWN)); /* the record is kept all the same */
    assert_int_equal(get_run(ids.caller, ids.run_id)->found, STORE_FOUND);
}

static void a_corrupt_rate_is_not_given_back_to(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.caps.rate_per_min = 60;
    admission.caps.burst = 5;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    direct_do("SET %srate junk", ids.prefix);
    assert_true(settle(&ids, VERDICT_REFUSED));
    redisReply *kept = direct("GET %srate", ids.prefix);
    assert_string_equal(kept->str, "junk");
    freeReplyObject(kept);
    assert_int_equal(look(&ids).outcome, ADMIT_OK);
}

/* ---- not Redis ---- */

/* Answers every command with the next thing a test says; one thread a connection, ended by closing the sockets. */
typedef struct {
    char path[96];
    int listener;
    pthread_t accepter;
    pthread_t threads[64];
    int fds[64];
    size_t count;
    pthread_mutex_t lock;
    const char *script_answer; /* to EVALSHA and GET */
} impostor_t;

static impostor_t impostor = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool read_command(FILE *in, char first[16])
{
    char line[64];
    if (fgets(line, sizeof(line), in) == NULL || line[0] != '*')
        return false;
    int argc = atoi(line + 1);
    for (int i = 0; i != argc; ++i) {
        if (fgets(line, sizeof(line), in) == NULL || line[0] != '$')
            return false;
        int len = atoi(line + 1);
        char *arg = mem_alloc((size_t)len + 3);
        bool ok = fread(arg, 1, (size_t)len + 2, in) == (size_t)len + 2;
        if (i == 0)
            snprintf(first, 16, "%.*s", len, arg);
        free(arg);
        if (!ok)
            return false;
    }
    return true;
}

static void *serve(void *arg)
{
    int fd = *(int *)arg;
    FILE *in = fdopen(dup(fd), "r");
    char first[16];
    while (read_command(in, first)) {
        pthread_mutex_lock(&impostor.lock);
        const char *answer = strcmp(first, "PING") == 0 ? "+PONG\r\n" : impostor.script_answer;
        pthread_mutex_unlock(&impostor.lock);
        if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    fclose(in);
    return NULL;
}

static void *accept_all(void *arg)
{
    (void)arg;
    int fd;
    while (impostor.count != 64 && (fd = accept(impostor.listener, NULL, NULL)) >= 0) {
        impostor.fds[impostor.count] = fd;
        pthread_create(&impostor.threads[impostor.count], NULL, serve, &impostor.fds[impostor.count]);
        ++impostor.count;
    }
    return NULL;
}

static void impostor_start(void)
{
    snprintf(impostor.path, sizeof(impostor.path), "%s/impostor.sock", fx.dir);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, impostor.path, sizeof(address.sun_path) - 1);
    impostor.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(impostor.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(impostor.listener, 16), 0);
    impostor.script_answer = "+OK\r\n";
    assert_int_equal(pthread_create(&impostor.accepter, NULL, accept_all, NULL), 0);
}

static void impostor_says(const char *answer)
{
    pthread_mutex_lock(&impostor.lock);
    impostor.script_answer = answer;
    pthread_mutex_unlock(&impostor.lock);
}

static void impostor_stop(void)
{
    shutdown(impostor.listener, SHUT_RDWR);
    pthread_join(impostor.accepter, NULL);
    close(impostor.listener);
    for (size_t i = 0; i != impostor.count; ++i) {
        shutdown(impostor.fds[i], SHUT_RDWR);
        pthread_join(impostor.threads[i], NULL);
        close(impostor.fds[i]);
    }
}

#define RUN "0123456789abcdef"

static void answers_of_another_shape_are_not_believed(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "+OK\r\n",
        ":0\r\n",
        "$-1\r\n",
        "$2\r\nOK\r\n",
        "*0\r\n",
        "*4\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        "*5\r\n:0\r\n:0\r\n:0\r\n:0\r\n$1\r\n0\r\n",
        "*5\r\n:0\r\n:-1\r\n:0\r\n:0\r\n:0\r\n",
        "*5\r\n:0\r\n:4294967296\r\n:0\r\n:0\r\n:0\r\n",
        "*5\r\n:0\r\n:0\r\n:0\r\n:0\r\n:4294967296\r\n",
        "*5\r\n:10\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n",                   /* JOIN without a run */
        "*6\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n$16\r\n" RUN "\r\n", /* OK with one */
        "*6\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n$15\r\n"
        "0123456789abcde"
        "\r\n",
        "*6\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n:7\r\n",
        "*6\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n$16\r\n" RUN "\r\n", /* ANSWERED without the answer */
        "*7\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n$16\r\n" RUN "\r\n:7\r\n",
        "*7\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n$16\r\n" RUN "\r\n$1\r\nx\r\n",
        "*8\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n$15\r\n0123456789abcde\r\n$1\r\nx\r\n$1\r\nx\r\n",
        "*8\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n$16\r\n" RUN "\r\n*0\r\n$1\r\nx\r\n",
        "*5\r\n:7\r\n:0\r\n:0\r\n:0\r\n:0\r\n", /* CAPPED by nothing */
        "*9\r\n:7\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:1\r\n:1\r\n",
        "*9\r\n:7\r\n:0\r\n:0\r\n:0\r\n:0\r\n:7\r\n:0\r\n:1\r\n:1\r\n",
        "*9\r\n:7\r\n:0\r\n:0\r\n:0\r\n:0\r\n:1\r\n:0\r\n:1\r\n:-1\r\n",
        "*5\r\n:21\r\n:0\r\n:0\r\n:0\r\n:0\r\n", /* which key? */
    };
    store_t *real = fx.store;
    impostor_start();
    redis_address_t address = {.path = impostor.path};
    fx.store = store_create(fx.loop, &address, &(store_settings_t){.installation = "test"},
                            &(store_callbacks_t){.on_settled = NULL});
    turn_until(store_up);
    ids_t ids = ids_fresh();
    for (size_t i = 0; i != sizeof(bad) / sizeof(bad[0]); ++i) {
        impostor_says(bad[i]);
        assert_int_equal(admit(&ids).outcome, ADMIT_STORE_UNKNOWN);
        assert_true(store_backlog(fx.store) >= 1); /* it will be taken back */
        assert_int_equal(look(&ids).outcome, ADMIT_NO_STORE);
        assert_int_equal(list_runs(ids.caller, 10, NULL)->found,
                         strcmp(bad[i], "*0\r\n") == 0 ? STORE_FOUND : STORE_AWAY);
        assert_int_equal(get_run(ids.caller, ids.run_id)->found,
                         strcmp(bad[i], "$-1\r\n") == 0 ? STORE_NOT_FOUND : STORE_AWAY);
    }
    static const char *const unsettled[] = {"+OK\r\n", ":-1\r\n", ":256\r\n", "*0\r\n", "$1\r\n0\r\n", "-ERR no\r\n"};
    for (size_t i = 0; i != sizeof(unsettled) / sizeof(unsettled[0]); ++i) {
        impostor_says(unsettled[i]);
        assert_false(settle(&ids, VERDICT_ANSWERED));
    }
    impostor_says("-ERR no\r\n");
    assert_int_equal(admit(&ids).outcome, ADMIT_NO_STORE);
    impostor_says(":0\r\n");
    turn_until(store_idle);
    /* what the script would say of a good claim, but for the run's answer */
    impostor_says("*8\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n$16\r\n" RUN "\r\n$1\r\nx\r\n$-1\r\n");
    store_admitted_t said = admit(&ids);
    assert_int_equal(said.outcome, ADMIT_ANSWERED);
    assert_int_equal(said.answer_len, 1);
    assert_string_equal(said.run_id, "30313233343536373839616263646566");
    assert_string_equal(said.backend, "");
    assert_string_equal(said.record_sha256, "");
    store_destroy(fx.store);
    impostor_stop();
    fx.store = real;
}

/* ---- ends ---- */

static void a_store_that_ends_calls_everybody_back(void **state)
{
    (void)state;
    store_t *real = fx.store;
    fx.store = store_create(fx.loop, &fx.address, &(store_settings_t){.installation = "test"},
                            &(store_callbacks_t){.on_settled = note_settled});
    turn_until(store_up);
    kill(fx.pid, SIGSTOP);
    ids_t ids = ids_fresh();
    admitted_t admitted = {.calls = 0}, looked = {.calls = 0};
    settled_t settled = {.calls = 0, .stored = true};
    static seen_t listed, got;
    memset(&listed, 0, sizeof(listed));
    memset(&got, 0, sizeof(got));
    store_admission_t admission = admission_of(&ids);
    store_settlement_t settlement = settlement_of(&ids, VERDICT_ANSWERED);
    store_admit(fx.store, &admission, note_admitted, &admitted);
    store_claim_look(fx.store, ids.caller, ids.request_id, ids.digest, note_admitted, &looked);
    store_settle(fx.store, &settlement, note_stored, &settled);
    store_runs_list(fx.store, ids.caller, &(store_runs_query_t){.limit = 10}, note_runs, &listed);
    store_run_get(fx.store, ids.caller, ids.run_id, note_runs, &got);
    store_destroy(fx.store);
    kill(fx.pid, SIGCONT);
    fx.store = real;
    assert_int_equal(admitted.calls, 1);
    assert_int_equal(admitted.said.outcome, ADMIT_STORE_UNKNOWN);
    assert_int_equal(looked.calls, 1);
    assert_int_equal(looked.said.outcome, ADMIT_NO_STORE);
    assert_int_equal(settled.calls, 1);
    assert_false(settled.stored);
    assert_int_equal(listed.calls, 1);
    assert_int_equal(listed.found, STORE_AWAY);
    assert_int_equal(got.calls, 1);
    assert_int_equal(got.found, STORE_AWAY);
    turn_until(store_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frozen_redis_is_answered_for_in_time_and_keeps_nothing),
        cmocka_unit_test(an_admission_taken_back_before_it_came_does_nothing),
        cmocka_unit_test(a_settlement_of_a_run_that_was_taken_back_still_counts),
        cmocka_unit_test(withdrawals_leave_room_for_records),
        cmocka_unit_test(claims_survive_a_killed_redis),
        cmocka_unit_test(what_was_settled_meanwhile_follows_in_order),
        cmocka_unit_test(the_newest_is_refused_when_there_is_no_room),
        cmocka_unit_test(outputs_are_given_up_before_records),
        cmocka_unit_test(a_lost_connection_is_not_waited_for),
        cmocka_unit_test(a_read_only_redis_refuses_and_comes_back),
        cmocka_unit_test(a_full_redis_refuses_whole_scripts),
        cmocka_unit_test(a_corrupt_claim_is_unknown_and_stays_as_it_is),
        cmocka_unit_test(settling_leaves_a_corrupt_claim_alone_and_keeps_the_record),
        cmocka_unit_test(corrupt_counts_refuse_and_end_by_themselves),
        cmocka_unit_test(a_corrupt_rate_is_not_given_back_to),
        cmocka_unit_test(answers_of_another_shape_are_not_believed),
        cmocka_unit_test(a_store_that_ends_calls_everybody_back),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
