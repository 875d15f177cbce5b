-- Every window has been gone over: note how far the dead are buried.
--
-- KEYS: state, the dead
-- ARGV: journal, epoch, how many lost their holds, their journals..., journals that are stored whole...

if is_stale() then
  return 'STALE'
end
local lost = tonumber(ARGV[3])
for i = 4, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
    if i <= 3 + lost then
      redis.call('HSET', KEYS[2], ARGV[i], 'unposted')
    else
      redis.call('HDEL', KEYS[2], ARGV[i])
    end
  end
end
return 1
