/* The scripts that read: runs, receipts, usage. Rules: store_admit_lua.c. */
#include "records/store_bill_lua.h"
#include "records/store_internal.h"

_Static_assert(STORE_RUNS_KEPT == 10000 && STORE_RECEIPTS_KEPT == 1000 && STORE_RUN_MAX == 65536,
               "10000, 1000, 999 and 65536 below");

/*
 * KEYS: runs. ARGV: most runs, run id (16 bytes) after which to go on ("" = newest), prefix of the run keys.
 * Answer: 0 when the index is not ours to understand, else an array: run id, value or nil ("" for a key of another
 * type), ...
 */
const char STORE_LUA_RUNS[] =
    "local kind = redis.call('TYPE', KEYS[1])['ok']\n"
    "if kind == 'none' then return {} end\n"
    "if kind ~= 'list' then return 0 end\n"
    "local from = 0\n"
    "if ARGV[2] ~= '' then\n"
    "  local at = redis.call('LPOS', KEYS[1], ARGV[2])\n"
    /* Only the oldest leave the index, so what stood after an entry that left has left too. */
    "  if not at then return {} end\n"
    "  from = at + 1\n"
    "end\n"
    "if from >= 10000 then return {} end\n"
    "local ids = redis.call('LRANGE', KEYS[1], from, math.min(from + ARGV[1], 10000) - 1)\n"
    "local out, live, hex = {}, false, string.rep('%02x', 16)\n"
    "for i = 1, #ids do\n"
    "  local id = ids[i]\n"
    "  local v = ''\n"
    "  if #id == 16 then\n"
    "    id = string.format(hex, string.byte(id, 1, 16))\n"
    "    v = redis.pcall('GETRANGE', ARGV[3] .. id, '0', '65536')\n"
    "    if v == '' then v = false end\n"
    "    if type(v) == 'string' and #v > 65536 then v = '' end\n"
    "  end\n"
    "  live = live or v\n"
    "  out[2 * i - 1] = id\n"
    "  out[2 * i] = type(v) == 'string' and v or (v and '' or false)\n"
    "end\n"
    /* Run keys end in the order they were written: after a page of ended ones nothing lives. */
    "if #ids > 0 and not live then\n"
    "  if from == 0 then redis.call('DEL', KEYS[1]) else redis.call('LTRIM', KEYS[1], 0, from - 1) end\n"
    "  return {}\n"
    "end\n"
    "return out\n";

/* KEYS: receipts. ARGV: most, id after which to go on ("" = newest). Answer: as of STORE_LUA_RUNS. */
const char STORE_LUA_RECEIPTS[] = "local all = redis.pcall('LRANGE', KEYS[1], '0', '999')\n"
                                  "if all.err then return 0 end\n"
                                  "local from = 1\n"
                                  "if ARGV[2] ~= '' then\n"
                                  "  from = #all + 1\n"
                                  "  for i = 1, #all do\n"
                                  "    if string.sub(all[i], 1, 16) == ARGV[2] then\n"
                                  "      from = i + 1\n"
                                  "      break\n"
                                  "    end\n"
                                  "  end\n"
                                  "end\n"
                                  "local out, hex = {}, string.rep('%02x', 16)\n"
                                  "for i = from, math.min(from + ARGV[1] - 1, #all) do\n"
                                  "  if #all[i] < 16 then return 0 end\n"
                                  "  out[#out + 1] = string.format(hex, string.byte(all[i], 1, 16))\n"
                                  "  out[#out + 1] = string.sub(all[i], 17)\n"
                                  "end\n"
                                  "return out\n";

/* KEYS: receipts. ARGV: run id (16 bytes) and value, TTL ms. Answer: 0, or the key, which is not ours to understand: it
 * gets an end, and receipts can be kept again after it. */
const char STORE_LUA_RECEIPT[] =
    "local n = redis.pcall('LPUSH', KEYS[1], ARGV[1])\n"
    "if type(n) ~= 'number' then\n"
    "  if not string.find(n.err, 'WRONGTYPE', 1, true) then return n end\n"
    "  if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], '86400000') end\n"
    "  return KEYS[1]\n"
    "end\n"
    "if n > 1000 then redis.call('LTRIM', KEYS[1], '0', '999') end\n"
    "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
    "return 0\n";

/*
 * KEYS: slots of the scope. ARGV: key prefix, tag and ":" of the caller or "", rate interval us, interval * burst,
 * window s. Answer: the key that is not ours to understand, or: day, runs, spent (3), unpriced ms, held (3), slots in
 * use, rate remaining, us until full, runs of the window, ms to its end, ms to the day's end.
 */
const char STORE_LUA_USAGE[] =
    "local P, call, try = ARGV[1], redis.call, redis.pcall\n" STORE_BILL_DAY_LUA STORE_BILL_SUMS_LUA
    "local t = call('TIME')\n"
    "local us = t[1] * 1000000 + t[2]\n"
    "local ms = math.floor(us / 1000)\n"
    "local C, today = P .. ARGV[2], bill_day(ms)\n"
    "if not bill_sweep(ms, '64') then return P .. 'held' end\n"
    "local spent, held = bill_read(C .. 'day:' .. today), bill_read(C .. 'holds')\n"
    "if not spent then return C .. 'day:' .. today end\n"
    "if not held then return C .. 'holds' end\n"
    "local slots = try('ZCOUNT', C .. 'slots', string.format('(%d', ms), '+inf')\n"
    "if type(slots) ~= 'number' then return C .. 'slots' end\n"
    "local interval, window, span = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])\n"
    "local left, reset, count, window_ends = 0, 0, 0, 0\n"
    "if interval > 0 then\n"
    "  local tat, v = us, try('GET', C .. 'rate')\n"
    "  if v then\n"
    "    local n = type(v) == 'string' and string.match(v, '^(%d+) %d+$')\n"
    "    if not n or #n > 16 then return C .. 'rate' end\n"
    "    tat = math.min(math.max(tonumber(n), us), us + window)\n"
    "  end\n"
    "  left, reset = math.floor((window - tat + us) / interval), tat - us\n"
    "end\n"
    "if span > 0 then\n"
    "  local number = math.floor(ms / 1000 / span)\n"
    "  local v = try('GET', C .. 'window')\n"
    "  if v then\n"
    "    local w, at, n\n"
    "    if type(v) == 'string' and #v < 60 then w, at, n = string.match(v, '^(%d+) (%d+) (%d+)$') end\n"
    "    if not w then return C .. 'window' end\n"
    "    if tonumber(w) == span and tonumber(at) == number then count = tonumber(n) end\n"
    "  end\n"
    "  window_ends = (number + 1) * span * 1000 - ms\n"
    "end\n"
    "return {today, spent[1], spent[2], spent[3], spent[4], spent[5], held[2], held[3], held[4], slots, left, reset, "
    "count, window_ends,\n"
    "  (math.floor(ms / 86400000) + 1) * 86400000 - ms}\n";

/* KEYS: callers of any day. ARGV: key prefix, day or "", where to start as ZRANGEBYLEX has it, most. Answer: the key
 * that is not ours to understand, or: day, ms to the end of today, and for each caller its name, runs, spent (3), held
 * (3), slots in use. */
const char STORE_LUA_USAGE_ALL[] =
    "local P, call, try = ARGV[1], redis.call, redis.pcall\n" STORE_BILL_DAY_LUA STORE_BILL_SUMS_LUA
    "local t = call('TIME')\n"
    "local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local today = bill_day(ms)\n"
    "local day = ARGV[2] ~= '' and ARGV[2] or today\n"
    "if not bill_sweep(ms, '64') then return P .. 'held' end\n"
    "local rows = try('ZRANGEBYLEX', P .. 'callers:' .. day, ARGV[3], '+', 'LIMIT', '0', ARGV[4])\n"
    "if rows.err then return P .. 'callers:' .. day end\n"
    "local out = {day, (math.floor(ms / 86400000) + 1) * 86400000 - ms}\n"
    "for _, row in ipairs(rows) do\n"
    "  local caller, tag = string.match(row, '^(.*)%z(%x+)$')\n"
    "  if not tag or #tag ~= 32 then return P .. 'callers:' .. day end\n"
    "  local C, slots, held = P .. tag .. ':', 0, {0, 0, 0, 0}\n"
    "  local spent = bill_read(C .. 'day:' .. day)\n"
    "  if not spent then return C .. 'day:' .. day end\n"
    "  if day == today then\n"
    "    slots = try('ZCOUNT', C .. 'slots', string.format('(%d', ms), '+inf')\n"
    "    if type(slots) ~= 'number' then return C .. 'slots' end\n"
    "    held = bill_read(C .. 'holds')\n"
    "    if not held then return C .. 'holds' end\n"
    "  end\n"
    "  out[#out + 1] = caller\n"
    "  for _, n in ipairs({spent[1], spent[2], spent[3], spent[4], spent[5], held[2], held[3], held[4], slots}) do "
    "out[#out + 1] = n end\n"
    "end\n"
    "return out\n";
