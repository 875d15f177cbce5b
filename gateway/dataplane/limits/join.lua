-- A worker says that it is here, and writes back all that is its own after this.
--
-- KEYS: state, workers (sorted by when their heartbeat ends), the dead
-- ARGV: journal, epoch, the server's run id, how many workers there should be, now
-- Another run id, or none: the server is new or has lost its memory, so everybody has to write back.

local now_us = time_us(tonumber(ARGV[5]))
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[3] then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'gen', ARGV[3], 'at_us', string.format('%.0f', now_us),
    'expected', ARGV[4], 'ready', '0')
end
redis.call('HDEL', KEYS[3], JOURNAL)
redis.call('HSET', KEYS[1], JOURNAL, EPOCH)
return 1
