-- A worker's heartbeat, after it has written back what is its own.
--
-- KEYS: state, workers, the dead, registry, the sweeper's lock
-- ARGV: journal, epoch, now, how long a heartbeat lasts, how long the missing are waited for
--       (both microseconds)
-- Returns 'STALE', or {ready, living workers, the dead and how far they are buried (pairs),
-- whether the caller is to bury them, how many workers come before the caller by their ids}.

if is_stale() then
  return 'STALE'
end
local now_us = time_us(tonumber(ARGV[3]))
local ends = string.format('%.0f', now_us + ARGV[4])
local now = string.format('%.0f', now_us)
local seen_us = tonumber(redis.call('HGET', KEYS[1], 'seen_us') or now)
if math.abs(now_us - seen_us) > tonumber(ARGV[4]) then
  -- The clock has jumped (or all stood still): no heartbeat and no lease says anything. As after a
  -- loss of memory everybody writes back what is its own; who does not has one more heartbeat's time.
  for _, journal in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    redis.call('ZADD', KEYS[2], ends, journal)
  end
  redis.call('DEL', KEYS[1])
  return 'STALE'
end
redis.call('HSET', KEYS[1], 'seen_us', now)
redis.call('ZADD', KEYS[2], ends, JOURNAL)
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', now_us / 1000))
for _, journal in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
  -- First its calls are refused, then its holds may be dropped: if it was only slow, it joins again.
  redis.call('HDEL', KEYS[1], journal)
  redis.call('ZREM', KEYS[2], journal)
  redis.call('HSET', KEYS[3], journal, 'held')
end
local living = redis.call('ZCARD', KEYS[2])
local state = redis.call('HMGET', KEYS[1], 'ready', 'at_us', 'expected')
if state[1] ~= '1' then
  redis.call('HSET', KEYS[1], 'known:' .. JOURNAL, '1') -- its levels are in what is stored
  living = 0 -- those that have joined since the server was new
  for _, journal in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    living = living + redis.call('HEXISTS', KEYS[1], journal)
  end
  if living >= tonumber(state[3]) or now_us >= tonumber(state[2]) + tonumber(ARGV[5]) then
    redis.call('HSET', KEYS[1], 'ready', '1')
    state[1] = '1'
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
      local kind = string.sub(field, 1, 6)
      if kind == 'since:' or kind == 'known:' then
        redis.call('HDEL', KEYS[1], field)
      end
    end
  end
end
local dead = redis.call('HGETALL', KEYS[3])
local may_bury = 0
if #dead > 0 and redis.call('SET', KEYS[5], JOURNAL, 'NX', 'PX', '3000') then
  may_bury = 1
end
local before = 0
for _, journal in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if journal < JOURNAL then
    before = before + 1
  end
end
return {tonumber(state[1]), living, dead, may_bury, before}
