/*
 * The ledger's scripts. Every key carries the installation's hash tag and is handed in; time is redis.call('TIME')
 * alone; a value is matched against its full form before it is believed, and one of another form is left as it is.
 * Whatever can refuse stands before the first write. All may be repeated.
 *
 * `words(v)` gives a value's words (records/ledger_entry.h), or nothing when it is none; `join` is its inverse.
 */
#include "records/ledger.h"
#include "records/store_bill_lua.h"

_Static_assert(LEDGER_WORDS == 17 && LEDGER_INSTANCE == 16 && LEDGER_STAMP == 32, "the patterns below");

const char LEDGER_LUA_FORM[] =
    "local call, try = redis.call, redis.pcall\n"
    "local t = call('TIME')\n"
    "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local function words(v)\n"
    "  if type(v) ~= 'string' or #v > 2399 then return nil end\n"
    "  local w = {}\n"
    "  for x in string.gmatch(v, '[^ ]+') do w[#w + 1] = x end\n"
    "  if #w ~= 17 or table.concat(w, ' ') ~= v then return nil end\n"
    "  if w[1] ~= '1' or not (w[2] == 'asked' or w[2] == 'named' or w[2] == 'condemned') then return nil end\n"
    "  if not string.match(w[3], '^%x+$') or #w[3] ~= 16 then return nil end\n"
    "  for _, i in ipairs({6, 7, 8, 13, 14, 15, 16}) do\n"
    "    if not string.match(w[i], '^%d+$') or #w[i] > 15 then return nil end\n"
    "  end\n"
    "  return w\n"
    "end\n"
    "local function number(n) return string.format('%d', n) end\n";

/*
 * Makes the entry what its instance says it is, and shows that the instance lives.
 * KEYS: ledger, instance. ARGV: stamp, instance, host, place, age ms, life ms, billed, run, caller's tag, caller, id,
 * tries, price, reported ms, error, condemned (1 or 0), must be new (1 or 0), lease ms, entries at most. Answer:
 * status, created, state, now. An entry that another instance has taken over stays that one's.
 */
const char LEDGER_LUA_PUT[] =
    "local v = try('HGET', KEYS[1], ARGV[1])\n"
    "local w\n"
    "if v then\n"
    "  w = words(v)\n"
    "  if not w then return {4, 0, '', now} end\n"
    "  if w[3] ~= ARGV[2] then return {2, tonumber(w[6]), w[2], now} end\n"
    "end\n"
    "if not v and ARGV[17] == '1' and call('HLEN', KEYS[1]) >= tonumber(ARGV[19]) then return {3, 0, '', now} end\n"
    "local created = w and w[6] or number(math.max(now - ARGV[5], 0))\n"
    "local deadline = w and w[7] or number(created + ARGV[6])\n"
    "local id = ARGV[11]\n"
    "if id == '-' and w then id = w[12] end\n"
    "local since = w and w[14] or '0'\n"
    "if since == '0' and ARGV[16] == '1' then since = number(now) end\n"
    "local state = since ~= '0' and 'condemned' or (id ~= '-' and 'named' or 'asked')\n"
    "call('HSET', KEYS[1], ARGV[1], table.concat({'1', state, ARGV[2], ARGV[3], ARGV[4], created, deadline, ARGV[7], "
    "ARGV[8], ARGV[9], ARGV[10], id, ARGV[12], since, ARGV[13], ARGV[14], ARGV[15]}, ' '))\n"
    "call('SET', KEYS[2], '1', 'PX', ARGV[18])\n"
    "return {0, tonumber(created), state, now}\n";

/*
 * Takes over an entry whose instance is dead: condemned, and the taker's.
 * KEYS: ledger, the old instance, the new one. ARGV: stamp, old instance, new instance, host, known to be dead (1) or
 * only by its lease (0), lease ms. Answer: status.
 */
const char LEDGER_LUA_ADOPT[] = "local v = try('HGET', KEYS[1], ARGV[1])\n"
                                "if not v then return {1} end\n"
                                "local w = words(v)\n"
                                "if not w then return {4} end\n"
                                "if w[3] ~= ARGV[2] then return {2} end\n"
                                "if ARGV[5] ~= '1' and call('EXISTS', KEYS[2]) == 1 then return {5} end\n"
                                "w[2], w[3], w[4] = 'condemned', ARGV[3], ARGV[4]\n"
                                "if w[14] == '0' then w[14] = number(now) end\n"
                                "call('HSET', KEYS[1], ARGV[1], table.concat(w, ' '))\n"
                                "call('SET', KEYS[3], '1', 'PX', ARGV[6])\n"
                                "return {0}\n";

/* Somebody wants it gone. KEYS: ledger. ARGV: stamp. Answer: status. */
const char LEDGER_LUA_CONDEMN[] = "local v = try('HGET', KEYS[1], ARGV[1])\n"
                                  "if not v then return {1} end\n"
                                  "local w = words(v)\n"
                                  "if not w then return {4} end\n"
                                  "if w[2] ~= 'condemned' then\n"
                                  "  w[2], w[14] = 'condemned', number(now)\n"
                                  "  call('HSET', KEYS[1], ARGV[1], table.concat(w, ' '))\n"
                                  "end\n"
                                  "return {0}\n";

/*
 * Its absence is confirmed: the entry goes, and what a billed one came to is charged to its run, once, in the same
 * step. KEYS: ledger. ARGV: stamp, ms since it was to go as far as the caller knows, prefix of the installation's keys,
 * 1 when it never was.
 * Answer: status, ms it existed, ms it stayed after it was to go, 0 or 64 (a budget's key is none of ours).
 */
const char LEDGER_LUA_REMOVE[] =
    "local P = ARGV[3]\n" STORE_BILL_LUA "local v = try('HGET', KEYS[1], ARGV[1])\n"
    "if not v then return {1, 0, 0, 0} end\n"
    "local w = words(v)\n"
    "if not w then return {4, 0, 0, 0} end\n"
    "local existed = math.max(now - w[6], 0)\n"
    "local late = tonumber(ARGV[2])\n"
    "if w[14] ~= '0' then late = math.max(late, now - w[14]) end\n"
    "late = math.min(math.max(late, 0), existed)\n"
    "local bad = 0\n"
    "if call('HDEL', KEYS[1], ARGV[1]) == 1 and ARGV[4] ~= '1' and w[8] == '1' and w[9] ~= '-' and w[10] ~= '-' then\n"
    "  bad = bill_removed(w[9], w[10], existed, tonumber(w[16]), 1, tonumber(w[15]))\n"
    "end\n"
    "return {0, existed, late, bad}\n";

/* A page of the ledger. KEYS: ledger. ARGV: cursor, about how many. Answer: now, next cursor, stamps and values. */
const char LEDGER_LUA_SCAN[] = "local page = call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])\n"
                               "return {now, page[1], page[2]}\n";
