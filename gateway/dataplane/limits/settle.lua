-- Put real counts in the place of reserved ones; give back the hold and the lease.
--
-- KEYS and the first three ARGV as in admit.lua
-- ARGV[4]: now requests input output hold (doubles): corrections of each metric, the hold that ends;
--          for each budget what this worker has charged and not seen posted (absolute)
-- ARGV[5]: request id

local state = redis.call('HMGET', KEYS[1], JOURNAL, 'ready')
if state[1] ~= EPOCH then
  return 'STALE'
end
local plan = cmsgpack.unpack(ARGV[3])
local numbers = {struct.unpack('<' .. string.rep('d', 5 + plan[3]), ARGV[4])}
local given, requests, input, output, hold = unpack(numbers, 1, 5)
local now_us = time_us(given)
local corrections = {[0] = requests, input, output, input + output}
local buckets, leases, budgets = plan[1], plan[2], plan[3]

local at = 3
for i = 1, buckets do
  local correction = corrections[plan[at + 3]]
  if correction ~= 0 then
    local amount, period_us = plan[at + 1], plan[at + 2]
    local level = drained(redis.call('GET', KEYS[2 + i]), amount, period_us, now_us) + correction
    if level < 0 then
      level = 0
    end
    store(KEYS[2 + i], level, now_us, amount, period_us)
    if state[2] ~= '1' then
      note_since(KEYS[2 + i], correction)
    end
  end
  at = at + 3
end
for i = 1, leases do
  redis.call('ZREM', KEYS[2 + buckets + i], ARGV[5])
  at = at + 2
end
for i = 1, budgets do
  local key = KEYS[2 + buckets + leases + i]
  if hold > 0 then
    redis.call('HINCRBY', key, 'held:' .. JOURNAL, string.format('%.0f', -hold))
  end
  if redis.call('HSET', key, 'unposted:' .. JOURNAL, string.format('%.0f', numbers[5 + i])) == 1 then
    adopt(KEYS[2], key, plan[at + 6], now_us)
  end
  at = at + 6
end
return 1
