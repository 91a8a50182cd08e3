/*
 * What a copy of the gateway that died left behind: runs past their lease that nobody settled. Every copy looks for
 * them now and then, and settles each as unknown, so each has its one record, its leaf and an end to its claim and
 * slots, keyed or not, asked for or not.
 *
 * An owner that lives settles long before its lease ends; one whose Redis was away has what it could not settle in its
 * spool, and so may one that died and was started again. So nothing is swept until this store has been up for
 * STORE_SWEEP_UP_MS and has nothing of its own to send: spools come first. Whoever settles a run first makes its
 * record.
 */
#include "records/store_internal.h"

#include <string.h>

#include "core/log.h"
#include "core/mem.h"

enum {
    SWEEP_FIELDS = 4,    /* of an entry in the script's answer */
    SWEEP_MOST = 64,     /* runs settled in one sweep: more than a copy runs at once */
    SWEEP_TIME_MAX = 15, /* digits of a time in ms */
};

_Static_assert(STORE_ID == 32 && STORE_SHA == 64 && STORE_STRING_MAX == 256, "the form of an entry below");
_Static_assert(STORE_LEASE_MAX_MS == 86400000, "86400000 below");

/*
 * KEYS: the live runs. ARGV: prefix, most, ms for which no other copy looks. Each entry is "lease end, admission (Redis
 * ms), claim id or -, " and behind these words 32 bytes of digest and the caller. Answer: run id, lease end, admission,
 * the rest, ... of those whose leases have run out. An entry of another form is set aside.
 */
const char STORE_LUA_SWEEP[] =
    "local call = redis.call\n"
    "if not call('SET', ARGV[1] .. 'sweep', '1', 'PX', ARGV[3], 'NX') then return {} end\n"
    "local t = call('TIME')\n"
    "local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local out, cursor, most = {}, '0', tonumber(ARGV[2])\n"
    "repeat\n"
    "  local page = call('HSCAN', KEYS[1], cursor, 'COUNT', '256')\n"
    "  cursor = page[1]\n"
    "  for i = 1, #page[2], 2 do\n"
    "    local run, value = page[2][i], page[2][i + 1]\n"
    "    local ends, began, rest = string.match(value, '^(%d+) (%d+) (.+)$')\n"
    "    local head = rest and (string.byte(rest) == 45 and 1 or 32)\n"
    "    if not ends or #ends > 15 or #began > 15 or not string.find(run, '^[0-9a-f]+$') or #run ~= 32 or #rest < head "
    "+ "
    "34 or #rest > head + 289 or string.byte(rest, head + 1) ~= 32 or head == 32 and not string.find(string.sub(rest, "
    "1, "
    "32), '^[0-9a-f]+$') or string.find(rest, '%z', head + 34) then\n"
    "      call('HDEL', KEYS[1], run)\n"
    "      call('HSET', KEYS[1] .. ':aside', run, value)\n"
    "      call('PEXPIRE', KEYS[1] .. ':aside', '691200000')\n"
    "      out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = '', '0', '0', ''\n"
    /* Redis' clock was set back, or a fail-over led to one that is behind: the lease begins anew, as it would end far
     * off.
     */
    "    elseif tonumber(began) > ms + 60000 then\n"
    "      local lease = math.min(math.max(ends - began, 0), 86400000)\n"
    "      call('HSET', KEYS[1], run, string.format('%d %d ', ms + lease, ms) .. rest)\n"
    "    elseif tonumber(ends) <= ms then\n"
    "      out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = run, ends, began, rest\n"
    "    end\n"
    "  end\n"
    "until cursor == '0' or #out >= 4 * most\n"
    "return out\n";

static void on_settled(void *data, bool stored)
{
    (void)data, (void)stored; /* one that was not taken is kept and sent again, as any */
}

static int64_t number_of(const redisReply *r)
{
    int64_t n = 0;
    for (size_t i = 0; i < r->len && i < SWEEP_TIME_MAX; i++)
        n = n * 10 + (r->str[i] - '0'); /* the script has matched digits */
    return n;
}

/* What the words say is settled; false when they are not ours to understand. */
static bool settle_one(store_t *store, const redisReply *run, const redisReply *ends, const redisReply *began,
                       const redisReply *rest)
{
    char run_id[STORE_ID + 1], claim[STORE_ID + 1], digest[STORE_SHA + 1], caller[STORE_STRING_MAX + 1];
    bool keyed = rest->len > STORE_ID && rest->str[0] != '-';
    size_t head = keyed ? STORE_ID : 1, at = head + 1 + STORE_SHA / 2;
    if (!store_is_hexn(run->str, run->len, STORE_ID) || rest->len <= at || rest->len - at > STORE_STRING_MAX ||
        rest->str[head] != ' ' || (keyed && !store_is_hexn(rest->str, head, STORE_ID)) ||
        memchr(rest->str + at, '\0', rest->len - at) != NULL)
        return false;
    memcpy(run_id, run->str, STORE_ID);
    run_id[STORE_ID] = '\0';
    memcpy(claim, rest->str, head);
    claim[head] = '\0';
    store_hex_of((const uint8_t *)rest->str + head + 1, STORE_SHA / 2, digest);
    memcpy(caller, rest->str + at, rest->len - at);
    caller[rest->len - at] = '\0';
    log_event(LOG_WARN, "a run's copy is gone: its outcome is unknown", log_str("run_id", run_id),
              log_str("caller", caller));
    store_settle(store,
                 &(store_settlement_t){.caller = caller,
                                       .request_id = keyed ? claim : NULL,
                                       .run_id = run_id,
                                       .verdict = VERDICT_UNKNOWN,
                                       .keeps_hold = true, /* the ledger, or its expiry, charges it */
                                       .request_sha256 = digest,
                                       .started_unix_ms = number_of(began),
                                       .ended_unix_ms = number_of(ends),
                                       .unknown_code = "unavailable"},
                 on_settled, store);
    return true;
}

static bool is_reply(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % SWEEP_FIELDS != 0)
        return false;
    for (size_t i = 0; i != reply->elements; ++i)
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

static void on_swept(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_t *store = data;
    if (status == REDIS_REFUSED)
        log_event(LOG_WARN, "store_sweep_failed", log_str("reason", err));
    if (status != REDIS_REPLY || store->closing)
        return;
    if (!is_reply(reply)) {
        log_event(LOG_ERROR, "store_reply_malformed", log_str("script", "sweep"));
        return;
    }
    for (size_t i = 0; i + SWEEP_FIELDS <= reply->elements && i < SWEEP_FIELDS * SWEEP_MOST; i += SWEEP_FIELDS) {
        redisReply **r = &reply->element[i];
        if (!settle_one(store, r[0], r[1], r[2], r[3])) {
            char key[STORE_CLAIM_KEY_MAX];
            store_key(key, &store->root, "live", "");
            store_log_corrupt(key);
        }
    }
}

static void on_timer(loop_timer_t *timer)
{
    store_t *store = timer->data;
    store_sweep_t *sweep = &store->sweep;
    char key[STORE_CLAIM_KEY_MAX], most[STORE_NUMBER_MAX], pause[STORE_NUMBER_MAX];
    loop_timer_start(store->loop, &sweep->timer, STORE_SWEEP_MS);
    sweep->up_ms = store_is_up(store) ? sweep->up_ms + STORE_SWEEP_MS : 0;
    /* not the backlog: a copy that is never idle always has settlements under way */
    if (sweep->up_ms < STORE_SWEEP_UP_MS || store->retry.count != 0 || !store_spool_is_empty(store))
        return;
    sweep->up_ms = STORE_SWEEP_UP_MS;
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, key, store_key(key, &store->root, "live", ""));
    args.nkeys = args.argc;
    store_argv_add(&args, store->root.text, store->root.len);
    store_argv_add_number(&args, most, SWEEP_MOST);
    store_argv_add_number(&args, pause, STORE_SWEEP_MS / 2);
    redis_eval(store_redis_for(store, "0"), &sweep->script, STORE_DEADLINE_MS, on_swept, store, args.nkeys, args.argc,
               args.base, args.len);
}

void store_sweep_init(store_t *store)
{
    redis_script_init(&store->sweep.script, "sweep", STORE_LUA_SWEEP);
    loop_timer_init(&store->sweep.timer, on_timer, store);
    loop_timer_start(store->loop, &store->sweep.timer, STORE_SWEEP_MS);
}

void store_sweep_dispose(store_t *store)
{
    loop_timer_stop(&store->sweep.timer);
}
