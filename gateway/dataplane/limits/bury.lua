-- Drop the fields of the dead: holds at once, what they charged once the ledger has all of it.
--
-- KEYS: state, the dead, budget windows...
-- ARGV: journal, epoch, how many lost their holds, their journals..., how many are stored whole, their
--       journals..., and for each window: the feed's version (0: none), spent

if is_stale() then
  return 'STALE'
end
local lost = tonumber(ARGV[3])
local stored = tonumber(ARGV[4 + lost])
local at = 4 + lost + stored
for i = 3, #KEYS do
  local key = KEYS[i]
  if redis.call('EXISTS', key) == 1 then
    keep_feed(key, tonumber(ARGV[at + 1]), ARGV[at + 2])
    for j = 1, lost do
      if redis.call('HEXISTS', KEYS[2], ARGV[3 + j]) == 1 then
        redis.call('HDEL', key, 'held:' .. ARGV[3 + j])
      end
    end
    for j = 1, stored do
      if redis.call('HEXISTS', KEYS[2], ARGV[4 + lost + j]) == 1 then
        redis.call('HDEL', key, 'held:' .. ARGV[4 + lost + j], 'unposted:' .. ARGV[4 + lost + j])
      end
    end
  end
  at = at + 2
end
return 1
