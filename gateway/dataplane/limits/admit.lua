-- One decision, all or nothing.
--
-- KEYS: state, registry of budget hashes, buckets..., leases..., budget windows...
-- ARGV: journal, epoch, plan (MessagePack, see encode_plan.py), now requests input output hold
--       (doubles; of several requests their sums, where the plan has no leases), request id, how long
--       a lease lasts (microseconds)
-- Returns 'STALE', or 1|0 and then doubles, levels... counts... (used others)...: levels before a
-- refused claim, after an admitted one; and of a refused one what all workers hold, held...
-- A refusal changes nothing but what a clock or an amount that changed asks for.

local function held_of(fields)
  local held = 0
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 5) == 'held:' then
      held = held + fields[i + 1]
    end
  end
  return held
end

local state = redis.call('HMGET', KEYS[1], JOURNAL, 'ready')
if state[1] ~= EPOCH then
  return 'STALE'
end
local is_ready = state[2] == '1'
local plan = cmsgpack.unpack(ARGV[3])
local given, requests, input, output, hold = struct.unpack('<ddddd', ARGV[4])
local now_us = time_us(given)
local costs = {[0] = requests, input, output, input + output}
local buckets, leases, budgets = plan[1], plan[2], plan[3]
local at, key_at = 3, 2
local is_admitted = true

local levels, stored = {}, {}
if buckets > 0 then
  local raw = redis.call('MGET', unpack(KEYS, key_at + 1, key_at + buckets))
  for i = 1, buckets do
    local amount, cost = plan[at + 1], costs[plan[at + 3]]
    local level, was, at_us, under = drained(raw[i], amount, plan[at + 2], now_us)
    levels[i], stored[i] = level, {was, at_us, under, raw[i]}
    local room = -1
    if amount > 0 then
      room = amount * (1 + TOLERANCE)
      if not is_ready then
        room = room * plan[#plan] -- the rest may be used by who has not written back
      end
    end
    if level + cost > room then
      is_admitted = false
    end
    at = at + 3
  end
end

local lease_at = key_at + buckets
local counts = {}
for i = 1, leases do
  local count = redis.call('ZCOUNT', KEYS[lease_at + i], string.format('(%.0f', now_us), '+inf')
  counts[i] = count
  local amount = plan[at + 1]
  if not is_ready then
    amount = plan[at + 2]
  end
  if count >= amount then
    is_admitted = false
  end
  at = at + 2
end

local budget_at, money_at = lease_at + leases, at
local windows = {}
for i = 1, budgets do
  local amount, is_hard, cap = plan[at + 1], plan[at + 2] == 1, plan[at + 3]
  local window = money(KEYS[budget_at + i], plan[at + 4], plan[at + 5])
  windows[i] = window
  if is_hard and (window.used + hold > amount or window.used >= amount) then
    is_admitted = false
  elseif is_hard and not is_ready and window.mine + hold > cap then
    -- Not every worker has written back what it holds: only our own part of the money is ours.
    is_admitted = false
  end
  at = at + 6
end

local answer = {}
at = 3
for i = 1, buckets do
  local key, amount, period_us = KEYS[key_at + i], plan[at + 1], plan[at + 2]
  if is_admitted then
    levels[i] = levels[i] + costs[plan[at + 3]]
    store(key, levels[i], now_us, amount, period_us)
    if not is_ready then
      note_since(key, costs[plan[at + 3]])
    end
  elseif stored[i][4] and (stored[i][2] > now_us or stored[i][3] ~= amount) then
    -- The clock stepped back: waiting counts from now on. Or the amount changed: so does the time
    -- that it takes to drain.
    store(key, stored[i][1], math.min(stored[i][2], now_us), amount, period_us)
  end
  answer[#answer + 1] = levels[i]
  at = at + 3
end
for i = 1, leases do
  local key = KEYS[lease_at + i]
  if is_admitted then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now_us))
    redis.call('ZADD', key, string.format('%.0f', now_us + ARGV[6]), ARGV[5])
    redis.call('PEXPIRE', key, is_given and 3600000 or 120000)
  end
  answer[#answer + 1] = counts[i]
end
at = money_at
for i = 1, budgets do
  local key, window = KEYS[budget_at + i], windows[i]
  if is_admitted then
    if hold > 0 then
      redis.call('HINCRBY', key, 'held:' .. JOURNAL, string.format('%.0f', hold))
    end
    if window.is_newer then
      redis.call('HSET', key, 'spent', string.format('%.0f', plan[at + 5]),
        'version', string.format('%.0f', plan[at + 4]))
    end
    if window.is_empty and (hold > 0 or window.is_newer) then
      adopt(KEYS[2], key, plan[at + 6], now_us)
    end
  end
  answer[#answer + 1] = window.used
  answer[#answer + 1] = window.others
  at = at + 6
end
if not is_admitted then
  for i = 1, budgets do
    answer[#answer + 1] = held_of(windows[i].fields)
  end
end
return (is_admitted and '1' or '0') .. struct.pack('<' .. string.rep('d', #answer), unpack(answer))
