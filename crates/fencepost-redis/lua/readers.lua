-- Those who share a lock. Stands before the scripts that need it.
--
-- R:l is '1||token|read|…' while they have it, with the name and the token of the last one, and expires with the last one. R:r has
-- until when each has it (ms), and R:d what is written of each: the record of a holder, or of a reservation. They end by R:r, and are
-- purged by the server's time by every script that decides; who is not in R:r at that time has nothing.

local function is_shared(held)
  -- The record of one who has it alone names a holder, which is seen sooner than a pattern is tried.
  return held and string.sub(held, 1, 3) == '1||' and string.find(held, '^1||%d*|read|') ~= nil
end

local function readers_of(lock)
  return key_of(lock, 'r'), key_of(lock, 'd')
end

-- Lets go of those whose time is over, as an expiry would; how many are left.
local function purge(lock, now)
  local readers, records = readers_of(lock)
  local before = '(' .. string.format('%.0f', now)
  local gone = redis.call('ZRANGEBYSCORE', readers, '-inf', before)
  for _, holder in ipairs(gone) do
    redis.call('HDEL', records, holder)
  end
  if gone[1] then
    redis.call('ZREMRANGEBYSCORE', readers, '-inf', before)
  end
  return redis.call('ZCARD', readers)
end

-- What is written of one reader, if it is one at this time.
local function reader(lock, holder, now)
  local readers, records = readers_of(lock)
  local ends = redis.call('ZSCORE', readers, holder)
  if ends and tonumber(ends) >= now then
    return redis.call('HGET', records, holder) or nil
  end
end

-- When the last of those who share the lock is over. What is written of them ends then; so must the lock.
local function end_of_readers(lock)
  local readers, records = readers_of(lock)
  local last = redis.call('ZREVRANGE', readers, 0, 0, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', readers, last)
  redis.call('PEXPIREAT', records, last)
  return last
end

-- Has one more share the lock for `keep` ms; until when the last one has it, and the lock must last so long.
local function add_reader(lock, held, holder, record, now, keep)
  local readers, records = readers_of(lock)
  if not is_shared(held) then
    -- Whoever shared it before had lost it.
    redis.call('DEL', readers, records)
  end
  redis.call('ZADD', readers, 'GT', string.format('%.0f', now + keep), holder)
  redis.call('HSET', records, holder, record)
  return end_of_readers(lock)
end

-- Takes a reader out. Afterwards the lock has to be settled.
local function remove_reader(lock, holder)
  local readers, records = readers_of(lock)
  redis.call('ZREM', readers, holder)
  redis.call('HDEL', records, holder)
end
