/*
 * Leases of the runs that live here, renewed in batches, off every run's way. A lease is renewed when a third of it is
 * over, some a little earlier (its run's ID says how much), so what was admitted together is not renewed together for
 * ever. A run that is over before that costs nothing. A renewal that Redis did not take is tried again until it is or
 * the run ends; it never ends a run.
 *
 * Redis alone says whose a lease is. One that ran out while nobody could renew it is renewed as well, as long as
 * nobody has taken note of its end: who does so first, a request with the key or a sweep, makes the outcome unknown for
 * good. A slot that was given away meanwhile is not taken back.
 */
#include "records/store_internal.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    LOOK_MS = 500,     /* between two looks for leases that are due, and between two tries */
    DUE_PARTS = 3,     /* a lease is due when one of these is over */
    JITTER_PARTS = 12, /* and earlier by less than one of these */
    LEASE_DIGITS = 8,  /* STORE_LEASE_MAX_MS has as many */
    REPLY_HELD = '1',  /* renewed; 0 = not ours any more */
    MS_US = 1000,
};

_Static_assert(STORE_LEASE_ENTRY == STORE_ID + STORE_ID + STORE_ID + STORE_ID / 2 + LEASE_DIGITS,
               "the form of an entry below");
_Static_assert(STORE_LEASE_ENTRY == 120 && STORE_CLAIM_HEAD == 49, "the numbers below");
_Static_assert(STORE_LEASE_MAX_MS < 100000000, "LEASE_DIGITS");

/*
 * KEYS: the live runs. ARGV: key prefix; entries of 120 bytes: the caller's tag, the run id, the claim's id or dashes,
 * the run id as 16 bytes, lease ms in 8 digits. Answer: a letter for each: 1 renewed, 0 not held any more.
 *
 * A run is over once its claim says so, or once it left `live`; both are written by the settling script, together with
 * its slot. A claim that was lost or is not ours to understand is left alone, and the run's slot is renewed.
 */
const char STORE_LUA_RENEW[] =
    "local call, try, sub = redis.call, redis.pcall, string.sub\n"
    "local t = call('TIME')\n"
    "local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local P, live, out = ARGV[1], KEYS[1], {}\n"
    "for at = 1, #ARGV[2], 120 do\n"
    "  local one = sub(ARGV[2], at, at + 119)\n"
    "  local C, run, id = P .. sub(one, 1, 32) .. ':', sub(one, 33, 64), sub(one, 65, 96)\n"
    "  local ends = string.format('%d', ms + sub(one, 113))\n"
    "  local v, claim = try('HGET', live, run), string.byte(id) ~= 45 and C .. 'claim:' .. id\n"
    "  local c, ours, over = claim and try('GET', claim), false, false\n"
    "  if type(c) == 'string' and #c >= 49 and sub(c, 34, 49) == sub(one, 97, 112) then\n"
    "    local s = string.byte(c)\n"
    "    over = s == 65 or s == 85 or s == 87\n"
    "    ours = (s == 76 or s == 74) and #c <= 64 and string.find(c, '^%d+$', 50)\n"
    "  end\n"
    /* Where `live` is not ours to understand, an unkeyed run's slot alone tells. */
    "  local held = not over and (ours or type(v) == 'string' or not claim and type(v) == 'table')\n"
    "  if held then\n"
    "    if ours then call('SET', claim, sub(c, 1, 49) .. ends, 'KEEPTTL') end\n"
    "    local rest = type(v) == 'string' and string.match(v, '^%d+( %d+ .+)$')\n"
    "    if rest then call('HSET', live, run, ends .. rest) end\n"
    "    try('ZADD', C .. 'slots', 'XX', ends, run)\n"
    "    try('ZADD', P .. 'slots', 'XX', ends, run)\n"
    "  end\n"
    "  out[#out + 1] = held and '1' or '0'\n"
    "end\n"
    "return table.concat(out)\n";

static void list_append(store_renew_t *renew, store_lease_t *lease)
{
    lease->_next = NULL;
    lease->_prev = renew->_tail;
    if (renew->_tail != NULL)
        renew->_tail->_next = lease;
    else
        renew->_head = lease;
    renew->_tail = lease;
    ++renew->count;
}

static void list_remove(store_renew_t *renew, store_lease_t *lease)
{
    if (lease->_prev != NULL)
        lease->_prev->_next = lease->_next;
    else
        renew->_head = lease->_next;
    if (lease->_next != NULL)
        lease->_next->_prev = lease->_prev;
    else
        renew->_tail = lease->_prev;
    lease->_next = lease->_prev = NULL;
    --renew->count;
}

/* The run's id is random already. */
static uint64_t due_after_us(const store_lease_t *lease)
{
    uint64_t whole_us = (uint64_t)lease->_lease_ms * MS_US;
    const uint8_t *raw = (const uint8_t *)lease->_entry + 3 * STORE_ID;
    return whole_us / DUE_PARTS - whole_us / JITTER_PARTS * raw[0] / 256;
}

static void begin_anew(store_lease_t *lease, uint64_t since_us)
{
    lease->_ends_us = since_us + (uint64_t)lease->_lease_ms * MS_US;
    lease->_due_us = since_us + due_after_us(lease);
}

void store_lease_hold(store_t *store, store_lease_t *lease, const store_admission_t *admission, uint64_t since_us)
{
    store_prefix_t prefix = store_prefix(store, admission->caller);
    char *at = lease->_entry;
    if (lease->_store != NULL || !store_is_hex(admission->run_id, STORE_ID))
        mem_fatal("store_renew: a lease that cannot be held");
    lease->_lease_ms = admission->lease_ms < STORE_LEASE_MAX_MS ? admission->lease_ms : STORE_LEASE_MAX_MS;
    memcpy(at, prefix.text + store->root.len, STORE_ID);
    memcpy(at + STORE_ID, admission->run_id, STORE_ID);
    if (admission->request_id != NULL && store_is_hex(admission->request_id, STORE_ID))
        memcpy(at + 2 * STORE_ID, admission->request_id, STORE_ID);
    else
        memset(at + 2 * STORE_ID, '-', STORE_ID);
    store_raw_of(admission->run_id, STORE_ID / 2, (uint8_t *)at + 3 * STORE_ID);
    char digits[STORE_NUMBER_MAX];
    snprintf(digits, sizeof(digits), "%0*u", (int)LEASE_DIGITS, (unsigned)lease->_lease_ms);
    memcpy(at + 3 * STORE_ID + STORE_ID / 2, digits, LEASE_DIGITS);
    lease->_store = store;
    lease->_place = -1;
    begin_anew(lease, since_us);
    list_append(&store->renew, lease);
    if (!loop_timer_is_running(&store->renew.timer))
        loop_timer_start(store->loop, &store->renew.timer, LOOK_MS);
}

void store_lease_drop(store_lease_t *lease)
{
    if (lease->_store == NULL)
        return;
    store_renew_t *renew = &lease->_store->renew;
    if (lease->_place >= 0)
        renew->batch[lease->_place] = NULL; /* its renewal is on its way, and may do what it likes */
    list_remove(renew, lease);
    lease->_store = NULL;
    lease->_ends_us = 0;
}

uint32_t store_lease_left_ms(const store_lease_t *lease)
{
    uint64_t now = clock_mono_us();
    return lease->_ends_us > now ? (uint32_t)((lease->_ends_us - now) / MS_US) : 0;
}

static void lose(store_lease_t *lease)
{
    log_event(LOG_WARN, "a run's lease has ended: its outcome is unknown to others",
              log_strn("run_id", lease->_entry + STORE_ID, STORE_ID));
    store_lease_drop(lease);
}

static bool is_reply(const store_renew_t *renew, const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING && reply->len == renew->batch_count &&
           strspn(reply->str, "01") == reply->len;
}

static void send_due(store_t *store);

static void on_reply(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_t *store = data;
    store_renew_t *renew = &store->renew;
    bool answered = status == REDIS_REPLY && is_reply(renew, reply);
    renew->in_flight = false;
    if (status == REDIS_REFUSED)
        log_event(LOG_WARN, "store_renew_failed", log_str("reason", err));
    else if (status == REDIS_REPLY && !answered)
        log_event(LOG_ERROR, "store_reply_malformed", log_str("script", "renew"));
    for (size_t i = 0; i != renew->batch_count; ++i) {
        store_lease_t *lease = renew->batch[i];
        if (lease == NULL)
            continue;
        lease->_place = -1;
        if (!answered)
            lease->_due_us = clock_mono_us() + (uint64_t)LOOK_MS * MS_US;
        else if (reply->str[i] == REPLY_HELD)
            begin_anew(lease, renew->sent_us);
        else
            lose(lease);
    }
    renew->batch_count = 0;
    if (answered && !store->closing)
        send_due(store);
}

/* The list begins with what was renewed longest ago. */
static void send_due(store_t *store)
{
    store_renew_t *renew = &store->renew;
    char entries[STORE_RENEW_BATCH * STORE_LEASE_ENTRY], key[STORE_CLAIM_KEY_MAX];
    uint64_t now = clock_mono_us();
    size_t looked = renew->count;
    if (renew->in_flight || !store_is_up(store))
        return;
    for (store_lease_t *lease = renew->_head, *next; looked != 0 && renew->batch_count != STORE_RENEW_BATCH;
         lease = next, --looked) {
        next = lease->_next;
        if (now < lease->_due_us)
            continue;
        memcpy(entries + renew->batch_count * STORE_LEASE_ENTRY, lease->_entry, STORE_LEASE_ENTRY);
        lease->_place = (int)renew->batch_count;
        renew->batch[renew->batch_count++] = lease;
        list_remove(renew, lease);
        list_append(renew, lease);
    }
    if (renew->batch_count == 0)
        return;
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, key, store_key(key, &store->root, "live", ""));
    args.nkeys = args.argc;
    store_argv_add(&args, store->root.text, store->root.len);
    store_argv_add(&args, entries, renew->batch_count * STORE_LEASE_ENTRY);
    renew->in_flight = true;
    renew->sent_us = now;
    /* nobody waits for it, and a slow Redis is no reason to lose a run */
    redis_eval(store_redis_for(store, "0"), &renew->script, STORE_RETRY_DEADLINE_MS, on_reply, store, args.nkeys,
               args.argc, args.base, args.len);
}

static void on_timer(loop_timer_t *timer)
{
    store_t *store = timer->data;
    if (store->renew.count != 0)
        loop_timer_start(store->loop, &store->renew.timer, LOOK_MS);
    send_due(store);
}

void store_renew_init(store_t *store)
{
    redis_script_init(&store->renew.script, "renew", STORE_LUA_RENEW);
    loop_timer_init(&store->renew.timer, on_timer, store);
}

void store_renew_dispose(store_t *store)
{
    loop_timer_stop(&store->renew.timer);
    while (store->renew._head != NULL)
        store_lease_drop(store->renew._head);
}
