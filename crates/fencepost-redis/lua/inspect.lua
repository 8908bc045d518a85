-- Looks at locks, changing nothing.
--
-- KEYS: 1 fencepost:inc, then R:l of each lock
-- ARGV: none
-- Result: {now ms, the incarnation record, then of each lock: {R:l, its PTTL, {holder id of a waiter, its entry, …} in their order,
--         {the record of one who shares it, for how many ms it has it, …}}}
--
-- Atomic because a script is: what it says of one lock was true at one moment.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local result = {now, redis.call('GET', KEYS[1])}
for lock = 2, #KEYS do
  local held = redis.call('GET', KEYS[lock])
  local waiters, seen = {}, {}
  for _, holder in ipairs(redis.call('ZRANGE', key_of(KEYS[lock], 'q'), 0, -1)) do
    waiters[#waiters + 1] = holder
    waiters[#waiters + 1] = redis.call('HGET', key_of(KEYS[lock], 'w'), holder)
  end
  if is_shared(held) then
    local readers, records = readers_of(KEYS[lock])
    local found = redis.call('ZRANGEBYSCORE', readers, string.format('%.0f', now), '+inf', 'WITHSCORES')
    for index = 1, #found, 2 do
      seen[#seen + 1] = redis.call('HGET', records, found[index])
      seen[#seen + 1] = found[index + 1] - now
    end
  end
  result[#result + 1] = {held, redis.call('PTTL', KEYS[lock]), waiters, seen}
end
return result
