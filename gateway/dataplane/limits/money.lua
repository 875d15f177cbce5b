-- What this worker holds and has not seen posted, as absolute values; the ledger's sum first.
--
-- KEYS: state, registry, budget windows...
-- ARGV: journal, epoch, now, and for each window: held ('' leaves it), unposted, the feed's version
--       (0: none), spent, when the hash expires (milliseconds)

if is_stale() then
  return 'STALE'
end
local now_us = time_us(tonumber(ARGV[3]))
local at = 3
for i = 3, #KEYS do
  local key = KEYS[i]
  keep_feed(key, tonumber(ARGV[at + 3]), ARGV[at + 4])
  if ARGV[at + 1] ~= '' then
    redis.call('HSET', key, 'held:' .. JOURNAL, ARGV[at + 1])
  end
  redis.call('HSET', key, 'unposted:' .. JOURNAL, ARGV[at + 2])
  adopt(KEYS[2], key, tonumber(ARGV[at + 5]), now_us)
  at = at + 5
end
return 1
