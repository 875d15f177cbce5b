-- Before each script here. The arithmetic is that of token_bucket.py, operation by operation.
--
-- KEYS[1] is always the state hash: `gen` (the server's run id), `at_us`, `expected`, `ready`, `seen_us`
-- (the latest heartbeat), and for each worker's journal id the epoch of its connection. Until it is ready:
-- `since:` and a bucket's key, what was admitted since it began; `known:` and a worker's journal id, that
-- its levels are written back. Money is summed as doubles: exact up to 2^53 billionths; what is stored is
-- added as 64-bit integers.

local JOURNAL, EPOCH = ARGV[1], ARGV[2]
local TOLERANCE = 1e-9
local SLACK_MS = 10000

local function is_stale()
  return redis.call('HGET', KEYS[1], JOURNAL) ~= EPOCH
end

local is_given = false -- a test's clock: nothing may expire by the server's own

local function time_us(given)
  if given ~= 0 then
    is_given = true
    return given
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Return the level now; what is stored: a level, when it was that, and under which amount. Three
-- doubles as they are: writing them out costs more than all the rest of a bucket.
local function drained(raw, amount, period_us, now_us)
  if not raw then
    return 0, 0, now_us, amount
  end
  local level, at_us, under = struct.unpack('<ddd', raw)
  local was = level
  local elapsed_us = now_us - at_us
  if elapsed_us > 0 then
    level = level - elapsed_us * amount / period_us
    if level < 0 then
      level = 0
    end
  end
  return level, was, at_us, under
end

-- Store a level; it expires when it has drained, and some seconds later.
local function store(key, level, at_us, amount, period_us)
  local ttl_ms = SLACK_MS
  if amount > 0 then
    ttl_ms = ttl_ms + math.ceil(level * period_us / amount / 1000)
  else
    ttl_ms = ttl_ms + period_us / 1000
  end
  if is_given then
    ttl_ms = ttl_ms + 3600000
  end
  redis.call('SET', key, struct.pack('<ddd', level, at_us, amount), 'PX', ttl_ms)
end

-- Note what raised (or, negative, lowered) a bucket while not everybody has written back its level: who
-- joins later remembers one without it.
local function note_since(key, change)
  redis.call('HINCRBYFLOAT', KEYS[1], 'since:' .. key, string.format('%.17g', change))
end

-- Return what is used of a window as a table: others, mine, used, and what the hash has.
-- A feed that the caller brings counts where it is newer than the stored one.
local function money(key, version, spent)
  local fields = redis.call('HGETALL', key)
  local mine_held, mine_unposted = 'held:' .. JOURNAL, 'unposted:' .. JOURNAL
  local stored_version, stored_spent, others, mine = 0, 0, 0, 0
  for i = 1, #fields, 2 do
    local name, value = fields[i], tonumber(fields[i + 1])
    if name == mine_held or name == mine_unposted then
      mine = mine + value
    elseif name == 'spent' then
      stored_spent = value
    elseif name == 'version' then
      stored_version = value
    else
      others = others + value
    end
  end
  local is_newer = version > stored_version
  if is_newer then
    stored_spent = spent
  end
  return {
    fields = fields, is_empty = #fields == 0, is_newer = is_newer, others = others, mine = mine,
    used = stored_spent + others + mine,
  }
end

-- A new hash is listed, so that the fields of the dead are found, and expires after its window.
local function adopt(registry, key, expires_at_ms, now_us)
  redis.call('ZADD', registry, string.format('%.0f', expires_at_ms), key)
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(1000, expires_at_ms - now_us / 1000)))
end

-- Keep a feed if it is newer than the stored one.
local function keep_feed(key, version, spent)
  local stored = redis.call('HGET', key, 'version')
  if version > (tonumber(stored or '0')) then
    redis.call('HSET', key, 'spent', spent, 'version', string.format('%.0f', version))
  end
end

