-- Reserve more for a running request: the money within the hard budgets or nothing; tokens always.
--
-- KEYS and the first three ARGV as in admit.lua; ARGV[4]: now output hold (doubles)
-- Returns 'STALE', or the place of the budget without room (0: none).

local state = redis.call('HMGET', KEYS[1], JOURNAL, 'ready')
if state[1] ~= EPOCH then
  return 'STALE'
end
local is_ready = state[2] == '1'
local plan = cmsgpack.unpack(ARGV[3])
local given, output, hold = struct.unpack('<ddd', ARGV[4])
local now_us = time_us(given)
local buckets, leases, budgets = plan[1], plan[2], plan[3]
local money_at, budget_at = 3 + 3 * buckets + 2 * leases, 2 + buckets + leases

local at = money_at
local windows = {}
for i = 1, budgets do
  local window = money(KEYS[budget_at + i], plan[at + 4], plan[at + 5])
  windows[i] = window
  if hold > 0 and plan[at + 2] == 1 then
    if window.used + hold > plan[at + 1] or (not is_ready and window.mine + hold > plan[at + 3]) then
      return i
    end
  end
  at = at + 6
end
if hold > 0 then
  at = money_at
  for i = 1, budgets do
    redis.call('HINCRBY', KEYS[budget_at + i], 'held:' .. JOURNAL, string.format('%.0f', hold))
    if windows[i].is_empty then
      adopt(KEYS[2], KEYS[budget_at + i], plan[at + 6], now_us)
    end
    at = at + 6
  end
end
at = 3
for i = 1, buckets do
  local metric = plan[at + 3]
  if output > 0 and metric >= 2 then
    local amount, period_us = plan[at + 1], plan[at + 2]
    local level = drained(redis.call('GET', KEYS[2 + i]), amount, period_us, now_us)
    store(KEYS[2 + i], level + output, now_us, amount, period_us)
    if not is_ready then
      note_since(KEYS[2 + i], output)
    end
  end
  at = at + 3
end
return 0
