/*
 * The Lua scripts. One on admission, one on settling, so a run costs two round trips; docs/redis-keys.md has the keys
 * and values. Rules: every key carries the caller's hash tag (Redis Cluster) and is handed in, but for the run keys
 * that a list reads; time is redis.call('TIME') alone, as copies of the gateway have clocks of their own; values read
 * are matched against their full form before they are believed; everything that can refuse stands before the first
 * write, so an error answer means that nothing was written. Redis' number-to-string conversion keeps 14 digits in Lua
 * and 17 in redis.call: microseconds (16 digits) go through string.format.
 *
 * A claim is one string: state, request digest, '.', run id, ':', rest. States and rest:
 *   L live        lease end, Redis ms
 *   J live, and somebody waits for it    the same
 *   A answered    record digest '.' backend ':' packed RunResponse
 *   G answered, output not kept    record digest '.' backend ':'
 *   U unknown     Connect code
 *   R             never stored: what a settlement says of a claim that is to go
 *   W withdrawn   nothing: this run's admission was given up before Redis answered; should it still arrive, it must do
 * nothing
 */
#include "records/store_internal.h"

/* The lifetimes the scripts spell out: a literal costs less than one more argument a run. */
_Static_assert(STORE_CLAIM_TTL_S == 86400 && STORE_WITHDRAWN_TTL_MS == 60000, "86400000 and 60000 below");
_Static_assert(STORE_RUN_TTL_S == 604800 && STORE_RUNS_KEPT == 10000, "604800000, 10000, 10016 and 9999 below");
_Static_assert(STORE_LEASE_MAX_MS == 86400000, "86400000 and 172800000 below");

/*
 * KEYS: slots, rate[, claim]. ARGV: mode (p: this process has a place; n: it has none; l: look only), request digest,
 * run id, lease ms, claim TTL ms (lease + STORE_CLAIM_TTL_S), slots (0 = no cap), rate interval us (0 = no rate),
 * interval * burst in us, the same in ms. Answer: status (store_status_t), rate remaining, us until full, us until one
 * more, slots in use[, run id[, rest]].
 */
const char STORE_LUA_ADMIT[] =
    "local call, try = redis.call, redis.pcall\n"
    "local t = call('TIME')\n"
    "local us = t[1] * 1000000 + t[2]\n"
    "local ms = math.floor(us / 1000)\n"
    /* The generic cell rate algorithm: one number, the theoretical arrival time. Never further ahead than the window,
     * so a smaller limit or a Redis clock that was set back costs at most one window. */
    "local interval, window = tonumber(ARGV[7]), tonumber(ARGV[8])\n"
    "local tat, left, rate_ok = us, 0, true\n"
    "if interval > 0 then\n"
    "  local v = try('GET', KEYS[2])\n"
    "  if v then\n"
    "    local n = type(v) == 'string' and string.match(v, '^(%d+) %d+$')\n"
    "    rate_ok = n and #n <= 16\n"
    "    if rate_ok then tat = math.min(math.max(tonumber(n), us), us + window) end\n"
    "  end\n"
    "  if rate_ok then left = math.floor((window - tat + us) / interval) end\n"
    "end\n"
    "local claim = KEYS[3]\n"
    "local c = claim and try('GET', claim)\n"
    "if c then\n"
    "  local s, d, r, at\n"
    "  if type(c) == 'string' then s, d, r, at = string.match(c, '^([LJAGUW])(%x+)%.(%x+):()') end\n"
    "  if not s or #d ~= 64 or #r ~= 32 then return {20, left, tat - us, 0, 0} end\n"
    "  if s ~= 'W' then\n"
    "    if d ~= ARGV[2] and ARGV[1] ~= 'f' then return {5, left, tat - us, 0, 0} end\n"
    "    if s == 'A' then return {2, left, tat - us, 0, 0, r, string.sub(c, at)} end\n"
    "    if s == 'G' then return {3, left, tat - us, 0, 0, r, string.sub(c, at)} end\n"
    "    if s == 'U' then return {4, left, tat - us, 0, 0, r, string.sub(c, at)} end\n"
    "    local ends = string.match(c, '^%d+$', at)\n"
    "    if not ends or #ends > 15 then return {20, left, tat - us, 0, 0} end\n"
    "    if tonumber(ends) > ms then\n"
    /* Somebody waits from now on, so settling will say so; where nothing can be written, looking every second must do.
     */
    "      if s == 'L' then try('SETRANGE', claim, 0, 'J') end\n"
    "      return {1, left, tat - us, 0, 0, r}\n"
    "    end\n"
    /* The owner died or lost Redis for the whole margin. Somebody is told so now, hence it is final. */
    "    call('SET', claim, 'U' .. d .. '.' .. r .. ':unavailable', 'PX', '86400000')\n"
    "    call('PUBLISH', string.match(claim, '^[^}]*}:') .. 'settled', claim)\n"
    "    return {4, left, tat - us, 0, 0, r, 'unavailable'}\n"
    "  end\n"
    "  if r == ARGV[3] then return {9, left, tat - us, 0, 0} end\n"
    "end\n"
    "if ARGV[1] ~= 'p' then return {ARGV[1] == 'n' and 6 or 0, left, tat - us, 0, 0} end\n"
    "local used = try('ZCARD', KEYS[1])\n"
    "if type(used) ~= 'number' then\n"
    "  if call('PTTL', KEYS[1]) < 0 then call('PEXPIRE', KEYS[1], '86400000') end\n"
    "  return {21, left, tat - us, 0, 0}\n"
    "end\n"
    "local cap = tonumber(ARGV[6])\n"
    /* Leases that ran out are dropped when they would matter; without a cap, before they pile up. */
    "if used >= (cap > 0 and cap or 1024) then\n"
    "  used = used - call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ms)\n"
    "  if cap > 0 and used >= cap then return {7, left, tat - us, 0, used} end\n"
    "end\n"
    "if interval > 0 then\n"
    "  if not rate_ok then\n"
    "    if call('PTTL', KEYS[2]) < 0 then call('PEXPIRE', KEYS[2], ARGV[9]) end\n"
    "    return {22, 0, 0, 0, used}\n"
    "  end\n"
    "  local wait = tat + interval - us - window\n"
    "  if wait > 0 then return {8, left, tat - us, wait, used} end\n"
    "  tat = tat + interval\n"
    "  left = left - 1\n"
    "  call('SET', KEYS[2], string.format('%d %d', tat, interval), 'PX', ARGV[9])\n"
    "end\n"
    "local ends = string.format('%d', ms + ARGV[4])\n"
    "if claim then call('SET', claim, 'L' .. ARGV[2] .. '.' .. ARGV[3] .. ':' .. ends, 'PX', ARGV[5]) end\n"
    "call('ZADD', KEYS[1], ends, ARGV[3])\n"
    /* Asking is cheaper than writing: only a key that might end before the longest lease is given more time. */
    "if used == 0 or call('PTTL', KEYS[1]) < 86400000 then call('PEXPIRE', KEYS[1], '172800000') end\n"
    "return {0, left, tat - us, 0, used + 1}\n";

/*
 * KEYS: slots, run, runs[, claim][, rate]. ARGV: new value of the claim (state R: it goes; every state carries digest
 * and run id, as all of the script's knowledge of the run comes from there), value of the run[, anything: the last key
 * is the rate, to give back to]. Answer: 0, or the sum of 1 (claim), 2 (slots), 4 (rate), 8 (index): keys whose value
 * is not ours to understand. Safe to repeat: the slot can be removed once, a claim leaves `live` once, a run's record
 * is written once.
 */
const char STORE_LUA_SETTLE[] =
    "local call, try = redis.call, redis.pcall\n"
    "local value = ARGV[1]\n"
    "local run = string.sub(value, 67, 98)\n"
    "local rate = ARGV[3] and KEYS[#KEYS]\n"
    "local claim = KEYS[4] ~= rate and KEYS[4]\n"
    "local bad, publish = 0, false\n"
    "if claim then\n"
    "  local state = string.byte(value)\n"
    "  local final = state ~= 82 and state ~= 87\n" /* R, W */
    /* A final verdict looks and writes in one command, and puts back what it must not replace: nobody sees a script
     * half done. For the others the head is enough: a stored answer may be a megabyte. */
    "  local c\n"
    "  if final then c = try('SET', claim, value, 'KEEPTTL', 'GET') else c = try('GETRANGE', claim, '0', '98') end\n"
    "  if type(c) == 'table' and not string.find(c.err, 'WRONGTYPE', 1, true) then return c end\n"
    "  local absent = not c or c == ''\n"
    "  local ours = not absent and type(c) == 'string' and string.byte(c) == 76 and string.find(c, string.sub(value, "
    "2, 99), 2, true) == 2\n"
    "  local joined = false\n"
    "  if not ours and not absent then\n"
    "    local s, d, r\n"
    "    if type(c) == 'string' then s, d, r = string.match(c, '^([LJAGUW])(%x+)%.(%x+):') end\n"
    "    if not s or #d ~= 64 or #r ~= 32 then bad = 1 end\n"
    "    joined = s == 'J' and r == run\n"
    "    ours = joined or s == 'L' and r == run\n"
    "    absent = s == 'W' and final\n"
    "    if final and not ours and not absent and type(c) == 'string' then call('SET', claim, c, 'KEEPTTL') end\n"
    "  end\n"
    "  publish = joined\n"
    "  if final then\n"
    /* Redis lost the claim, or the admission was given up and went on: the run was made, so its id is used. */
    "    if absent then call('PEXPIRE', claim, '86400000') end\n"
    "  elseif ours then\n"
    "    call('DEL', claim)\n"
    "  elseif absent and state == 87 then\n"
    "    call('SET', claim, value, 'PX', '60000')\n"
    "  end\n"
    "end\n"
    "local freed = try('ZREM', KEYS[1], run)\n"
    "if type(freed) ~= 'number' then bad = bad + 2 end\n"
    /* The slot is the witness that this admission took a rate token and that none was given back yet. */
    "if freed == 1 and rate then\n"
    "  local v = try('GET', rate)\n"
    "  if v then\n"
    "    local tat, interval\n"
    "    if type(v) == 'string' then tat, interval = string.match(v, '^(%d+) (%d+)$') end\n"
    "    if tat and #tat <= 16 and #interval <= 15 then\n"
    "      local t = call('TIME')\n"
    "      local us = t[1] * 1000000 + t[2]\n"
    "      tat = tat - interval\n"
    "      if tat > us then\n"
    "        call('SET', rate, string.format('%d ', tat) .. interval, 'PX', math.ceil((tat - us) / 1000))\n"
    "      else\n"
    "        call('DEL', rate)\n"
    "      end\n"
    "    else\n"
    "      bad = bad + 4\n"
    "    end\n"
    "  end\n"
    "end\n"
    "if call('SET', KEYS[2], ARGV[2], 'PX', '604800000', 'NX') then\n"
    "  local kept = try('LPUSH', KEYS[3], run)\n"
    "  if type(kept) ~= 'number' then\n"
    "    bad = bad + 8\n"
    "  else\n"
    /* Its end is far off, so renewing it now and then does: always while it is short, later at every sixteenth run. */
    "    if kept >= 10016 then call('LTRIM', KEYS[3], '0', '9999') end\n"
    "    if kept <= 16 or kept % 16 == 0 then call('PEXPIRE', KEYS[3], '34560000000') end\n"
    "  end\n"
    "end\n"
    "if publish then call('PUBLISH', string.match(claim, '^[^}]*}:') .. 'settled', claim) end\n"
    "return bad\n";

/*
 * KEYS: runs. ARGV: most runs, run id after which to go on ("" = newest), prefix of the run keys (same tag).
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
    "local out, live = {}, false\n"
    "for i = 1, #ids do\n"
    "  local v = redis.pcall('GET', ARGV[3] .. ids[i])\n"
    "  live = live or v\n"
    "  out[2 * i - 1] = ids[i]\n"
    "  out[2 * i] = type(v) == 'string' and v or (v and '' or false)\n"
    "end\n"
    /* Run keys end in the order they were written: after a page of ended ones nothing lives. */
    "if #ids > 0 and not live then\n"
    "  if from == 0 then redis.call('DEL', KEYS[1]) else redis.call('LTRIM', KEYS[1], 0, from - 1) end\n"
    "  return {}\n"
    "end\n"
    "return out\n";
