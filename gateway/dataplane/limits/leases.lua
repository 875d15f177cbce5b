-- Renew the leases of running requests under one limit, and end those that were lost.
--
-- KEYS: state, leases
-- ARGV: journal, epoch, now, how long a lease lasts (microseconds), how many to renew, request ids
--       to renew..., request ids to end...

if is_stale() then
  return 'STALE'
end
local now_us = time_us(tonumber(ARGV[3]))
local ends = string.format('%.0f', now_us + ARGV[4])
local last = 5 + tonumber(ARGV[5])
for i = 6, #ARGV do
  if i <= last then
    redis.call('ZADD', KEYS[2], ends, ARGV[i])
  else
    redis.call('ZREM', KEYS[2], ARGV[i])
  end
end
if last > 5 then
  redis.call('PEXPIRE', KEYS[2], is_given and 3600000 or 120000)
end
return 1
