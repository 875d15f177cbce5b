-- Raise buckets to the levels that a worker remembers; never lower one.
--
-- KEYS: state, buckets...
-- ARGV: journal, epoch, now, and for each bucket: amount, period (microseconds), level
-- A level may be below 0: it is not cut off there, so that what others were admitted since the server
-- lost its memory can be put on top of it.

local state = redis.call('HMGET', KEYS[1], JOURNAL, 'ready', 'known:' .. JOURNAL)
if state[1] ~= EPOCH then
  return 'STALE'
end
local is_first = state[2] ~= '1' and not state[3]
local now_us = time_us(tonumber(ARGV[3]))
local at = 3
for i = 2, #KEYS do
  local amount, period_us = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local level = tonumber(ARGV[at + 3])
  if is_first then
    level = level + tonumber(redis.call('HGET', KEYS[1], 'since:' .. KEYS[i]) or '0')
  end
  if level > drained(redis.call('GET', KEYS[i]), amount, period_us, now_us) then
    store(KEYS[i], level, now_us, amount, period_us)
  end
  at = at + 3
end
return 1
