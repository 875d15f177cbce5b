-- Raise buckets to the levels that a worker remembers; never lower one.
--
-- KEYS: state, buckets...
-- ARGV: journal, epoch, now, and for each bucket: amount, period (microseconds), level

if is_stale() then
  return 'STALE'
end
local now_us = time_us(tonumber(ARGV[3]))
local at = 3
for i = 2, #KEYS do
  local amount, period_us = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local level = tonumber(ARGV[at + 3])
  if level > drained(redis.call('GET', KEYS[i]), amount, period_us, now_us) then
    store(KEYS[i], level, now_us, amount, period_us)
  end
  at = at + 3
end
return 1
