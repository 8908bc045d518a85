-- Renews the leases of one process, many at once.
--
-- KEYS: R:l and R:x:<holder> of each lease in turn
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
for lease = 1, #KEYS, 2 do
  local held = redis.call('GET', KEYS[lease])
  if held and string.sub(held, 1, #ARGV[lease]) == ARGV[lease] then
    redis.call('PEXPIRE', KEYS[lease], ARGV[lease + 1], 'GT')
    result[#result + 1] = 1
  elseif is_shared(held) and prolong_reader(KEYS[lease], held, ARGV[lease], ARGV[lease + 1]) then
    result[#result + 1] = 1
  else
    result[#result + 1] = redis.call('GET', KEYS[lease + 1]) or 0
  end
end
return result
