/*
 * The budgets' part of the scripts, in Lua: what a day of a scope (a caller, the gateway) has come to, what the live
 * runs hold, and what a sandbox costs that outlived its run's settlement. Keys: docs/redis-keys.md.
 *
 * A text that includes it declares `local P = <what store_key_prefix gives>` before; the names it takes begin with
 * `bill_`. Nothing of it reads or writes before it is called.
 */
#ifndef RECORDS_STORE_BILL_LUA_H
#define RECORDS_STORE_BILL_LUA_H

#include "records/store.h"

/* Days are kept for 40, and what was charged whole or by the ledger is remembered for 8: longer than a record may lie
 * in the spool of a gateway that somebody starts again. */
_Static_assert(STORE_DAYS_KEPT == 40 && STORE_AMOUNT_MAX == INT64_C(100000000000000), "3456000000 ms and 1e14 below");

#define STORE_BILL_DAY_LUA                                                                                             \
    "local function bill_day(ms)\n" /* Civil date of a day's number: proleptic Gregorian, eras of 400 years that begin \
                                       in March. */                                                                    \
    "  local z = math.floor(ms / 86400000) + 719468\n"                                                                 \
    "  local era = math.floor(z / 146097)\n"                                                                           \
    "  local doe = z - era * 146097\n"                                                                                 \
    "  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / "  \
    "365)\n"                                                                                                           \
    "  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))\n"                                  \
    "  local mp = math.floor((5 * doy + 2) / 153)\n"                                                                   \
    "  local m = mp < 10 and mp + 3 or mp - 9\n"                                                                       \
    "  return string.format('%04d%02d%02d', yoe + era * 400 + (m <= 2 and 1 or 0), m, doy - math.floor((153 * mp + "   \
    "2) / 5) + 1)\n"                                                                                                   \
    "end\n"

#define STORE_BILL_SUMS_LUA                                                                                            \
    /* Runs and amounts of a `day:` or `holds` hash; nil when it is not ours to understand. */                         \
    "local function bill_read(key)\n"                                                                                  \
    "  local v = redis.pcall('HMGET', key, 'runs', 'seconds_ms', 'paid_ms', 'cost_micro', 'unpriced_ms')\n"            \
    "  if v.err then return nil end\n"                                                                                 \
    "  for i = 1, 5 do\n"                                                                                              \
    "    if v[i] and not (string.find(v[i], '^%d+$') and #v[i] <= 18) then return nil end\n"                           \
    "    v[i] = tonumber(v[i] or 0)\n"                                                                                 \
    "  end\n"                                                                                                          \
    "  return v\n"                                                                                                     \
    "end\n" /* One day of one scope. Returns how many runs it has now, or nil. */                                      \
    "local function bill_put(scope, day, runs, s, p, c, u)\n"                                                          \
    "  local key = scope .. 'day:' .. day\n"                                                                           \
    "  local n = redis.pcall('HINCRBY', key, 'runs', runs)\n"                                                          \
    "  if type(n) ~= 'number' then return nil end\n"                                                                   \
    "  if n <= 1 then redis.call('PEXPIRE', key, '3456000000') end\n"                                                  \
    "  for name, add in pairs({seconds_ms = s, paid_ms = p, cost_micro = c, unpriced_ms = u}) do\n"                    \
    "    if add ~= 0 then\n"                                                                                           \
    "      local now = redis.pcall('HINCRBY', key, name, string.format('%d', add))\n"                                  \
    "      if type(now) ~= 'number' then return nil end\n" /* What was charged there has been deleted since. */        \
    "      if now < 0 then redis.call('HSET', key, name, '0') end\n"                                                   \
    "    end\n"                                                                                                        \
    "  end\n"                                                                                                          \
    "  return n\n"                                                                                                     \
    "end\n" /* Amounts spent over the `s` ms from `from`, split at midnight in proportion; sign -1 takes them back.    \
               Unpriced: what is paid for has no known price. What is older than 40 days goes to the oldest of them,   \
               `runs` to the newest day. Returns what bill_put said of that one, and whether all were taken. */        \
    "local function bill_add(scope, from, s, p, c, sign, runs, unpriced)\n"                                            \
    "  local at, ends, ok, done, n = from, from + s, true, {0, 0, 0}, nil\n"                                           \
    "  repeat\n"                                                                                                       \
    "    local stop = math.min(math.max((math.floor(at / 86400000) + 1) * 86400000, ends - 3456000000), ends)\n"       \
    "    local part = stop - from\n"                                                                                   \
    "    local now = {part, p, c}\n"                                                                                   \
    "    if stop < ends then\n"                                                                                        \
    "      for i, x in ipairs({p, c}) do now[i + 1] = math.floor(x * part < 9e15 and x * part / s or x * (part / s)) " \
    "end\n"                                                                                                            \
    "    end\n"                                                                                                        \
    "    n = bill_put(scope, bill_day(math.max(at, stop - 1)), stop < ends and 0 or runs, sign * (now[1] - "           \
    "done[1]),\n"                                                                                                      \
    "      sign * (now[2] - done[2]), sign * (now[3] - done[3]), unpriced and sign * (now[2] - done[2]) or 0)\n"       \
    "    ok = ok and n ~= nil\n"                                                                                       \
    "    done, at = now, stop\n"                                                                                       \
    "  until at >= ends\n"                                                                                             \
    "  return n, ok\n"                                                                                                 \
    "end\n" /* What a run's admission took: {state, caller's tag, expiry, since, s, p, c, took, window}; nil: nothing, \
               false: not ours to understand. */                                                                       \
    "local function bill_ticket(run)\n"                                                                                \
    "  local v = redis.pcall('HGET', P .. 'held', run)\n"                                                              \
    "  if not v then return nil end\n"                                                                                 \
    "  if type(v) ~= 'string' or #v > 200 then return false end\n"                                                     \
    "  local t = {string.match(v, '^([HXBL])(%x+) (%d+) (%d+) (%d+) (%d+) (%d+) ([0-7]) (%d+)$')}\n"                   \
    "  if not t[1] or #t[2] ~= 32 then return false end\n"                                                             \
    "  for i = 3, 9 do\n" /* Amounts past any real one: their days would be counted one by one, for ever. */           \
    "    if #t[i] > 15 then return false end\n"                                                                        \
    "    t[i] = tonumber(t[i])\n"                                                                                      \
    "  end\n"                                                                                                          \
    "  return t\n"                                                                                                     \
    "end\n"                                                                                                            \
    "local function bill_note(run, t)\n"                                                                               \
    "  redis.pcall('HSET', P .. 'held', run, string.format('%s%s %d %d %d %d %d %d %d', unpack(t)))\n"                 \
    "  redis.pcall('ZADD', P .. 'held:ends', string.format('%d', t[3]), run)\n"                                        \
    "end\n"                                                                                                            \
    "local function bill_forget(run)\n"                                                                                \
    "  redis.pcall('HDEL', P .. 'held', run)\n"                                                                        \
    "  redis.pcall('ZREM', P .. 'held:ends', run)\n"                                                                   \
    "end\n" /* The record shows what was charged in place of its own amounts; flag 32: the cost is known. */           \
    "local function bill_state(key, flags, t)\n"                                                                       \
    "  local is = math.floor(flags / 32) % 2 == 1\n"                                                                   \
    "  if is ~= (t[6] == 0 or t[7] > 0) then\n"                                                                        \
    "    redis.call('SETRANGE', key, '8', string.char(is and flags - 32 or flags + 32))\n"                             \
    "  end\n"                                                                                                          \
    "  redis.call('SETRANGE', key, '29', struct.pack('>I6I6I6', t[5], t[6], t[7]))\n"                                  \
    "end\n"                                                                                                            \
    "local function bill_hold(scope, sums, sign, t)\n"                                                                 \
    "  local n = sums[1] + sign\n"                                                                                     \
    "  if n <= 0 then\n"                                                                                               \
    "    redis.call('DEL', scope .. 'holds')\n"                                                                        \
    "  else\n"                                                                                                         \
    "    redis.call('HSET', scope .. 'holds', 'runs', string.format('%d', n),\n"                                       \
    "      'seconds_ms', string.format('%d', math.max(sums[2] + sign * t[5], 0)),\n"                                   \
    "      'paid_ms', string.format('%d', math.max(sums[3] + sign * t[6], 0)),\n"                                      \
    "      'cost_micro', string.format('%d', math.max(sums[4] + sign * t[7], 0)))\n"                                   \
    "  end\n"                                                                                                          \
    "end\n"                                                                                                            \
    "local function bill_is_held(t)\n"                                                                                 \
    "  return t[1] == 'H' and t[5] + t[6] + t[7] > 0\n"                                                                \
    "end\n" /* A hold leaves the sums. false: sums that are not ours to understand stay as they are. */                \
    "local function bill_unhold(t)\n"                                                                                  \
    "  local ok = true\n"                                                                                              \
    "  for _, scope in ipairs({P .. t[2] .. ':', P}) do\n"                                                             \
    "    local sums = bill_read(scope .. 'holds')\n"                                                                   \
    "    ok = ok and sums ~= nil\n"                                                                                    \
    "    if sums then bill_hold(scope, sums, -1, t) end\n"                                                             \
    "  end\n"                                                                                                          \
    "  return ok\n"                                                                                                    \
    "end\n"                                                                                                            \
    "local function bill_both(tag, from, s, p, c, sign)\n"                                                             \
    "  local _, one = bill_add(P .. tag .. ':', from, s, p, c, sign, 0, c == 0)\n"                                     \
    "  local _, all = bill_add(P, from, s, p, c, sign, 0, c == 0)\n"                                                   \
    "  return one and all\n"                                                                                           \
    "end\n" /* Holds past their expiry are charged whole; what has been remembered long enough is forgotten. At most   \
               `most`. */                                                                                              \
    "local function bill_sweep(ms, most)\n"                                                                            \
    "  local due = redis.pcall('ZRANGEBYSCORE', P .. 'held:ends', '-inf', string.format('%d', ms), 'LIMIT', '0', "     \
    "most)\n"                                                                                                          \
    "  if due.err then return false end\n"                                                                             \
    "  local ok = true\n"                                                                                              \
    "  for _, run in ipairs(due) do\n"                                                                                 \
    "    local t = bill_ticket(run)\n"                                                                                 \
    "    if t and bill_is_held(t) then\n"                                                                              \
    "      ok = bill_unhold(t) and ok\n"                                                                               \
    "      ok = bill_both(t[2], t[4], t[5], t[6], t[7], 1) and ok\n"                                                   \
    "      local key = P .. t[2] .. ':run:' .. run\n"                                                                  \
    "      local head = redis.pcall('GETRANGE', key, '0', '46')\n"                                                     \
    "      if type(head) == 'string' and #head == 47 and string.byte(head) == 2 then\n"                                \
    "        bill_state(key, string.byte(head, 9), t)\n"                                                               \
    "      end\n"                                                                                                      \
    "      t[1], t[3] = 'X', ms + 691200000\n"                                                                         \
    "      bill_note(run, t)\n"                                                                                        \
    "    elseif t then\n"                                                                                              \
    "      bill_forget(run)\n"                                                                                         \
    "    else\n" /* Set aside: it stays where it is and is not come back to. */                                        \
    "      redis.pcall('ZREM', P .. 'held:ends', run)\n"                                                               \
    "      ok = ok and t == nil\n"                                                                                     \
    "    end\n"                                                                                                        \
    "  end\n"                                                                                                          \
    "  return ok\n"                                                                                                    \
    "end\n"

/*
 * For the script that removes a sandbox from the ledger, once its absence is confirmed, and only when that removal took
 * the entry (which is what makes the charge happen once):
 *
 *     local bad = bill_removed(run, tag, total_ms, reported_ms, paid, price)
 *
 * run: 32 hex, the run the sandbox was made for. tag: the first 32 hex of the SHA-256 of the caller's ID. total_ms: the
 * sandbox's life, from just before its create was sent to its confirmed absence. reported_ms: how much of that the role
 * has reported in the run's result, which is what the front settles; 0 = it never reported. paid: 1 when the backend
 * bills. price: micros an hour; 0 = not known. Returns 0, or 64 when a key of the budgets is not ours to understand.
 *
 * With reported_ms > 0 the late part is added. Else the real time takes the place of the run's hold, open, kept or
 * charged whole at its expiry; a run that its front settled without a hold is charged for what goes past what it was
 * charged; otherwise all of it is charged and remembered, so that a settlement that comes later charges nothing twice.
 * Days are split at midnight of Redis' clock. The run's record, if there is one, shows the new amounts.
 */
#define STORE_BILL_LUA                                                                                                 \
    STORE_BILL_DAY_LUA STORE_BILL_SUMS_LUA /* The run's record shows what was charged for it. */                       \
        "local function bill_show(run, tag, more, s, p, c, known)\n"                                                   \
        "  local key = P .. tag .. ':run:' .. run\n"                                                                   \
        "  local head = redis.pcall('GETRANGE', key, '0', '46')\n"                                                     \
        "  if type(head) ~= 'string' or #head ~= 47 or string.byte(head) ~= 2 then return nil end\n"                   \
        "  local flags = string.byte(head, 9)\n"                                                                       \
        "  local had, had_p, had_c = struct.unpack('>I6I6I6', head, 30)\n"                                             \
        "  if more == nil then return had end\n"                                                                       \
        "  if more then s, p, c = s + had, p + had_p, c + had_c end\n"                                                 \
        "  local was = math.floor(flags / 32) % 2 == 1\n"                                                              \
        "  if was ~= (known and (was or had == 0 or not more)) then\n"                                                 \
        "    redis.call('SETRANGE', key, '8', string.char(was and flags - 32 or flags + 32))\n"                        \
        "  end\n"                                                                                                      \
        "  redis.call('SETRANGE', key, '29', struct.pack('>I6I6I6', math.min(s, 1e14), math.min(p, 1e14), "            \
        "math.min(c, "                                                                                                 \
        "1e14)))\n"                                                                                                    \
        "  return true\n"                                                                                              \
        "end\n"                                                                                                        \
        "local function bill_removed(run, tag, total, reported, paid, price)\n"                                        \
        "  local t = redis.call('TIME')\n"                                                                             \
        "  local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"                                                         \
        "  local held, known = bill_ticket(run), paid ~= 1 or price > 0\n"                                             \
        "  if held == false then return 64 end\n"                                                                      \
        "  total = math.max(0, math.min(math.floor(total), 1e14))\n"                                                   \
        "  local function amounts(s)\n"                                                                                \
        "    return s, paid == 1 and s or 0, price > 0 and math.min(math.ceil(s * price < 9e15 and s * price / "       \
        "3600000 or s / 3600000 * price), 1e14) or 0\n"                                                                \
        "  end\n" /* Already charged by who settled the run, or to be charged by it: only what came later is added. A  \
                     hold that is open beside a record was kept: nothing of it is charged yet. */                      \
        "  if reported > 0 and held and bill_is_held(held) and bill_show(run, tag) then reported = 0 end\n"            \
        "  local settled = 0\n"                                                                                        \
        "  if reported > 0 then\n"                                                                                     \
        "    settled = math.floor(reported)\n"                                                                         \
        "  elseif not held then\n"                                                                                     \
        "    settled = bill_show(run, tag)\n"                                                                          \
        "  end\n"                                                                                                      \
        "  if settled and (reported > 0 or not held) then\n"                                                           \
        "    local late = total - settled\n"                                                                           \
        "    if late <= 0 then return 0 end\n"                                                                         \
        "    local s, p, c = amounts(late)\n"                                                                          \
        "    if not bill_show(run, tag, true, s, p, c, known) then\n" /* The settlement adds it. */                    \
        "      local l = bill_ticket(run .. '+') or {'L', tag, 0, 0, 0, 0, 0, 0, 0}\n"                                 \
        "      bill_note(run .. '+', {'L', tag, ms + 691200000, l[4] + settled, l[5] + s, l[6] + p, l[7] + c, 0, "     \
        "0})\n"                                                                                                        \
        "    end\n"                                                                                                    \
        "    return bill_both(tag, ms - late, s, p, c, 1) and 0 or 64\n"                                               \
        "  end\n"                                                                                                      \
        "  local ok = true\n"                                                                                          \
        "  local s, p, c = amounts(total)\n"                                                                           \
        "  if held and bill_is_held(held) then\n"                                                                      \
        "    ok = bill_unhold(held)\n"                                                                                 \
        "  elseif held and held[1] == 'X' then\n"                                                                      \
        "    ok = bill_both(held[2], held[4], held[5], held[6], held[7], -1)\n"                                        \
        "  end\n"                                                                                                      \
        "  if held and held[1] == 'B' then\n"                                                                          \
        "    bill_show(run, tag, true, s, p, c, known)\n"                                                              \
        "  else\n"                                                                                                     \
        "    bill_show(run, tag, false, s, p, c, known)\n"                                                             \
        "  end\n"                                                                                                      \
        "  ok = bill_both(tag, ms - total, s, p, c, 1) and ok\n"                                                       \
        "  if held and held[1] == 'B' then s, p, c = s + held[5], p + held[6], c + held[7] end\n"                      \
        "  bill_note(run, {'B', tag, ms + 691200000, held and held[4] or ms, s, p, c, held and held[8] or 0, held "    \
        "and held[9] or 0})\n"                                                                                         \
        "  return ok and 0 or 64\n"                                                                                    \
        "end\n"

#endif
