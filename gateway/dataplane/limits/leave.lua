-- A worker ends: its holds and, once stored, what it charged are dropped like those of the dead.
--
-- KEYS: state, workers, the dead
-- ARGV: journal, epoch

if is_stale() then
  return 'STALE'
end
redis.call('HDEL', KEYS[1], JOURNAL)
redis.call('ZREM', KEYS[2], JOURNAL)
redis.call('HSET', KEYS[3], JOURNAL, 'held')
return 1
