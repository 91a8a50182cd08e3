#include "records/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"

enum {
    LEDGER_MAGIC = 0x6c646772,
    KEY_MAX = 128,
    IDENTITY_BYTES = 16,
    NUMBER_MAX = 24,
    NAMED_MS = 60 * 1000,
    NAMED_MAX = 16
};

/* Layout 2 of the installation's keys (docs/redis-keys.md): one hash tag for all of them. */
#define KEY_PREFIX "plimsoll:2:{%s}:"

typedef struct {
    redis_script_t script;
    char *body;
} loaded_t;

struct ledger {
    unsigned magic;
    redis_t *redis;
    char installation[LEDGER_BACKEND_MAX + 1];
    loaded_t put, adopt, condemn, remove, scan;
    size_t calls;            /* under way */
    uint64_t named_since_ms; /* corrupt ones named since then; see log_corrupt */
    unsigned named;
};

/* One call under way. */
typedef struct {
    ledger_t *ledger;
    ledger_cb cb;
    ledger_page_cb page_cb;
    ledger_identity_cb identity_cb;
    ledger_instances_cb instances_cb;
    void *data;
    size_t count;
    char what[LEDGER_STAMP + 1]; /* for the log */
    char backend[LEDGER_BACKEND_MAX + 1];
} call_t;

static void check(const ledger_t *ledger)
{
    if (ledger->magic != LEDGER_MAGIC)
        mem_fatal("not a ledger");
}

const char *ledger_status_name(ledger_status_t status)
{
    static const char *const names[] = {"done",    "absent", "taken",       "full",
                                        "corrupt", "alive",  "not written", "perhaps written"};
    return names[status];
}

/* --- keys and arguments --- */

static void key_of(const ledger_t *ledger, const char *name, const char *rest, char out[KEY_MAX])
{
    if (snprintf(out, KEY_MAX, KEY_PREFIX "%s%s", ledger->installation, name, rest) >= KEY_MAX)
        mem_fatal("a key of the ledger is too long");
}

static void script_load(loaded_t *loaded, const char *name, const char *body)
{
    size_t form = strlen(LEDGER_LUA_FORM), len = strlen(body);
    loaded->body = mem_alloc(form + len + 1);
    memcpy(loaded->body, LEDGER_LUA_FORM, form);
    memcpy(loaded->body + form, body, len + 1);
    redis_script_init(&loaded->script, name, loaded->body);
}

static call_t *call_begin(ledger_t *ledger, const char *backend, const char *what, void *data)
{
    call_t *call = mem_alloc(sizeof(*call));
    check(ledger);
    call->ledger = ledger;
    call->data = data;
    snprintf(call->backend, sizeof(call->backend), "%s", backend);
    snprintf(call->what, sizeof(call->what), "%s", what);
    ++ledger->calls;
    return call;
}

static void call_end(call_t *call)
{
    --call->ledger->calls;
    free(call);
}

static bool is_array(const redisReply *reply, size_t count)
{
    return reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements >= count;
}

static int64_t integer(const redisReply *reply, size_t i)
{
    return is_array(reply, i + 1) && reply->element[i]->type == REDIS_REPLY_INTEGER ? reply->element[i]->integer : 0;
}

static bool is_text(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;
}

/* They stay until somebody looks, and are met at every reading: a few a minute are named. */
static void log_corrupt(const call_t *call, const char *stamp, size_t len)
{
    ledger_t *ledger = call->ledger;
    uint64_t now_ms = clock_mono_ms();
    if (ledger->named_since_ms == 0 || now_ms - ledger->named_since_ms >= NAMED_MS) {
        ledger->named_since_ms = now_ms;
        ledger->named = 0;
    }
    if (++ledger->named > NAMED_MAX)
        return;
    char shown[LEDGER_ERROR_MAX + 1], cut[LEDGER_STAMP + 1];
    snprintf(cut, sizeof(cut), "%.*s", (int)(len < LEDGER_STAMP ? len : LEDGER_STAMP), stamp);
    for (size_t i = 0; cut[i] != '\0'; ++i)
        if (cut[i] < ' ' || cut[i] > '~')
            cut[i] = '?';
    snprintf(shown, sizeof(shown), "ledger:%s", call->backend);
    log_event(LOG_ERROR, "ledger_entry_corrupt", log_str("key", shown), log_str("stamp", cut));
}

/* --- answers --- */

static void on_written(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    ledger_answer_t answer = {.status = status == REDIS_UNKNOWN ? LEDGER_MAYBE_WRITTEN : LEDGER_NOT_WRITTEN};
    check(call->ledger);
    if (status == REDIS_REPLY && is_array(reply, 1) && integer(reply, 0) >= 0 && integer(reply, 0) <= LEDGER_ALIVE) {
        answer.status = (ledger_status_t)integer(reply, 0);
        answer.created_ms = integer(reply, 1);
        answer.existed_ms = (uint64_t)integer(reply, 1);
        answer.unreleased_ms = (uint64_t)integer(reply, 2);
        answer.now_ms = integer(reply, 3);
        answer.is_condemned = is_array(reply, 3) && is_text(reply->element[2]) &&
                              strcmp(reply->element[2]->str, ledger_state_name(LEDGER_CONDEMNED)) == 0;
    }
    if (status == REDIS_REFUSED)
        log_event(LOG_WARN, "ledger refused by Redis", log_str("backend", call->backend), log_str("stamp", call->what),
                  log_str("error", err));
    if (answer.status == LEDGER_CORRUPT)
        log_corrupt(call, call->what, strlen(call->what));
    call->cb(call->data, &answer);
    call_end(call);
}

static void on_removed(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    if (status == REDIS_REPLY && integer(reply, 3) != 0) {
        char key[KEY_MAX];
        key_of(call->ledger, "held", "", key);
        log_event(LOG_ERROR, "store_key_corrupt", log_str("key", key));
    }
    on_written(data, status, reply, err);
}

static void evaluate(call_t *call, const loaded_t *loaded, redis_cb cb, int nkeys, const char **argv, int argc)
{
    redis_eval(call->ledger->redis, &loaded->script, LEDGER_WRITE_MS, cb, call, nkeys, argc, argv, NULL);
}

void ledger_put(ledger_t *ledger, const char *backend, const ledger_entry_t *e, uint64_t age_ms, uint64_t life_ms,
                bool is_new, ledger_cb cb, void *data)
{
    char hash[KEY_MAX], instance[KEY_MAX], host[3 * LEDGER_HOST_MAX + 2], place[3 * LEDGER_PLACE_MAX + 2],
        caller[3 * LEDGER_CALLER_MAX + 2], id[3 * LEDGER_PROVIDER_ID_MAX + 2], error[3 * LEDGER_ERROR_MAX + 2],
        age[NUMBER_MAX], life[NUMBER_MAX], tries[NUMBER_MAX], price[NUMBER_MAX], reported[NUMBER_MAX],
        lease[NUMBER_MAX], most[NUMBER_MAX];
    call_t *call = call_begin(ledger, backend, e->stamp, data);
    call->cb = cb;
    key_of(ledger, "ledger:", backend, hash);
    key_of(ledger, "instance:", e->instance, instance);
    ledger_word(e->host, host);
    ledger_word(e->place, place);
    ledger_word(e->caller, caller);
    ledger_word(e->id, id);
    ledger_word(e->error, error);
    snprintf(age, sizeof(age), "%" PRIu64, age_ms);
    snprintf(life, sizeof(life), "%" PRIu64, life_ms);
    snprintf(tries, sizeof(tries), "%u", e->tries < LEDGER_TRIES_MAX ? (unsigned)e->tries : LEDGER_TRIES_MAX);
    snprintf(price, sizeof(price), "%" PRIu64, e->price_micro);
    snprintf(reported, sizeof(reported), "%" PRIu64, e->reported_ms);
    snprintf(lease, sizeof(lease), "%d", LEDGER_LEASE_MS);
    snprintf(most, sizeof(most), "%d", LEDGER_ENTRIES_MAX);
    const char *argv[] = {hash,
                          instance,
                          e->stamp,
                          e->instance,
                          host,
                          place,
                          age,
                          life,
                          e->is_billed ? "1" : "0",
                          e->run[0] != '\0' ? e->run : "-",
                          e->tag[0] != '\0' ? e->tag : "-",
                          caller,
                          id,
                          tries,
                          price,
                          reported,
                          error,
                          e->state == LEDGER_CONDEMNED ? "1" : "0",
                          is_new ? "1" : "0",
                          lease,
                          most};
    evaluate(call, &ledger->put, on_written, 2, argv, sizeof(argv) / sizeof(argv[0]));
}

void ledger_remove(ledger_t *ledger, const char *backend, const char *stamp, uint64_t unreleased_ms, bool never_was,
                   ledger_cb cb, void *data)
{
    char hash[KEY_MAX], late[NUMBER_MAX], prefix[KEY_MAX];
    call_t *call = call_begin(ledger, backend, stamp, data);
    call->cb = cb;
    key_of(ledger, "ledger:", backend, hash);
    snprintf(late, sizeof(late), "%" PRIu64, unreleased_ms);
    key_of(ledger, "", "", prefix);
    const char *argv[] = {hash, stamp, late, prefix, never_was ? "1" : "0"};
    evaluate(call, &ledger->remove, on_removed, 1, argv, sizeof(argv) / sizeof(argv[0]));
}

void ledger_adopt(ledger_t *ledger, const char *backend, const ledger_entry_t *entry, const char *instance,
                  const char *host, bool is_dead, ledger_cb cb, void *data)
{
    char hash[KEY_MAX], old[KEY_MAX], new[KEY_MAX], host_word[3 * LEDGER_HOST_MAX + 2], lease[NUMBER_MAX];
    call_t *call = call_begin(ledger, backend, entry->stamp, data);
    call->cb = cb;
    key_of(ledger, "ledger:", backend, hash);
    key_of(ledger, "instance:", entry->instance, old);
    key_of(ledger, "instance:", instance, new);
    ledger_word(host, host_word);
    snprintf(lease, sizeof(lease), "%d", LEDGER_LEASE_MS);
    const char *argv[] = {hash, old, new, entry->stamp, entry->instance, instance, host_word, is_dead ? "1" : "0",
                          lease};
    evaluate(call, &ledger->adopt, on_written, 3, argv, sizeof(argv) / sizeof(argv[0]));
}

void ledger_condemn(ledger_t *ledger, const char *backend, const char *stamp, ledger_cb cb, void *data)
{
    char hash[KEY_MAX];
    call_t *call = call_begin(ledger, backend, stamp, data);
    call->cb = cb;
    key_of(ledger, "ledger:", backend, hash);
    const char *argv[] = {hash, stamp};
    evaluate(call, &ledger->condemn, on_written, 1, argv, sizeof(argv) / sizeof(argv[0]));
}

/* --- looks --- */

static bool parse_cursor(const redisReply *reply, uint64_t *out)
{
    char *end;
    if (!is_text(reply) || reply->len == 0 || reply->len > 20 || strspn(reply->str, "0123456789") != reply->len)
        return false;
    *out = strtoull(reply->str, &end, 10);
    return true;
}

static void read_entries(const call_t *call, const redisReply *list, ledger_entry_t *entries, ledger_page_t *page)
{
    for (size_t i = 0; i + 1 < list->elements; i += 2) {
        const redisReply *stamp = list->element[i], *value = list->element[i + 1];
        ledger_entry_t *entry = &entries[page->count];
        if (!is_text(stamp) || !is_text(value) || stamp->len != LEDGER_STAMP || !ledger_is_stamp(stamp->str) ||
            !ledger_entry_parse(value->str, value->len, entry)) {
            ++page->corrupt;
            log_corrupt(call, is_text(stamp) ? stamp->str : "", is_text(stamp) ? stamp->len : 0);
            continue;
        }
        memcpy(entry->stamp, stamp->str, LEDGER_STAMP + 1);
        ++page->count;
    }
}

static void on_page(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    ledger_page_t page = {.is_read = false};
    ledger_entry_t *entries = NULL;
    check(call->ledger);
    if (status == REDIS_REPLY && is_array(reply, 3) && parse_cursor(reply->element[1], &page.next_cursor) &&
        reply->element[2]->type == REDIS_REPLY_ARRAY && reply->element[2]->elements <= 2 * LEDGER_PAGE_MAX) {
        const redisReply *list = reply->element[2];
        entries = mem_alloc_array(list->elements / 2 + 1, sizeof(*entries));
        page.is_read = true;
        page.now_ms = integer(reply, 0);
        page.entries = entries;
        read_entries(call, list, entries, &page);
    }
    if (status == REDIS_REFUSED)
        log_event(LOG_WARN, "ledger refused by Redis", log_str("backend", call->backend), log_str("error", err));
    call->page_cb(call->data, &page);
    free(entries);
    call_end(call);
}

void ledger_scan(ledger_t *ledger, const char *backend, uint64_t cursor, ledger_page_cb cb, void *data)
{
    char hash[KEY_MAX], from[NUMBER_MAX], count[NUMBER_MAX];
    call_t *call = call_begin(ledger, backend, "", data);
    call->page_cb = cb;
    key_of(ledger, "ledger:", backend, hash);
    snprintf(from, sizeof(from), "%" PRIu64, cursor);
    snprintf(count, sizeof(count), "%d", LEDGER_PAGE);
    const char *argv[] = {hash, from, count};
    evaluate(call, &ledger->scan, on_page, 1, argv, sizeof(argv) / sizeof(argv[0]));
}

static void on_instances(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    bool alive[LEDGER_INSTANCES_MAX];
    (void)err;
    check(call->ledger);
    bool is_told = status == REDIS_REPLY && is_array(reply, 0) && reply->elements == call->count;
    for (size_t i = 0; is_told && i < call->count; ++i)
        alive[i] = reply->element[i]->type != REDIS_REPLY_NIL;
    call->instances_cb(call->data, is_told ? alive : NULL, call->count);
    call_end(call);
}

void ledger_instances(ledger_t *ledger, const char (*ids)[LEDGER_INSTANCE + 1], size_t count, ledger_instances_cb cb,
                      void *data)
{
    char(*keys)[KEY_MAX] = mem_alloc_array(count + 1, sizeof(*keys));
    const char **argv = mem_alloc_array(count + 1, sizeof(*argv));
    call_t *call = call_begin(ledger, "", "", data);
    if (count == 0 || count > LEDGER_INSTANCES_MAX)
        mem_fatal("the ledger is asked about no instance, or too many");
    call->instances_cb = cb;
    call->count = count;
    argv[0] = "MGET";
    for (size_t i = 0; i < count; ++i) {
        key_of(ledger, "instance:", ids[i], keys[i]);
        argv[i + 1] = keys[i];
    }
    redis_command(ledger->redis, LEDGER_WRITE_MS, on_instances, call, (int)count + 1, argv, NULL);
    free(argv);
    free(keys);
}

static void on_nothing(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    (void)data;
    (void)status;
    (void)reply;
    (void)err;
}

void ledger_beat(ledger_t *ledger, const char *instance)
{
    char key[KEY_MAX], lease[NUMBER_MAX];
    check(ledger);
    key_of(ledger, "instance:", instance, key);
    snprintf(lease, sizeof(lease), "%d", LEDGER_LEASE_MS);
    const char *argv[] = {"SET", key, "1", "PX", lease};
    redis_command(ledger->redis, LEDGER_WRITE_MS, on_nothing, NULL, 5, argv, NULL);
}

static void on_left(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    ledger_answer_t answer = {.status = status == REDIS_REPLY ? LEDGER_DONE : LEDGER_MAYBE_WRITTEN};
    (void)reply;
    (void)err;
    call->cb(call->data, &answer);
    call_end(call);
}

void ledger_leave(ledger_t *ledger, const char *instance, ledger_cb cb, void *data)
{
    char key[KEY_MAX];
    call_t *call = call_begin(ledger, "", "", data);
    call->cb = cb;
    key_of(ledger, "instance:", instance, key);
    const char *argv[] = {"DEL", key};
    redis_command(ledger->redis, LEDGER_WRITE_MS, on_left, call, 2, argv, NULL);
}

static void on_identity(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    (void)err;
    check(call->ledger);
    const char *stamp = NULL;
    if (status == REDIS_REPLY && is_text(reply) && ledger_is_stamp(reply->str))
        stamp = reply->str;
    else if (status == REDIS_REPLY)
        log_event(LOG_ERROR, "store_key_corrupt", log_str("key", "stamp"));
    call->identity_cb(call->data, stamp);
    call_end(call);
}

static void on_identity_set(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    call_t *call = data;
    char key[KEY_MAX];
    (void)reply;
    (void)err;
    check(call->ledger);
    if (status != REDIS_REPLY) {
        call->identity_cb(call->data, NULL);
        call_end(call);
        return;
    }
    key_of(call->ledger, "stamp", "", key);
    const char *argv[] = {"GET", key};
    redis_command(call->ledger->redis, LEDGER_WRITE_MS, on_identity, call, 2, argv, NULL);
}

void ledger_identity(ledger_t *ledger, const char *known, ledger_identity_cb cb, void *data)
{
    char key[KEY_MAX], fresh[2 * IDENTITY_BYTES + 1];
    call_t *call = call_begin(ledger, "", "", data);
    call->identity_cb = cb;
    key_of(ledger, "stamp", "", key);
    random_hex(fresh, IDENTITY_BYTES);
    const char *argv[] = {"SET", key, ledger_is_stamp(known) ? known : fresh, "NX"};
    redis_command(ledger->redis, LEDGER_WRITE_MS, on_identity_set, call, 4, argv, NULL);
}

/* --- its users --- */

ledger_t *ledger_create(loop_t *loop, const redis_address_t *address, const char *installation,
                        void (*on_state)(void *data, bool up, const char *reason), void *data)
{
    ledger_t *ledger = mem_alloc(sizeof(*ledger));
    ledger->magic = LEDGER_MAGIC;
    snprintf(ledger->installation, sizeof(ledger->installation), "%s", installation);
    script_load(&ledger->put, "ledger_put", LEDGER_LUA_PUT);
    script_load(&ledger->adopt, "ledger_adopt", LEDGER_LUA_ADOPT);
    script_load(&ledger->condemn, "ledger_condemn", LEDGER_LUA_CONDEMN);
    script_load(&ledger->remove, "ledger_remove", LEDGER_LUA_REMOVE);
    script_load(&ledger->scan, "ledger_scan", LEDGER_LUA_SCAN);
    ledger->redis = redis_create(loop, address, on_state, data);
    return ledger;
}

void ledger_destroy(ledger_t *ledger)
{
    check(ledger);
    redis_destroy(ledger->redis);
    if (ledger->calls != 0)
        mem_fatal("a ledger's call was not answered");
    free(ledger->put.body);
    free(ledger->adopt.body);
    free(ledger->condemn.body);
    free(ledger->remove.body);
    free(ledger->scan.body);
    ledger->magic = 0;
    free(ledger);
}

bool ledger_is_up(const ledger_t *ledger)
{
    check(ledger);
    return redis_is_up(ledger->redis);
}
