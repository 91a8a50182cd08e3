/*
 * The admission script. Rules for all of the store's scripts: every key carries the installation's hash tag; time is
 * redis.call('TIME') alone, as copies of the gateway have clocks of their own; values read are matched against their
 * full form before they are believed; everything that can refuse stands before the first write, so an error answer
 * means that nothing was written. Redis' number-to-string conversion keeps 14 digits in Lua and 17 in redis.call:
 * microseconds (16 digits) go through string.format.
 *
 * A claim is one string: a letter, the request digest (32 bytes), the run that has it (16 bytes), rest. Letters and
 * rest:
 *   L live        lease end, Redis ms
 *   J live, and somebody waits for it    the same
 *   A answered    nothing: the answer and the record have keys of their own
 *   U unknown     Connect code
 *   R             never stored: what a settlement says of a claim that is to go
 *   W withdrawn   nothing: this run's admission was given up before Redis answered; should it still arrive, it must do
 *                 nothing
 *
 * KEYS: slots, rate, claim (modes p, n, l, f) or run (u, v). ARGV: mode (p: keyed, with a place; n: without; u, v: the
 * same unkeyed; l: look only; f: look, whatever the digest) and behind the letter the caller, digest and run id as 48
 * bytes, run id, lease ms, claim TTL ms (life + run TTL), slots (0 = no cap), rate interval us (0 = no rate), interval
 * * burst in us, the same in ms; and when there is more than that to heed: 10 key prefix, 11 the gateway's slots, 12 to
 * 14 its rate, 15 window s, 16 runs a window, 17 the gateway's, 18 to 20 caps a day in sandbox ms, paid ms and micros,
 * 21 to 23 the gateway's, 24 to 26 the hold, 27 its ms, 28 the caller's tag, 29 the caller. Answer: status
 * (store_status_t), rate remaining, us until full, us until it may be sent again, slots in use, and by status: run id
 * (16 bytes)[, answer or nil, run's value or nil | Connect code]; the key that is not ours to understand; number of the
 * cap, 1 for the gateway's, its limit, used.
 */
#include "records/store_bill_lua.h"
#include "records/store_internal.h"

/* The lifetimes the script spells out: a literal costs less than one more argument a run. */
_Static_assert(STORE_LEASE_MAX_MS == 86400000, "86400000 and 172800000 below");
_Static_assert(STORE_CLAIM_HEAD + STORE_CODE_MAX == 80 && STORE_ANSWER_MAX == 1048576 && STORE_RUN_MAX == 65536,
               "the sizes below");
_Static_assert(CAP_SLOTS == 1 && CAP_RATE == 2 && CAP_RUNS == 3 && CAP_SECONDS == 4 && CAP_PAID == 5 && CAP_COST == 6,
               "the numbers of caps below");

const char STORE_LUA_ADMIT[] =
    "local call, try = redis.call, redis.pcall\n"
    "local t = call('TIME')\n"
    "local us = t[1] * 1000000 + t[2]\n"
    "local ms = math.floor(us / 1000)\n"
    /* The generic cell rate algorithm: one number, the theoretical arrival time. Never further ahead than the window,
       so a smaller limit or a Redis clock that was set back costs at most one window. */
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
    "local mode = string.sub(ARGV[1], 1, 1)\n"
    "if mode == 'u' or mode == 'v' then\n"
    /* Withdrawn before it came: an unkeyed run has no claim to tell it so. */
    "  if call('EXISTS', KEYS[3]) == 1 then return {9, left, tat - us, 0, 0} end\n"
    "else\n"
    "  local claim = KEYS[3]\n"
    "  local c = try('GET', claim)\n"
    "  if c then\n"
    "    local s = type(c) == 'string' and #c >= 49 and #c <= 80 and string.byte(c)\n"
    "    local r = s and string.sub(c, 34, 49)\n"
    "    if s == 87 and #c == 49 then\n"
    "      if r == string.sub(ARGV[2], 33) then return {9, left, tat - us, 0, 0} end\n"
    "    elseif s ~= 76 and s ~= 74 and (s ~= 65 or #c ~= 49) and s ~= 85 then\n"
    "      return {20, left, tat - us, 0, 0}\n"
    "    else\n"
    "      if mode ~= 'f' and string.sub(c, 2, 33) ~= string.sub(ARGV[2], 1, 32) then return {5, left, tat - us, 0, 0} "
    "end\n"
    "      if s == 65 then\n"
    "        local base = string.sub(KEYS[1], 1, -6)\n"
    "        local id = string.format(string.rep('%02x', 16), string.byte(r, 1, 16))\n"
    /* No more of either than is ever kept: what else there may be is none of ours. */
    "        local function part(name, most)\n"
    "          local v = try('GETRANGE', base .. name .. id, '0', most)\n"
    "          if v == '' then return false end\n"
    "          return type(v) == 'string' and #v <= tonumber(most) and v or 0\n"
    "        end\n"
    "        return {2, left, tat - us, 0, 0, r, part('answer:', '1048576'), part('run:', '65536')}\n"
    "      end\n"
    "      if s == 85 then return {4, left, tat - us, 0, 0, r, string.sub(c, 50)} end\n"
    "      local ends = string.match(c, '^%d+$', 50)\n"
    "      if not ends or #ends > 15 then return {20, left, tat - us, 0, 0} end\n"
    "      if tonumber(ends) > ms then\n"
    /* Somebody waits from now on, so settling will say so; where nothing can be written, looking every second must do.
     */
    "        if s == 76 then try('SETRANGE', claim, 0, 'J') end\n"
    "        return {1, left, tat - us, 0, 0, r}\n"
    "      end\n"
    /* The owner died or lost Redis for the whole lease. Somebody is told so now, hence it is final. Should the owner
   live, its run goes on no longer than the claim was to be kept: that is never made shorter. */
    "      call('SET', claim, 'U' .. string.sub(c, 2, 49) .. 'unavailable', 'KEEPTTL')\n"
    "      if call('PTTL', claim) < tonumber(ARGV[5]) then call('PEXPIRE', claim, ARGV[5]) end\n"
    "      call('PUBLISH', string.match(claim, '^[^}]*}:') .. 'settled', claim)\n"
    "      return {4, left, tat - us, 0, 0, r, 'unavailable'}\n"
    "    end\n"
    "  end\n"
    "end\n"
    "if mode ~= 'p' and mode ~= 'u' then return {(mode == 'n' or mode == 'v') and 6 or 0, left, tat - us, 0, 0} end\n"
    /* Of the caller, then, where the whole gateway is capped too, of all. */
    "local total = ARGV[10] and tonumber(ARGV[11]) > 0 and ARGV[10] .. 'slots'\n"
    "local total_used, used, stale, total_stale = 0, 0, false, false\n"
    "if total then\n"
    "  total_used = try('ZCARD', total)\n"
    "  if type(total_used) ~= 'number' then\n"
    "    if call('PTTL', total) < 0 then call('PEXPIRE', total, '86400000') end\n"
    "    return {21, left, tat - us, 0, 0, total}\n"
    "  end\n"
    "  if total_used >= tonumber(ARGV[11]) then\n"
    "    local live = call('ZCOUNT', total, string.format('(%d', ms), '+inf')\n"
    "    total_stale, total_used = live < total_used, live\n"
    "    if live >= tonumber(ARGV[11]) then return {7, left, tat - us, 0, 0, 1, 1, tonumber(ARGV[11]), live} end\n"
    "  end\n"
    "end\n"
    "used = try('ZCARD', KEYS[1])\n"
    "if type(used) ~= 'number' then\n"
    "  if call('PTTL', KEYS[1]) < 0 then call('PEXPIRE', KEYS[1], '86400000') end\n"
    "  return {21, left, tat - us, 0, 0, KEYS[1]}\n"
    "end\n"
    "local cap = tonumber(ARGV[6])\n"
    /* Leases that ran out are dropped when they would matter; without a cap, before they pile up. */
    "if used >= (cap > 0 and cap or 1024) then\n"
    "  local live = call('ZCOUNT', KEYS[1], string.format('(%d', ms), '+inf')\n"
    "  stale, used = live < used, live\n"
    "  if cap > 0 and used >= cap then return {7, left, tat - us, 0, used, 1, 0, cap, used} end\n"
    "end\n"
    "if interval > 0 then\n"
    "  if not rate_ok then\n"
    "    if call('PTTL', KEYS[2]) < 0 then call('PEXPIRE', KEYS[2], ARGV[9]) end\n"
    "    return {21, 0, 0, 0, used, KEYS[2]}\n"
    "  end\n"
    "  local wait = tat + interval - us - window\n"
    "  if wait > 0 then return {7, left, tat - us, wait, used, 2, 0, math.floor(window / interval), 0} end\n"
    "end\n"
    "if ARGV[10] then\n"
    "  local P = ARGV[10]\n" STORE_BILL_DAY_LUA STORE_BILL_SUMS_LUA "  local C, run = P .. ARGV[28] .. ':', ARGV[3]\n"
    "  local function refuse(cap, is_total, limit, have, wait)\n"
    "    return {7, left, tat - us, wait, used, cap, is_total, limit, have}\n"
    "  end\n"
    "  local all_interval, all_window, all_tat = tonumber(ARGV[12]), tonumber(ARGV[13]), us\n"
    "  if all_interval > 0 then\n"
    "    local v = try('GET', P .. 'rate')\n"
    "    if v then\n"
    "      local n = type(v) == 'string' and string.match(v, '^(%d+) %d+$')\n"
    "      if not n or #n > 16 then\n"
    "        if call('PTTL', P .. 'rate') < 0 then call('PEXPIRE', P .. 'rate', ARGV[14]) end\n"
    "        return {21, left, tat - us, 0, used, P .. 'rate'}\n"
    "      end\n"
    "      all_tat = math.min(math.max(tonumber(n), us), us + all_window)\n"
    "    end\n"
    "    local wait = all_tat + all_interval - us - all_window\n"
    "    if wait > 0 then return refuse(2, 1, math.floor(all_window / all_interval), 0, wait) end\n"
    "    all_tat = all_tat + all_interval\n"
    "  end\n"
    "  local took, span, ticket = total and 1 or 0, tonumber(ARGV[15]), nil\n"
    "  local number = span > 0 and math.floor(ms / 1000 / span) or 0\n"
    "  local counts = {}\n"
    "  for i, scope in ipairs({C, P}) do\n"
    "    local most = tonumber(ARGV[15 + i])\n"
    "    if most > 0 and span > 0 then\n"
    "      local key, n = scope .. 'window', 0\n"
    "      local v = try('GET', key)\n"
    "      if v then\n"
    "        local w, at\n"
    "        if type(v) == 'string' and #v < 60 then w, at, n = string.match(v, '^(%d+) (%d+) (%d+)$') end\n"
    "        if not w then\n"
    "          if call('PTTL', key) < 0 then call('PEXPIRE', key, span * 1000) end\n"
    "          return {21, left, tat - us, 0, used, key}\n"
    "        end\n"
    "        n = tonumber(w) == span and tonumber(at) == number and tonumber(n) or 0\n"
    "      end\n"
    "      if n >= most then return refuse(3, i - 1, most, n, (number + 1) * span * 1000000 - us) end\n"
    "      counts[key] = n + 1\n"
    "      took = took + 2 * i\n"
    "    end\n"
    "  end\n"
    /* A budget: what the day has cost, what the live runs may cost at most, and this one's worst case on top. */
    "  local hold = {'H', ARGV[28], ms + ARGV[27], ms, tonumber(ARGV[24]), tonumber(ARGV[25]), tonumber(ARGV[26])}\n"
    "  local today, sums, capped = bill_day(ms), {}, false\n"
    "  for i = 18, 23 do capped = capped or tonumber(ARGV[i]) > 0 end\n"
    "  if not (capped or hold[6] + hold[7] > 0) then hold[5] = 0 end\n"
    "  local holds = hold[5] + hold[6] + hold[7] > 0\n"
    "  if capped and not bill_sweep(ms, '8') then return {21, left, tat - us, 0, used, P .. 'held'} end\n"
    "  if capped or holds then\n"
    "    for i, scope in ipairs({C, P}) do\n"
    "      local spent, held = bill_read(scope .. 'day:' .. today), bill_read(scope .. 'holds')\n"
    "      if not spent then return {21, left, tat - us, 0, used, scope .. 'day:' .. today} end\n"
    "      if not held then return {21, left, tat - us, 0, used, scope .. 'holds'} end\n"
    "      for k = 1, 3 do\n"
    "        local most = tonumber(ARGV[14 + 3 * i + k])\n"
    "        local have = spent[k + 1] + held[k + 1]\n"
    "        if most > 0 and have + hold[4 + k] > most then\n"
    "          return refuse(3 + k, i - 1, most, have, (math.floor(ms / 86400000) + 1) * 86400000000 - us)\n"
    "        end\n"
    "      end\n"
    "      sums[i] = held\n"
    "    end\n"
    "  end\n"
    "  if holds or took > 0 then\n"
    "    if type(try('HGET', P .. 'held', run)) == 'table' then return {21, left, tat - us, 0, used, P .. 'held'} end\n"
    "    if type(try('ZCARD', P .. 'held:ends')) == 'table' then return {21, left, tat - us, 0, used, P .. "
    "'held:ends'} end\n"
    "  end\n"
    /* Nothing refuses from here on. */
    "  if all_interval > 0 then call('SET', P .. 'rate', string.format('%d %d', all_tat, all_interval), 'PX', "
    "ARGV[14]) end\n"
    "  for key, n in pairs(counts) do\n"
    "    call('SET', key, string.format('%d %d %d', span, number, n), 'PX', string.format('%d', (number + 1) * span * "
    "1000 - ms))\n"
    "  end\n"
    "  if total then\n"
    "    if total_stale then call('ZREMRANGEBYSCORE', total, '-inf', string.format('%d', ms)) end\n"
    "    call('ZADD', total, string.format('%d', ms + ARGV[4]), run)\n"
    "    if total_used == 0 or call('PTTL', total) < 86400000 then call('PEXPIRE', total, '172800000') end\n"
    "  end\n"
    "  if holds then\n"
    "    bill_hold(C, sums[1], 1, hold)\n"
    "    bill_hold(P, sums[2], 1, hold)\n"
    "    if sums[1][1] == 0 then\n"
    "      local callers = P .. 'callers:' .. today\n"
    "      if type(try('ZADD', callers, '0', ARGV[29] .. '\\0' .. ARGV[28])) == 'number' then call('PEXPIRE', callers, "
    "'3456000000') end\n"
    "    end\n"
    "  end\n"
    "  if holds or took > 0 then\n"
    "    hold[8], hold[9] = took, span\n"
    "    bill_note(run, hold)\n"
    "  end\n"
    "end\n"
    "if stale then call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', ms)) end\n"
    "if interval > 0 then\n"
    "  tat = tat + interval\n"
    "  left = left - 1\n"
    "  call('SET', KEYS[2], string.format('%d %d', tat, interval), 'PX', ARGV[9])\n"
    "end\n"
    "local ends = string.format('%d', ms + ARGV[4])\n"
    "if mode == 'p' then call('SET', KEYS[3], 'L' .. ARGV[2] .. ends, 'PX', ARGV[5]) end\n"
    /* For whoever has to settle it should this copy die: store_sweep.c. */
    "try('HSET', string.match(KEYS[1], '^[^}]*}:') .. 'live', ARGV[3], ends .. string.format(' %d ', ms) .. (mode == "
    "'p' and string.sub(KEYS[3], -32) or '-') .. ' ' .. string.sub(ARGV[2], 1, 32) .. string.sub(ARGV[1], 2))\n"
    "call('ZADD', KEYS[1], ends, ARGV[3])\n"
    /* Asking is cheaper than writing: only a key that might end before the longest lease is given more time. */
    "if used == 0 or call('PTTL', KEYS[1]) < 86400000 then call('PEXPIRE', KEYS[1], '172800000') end\n"
    "return {0, left, tat - us, 0, used + 1}\n";
