-- Renews the leases of one process, many at once.
--
-- KEYS: R:l of each lease
-- ARGV: of each lease in turn, how its record begins and its ttl (ms)
-- Result: {now ms, then of each lease: 1, 0 when it is gone, or the reason for which it was taken away (nothing where it was given up)}
--
-- Atomic because a script is. GT: an older renewal that was held up on its way never shortens what a newer one promised.
-- A record that is not there is never made anew: the lock may have been somebody else's meanwhile.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Prolongs a lease beside others, if its record begins so; whether it was there.
local function prolong_reader(lock, held, beginning, ttl)
  local holder = string.match(beginning, '^1|(%x*)|')
  local record = reader(lock, holder, now)
  if not record or string.sub(record, 1, #beginning) ~= beginning then
    return false
  end
  redis.call('PEXPIREAT', lock, add_reader(lock, held, holder, record, now, ttl))
  return true
end

local result = {now}
for lease, lock in ipairs(KEYS) do
  local beginning, ttl = ARGV[lease * 2 - 1], ARGV[lease * 2]
  local held = redis.call('GET', lock)
  if held and string.sub(held, 1, #beginning) == beginning then
    redis.call('PEXPIRE', lock, ttl, 'GT')
    result[lease + 1] = 1
  elseif is_shared(held) and prolong_reader(lock, held, beginning, ttl) then
    result[lease + 1] = 1
  else
    local tombstone = key_of(lock, 'x:' .. string.match(beginning, '^1|(%x*)|'))
    result[lease + 1] = redis.call('GET', tombstone) or 0
  end
end
return result
