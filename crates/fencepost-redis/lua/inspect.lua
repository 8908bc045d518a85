-- Looks at locks, changing nothing.
--
-- KEYS: 1 fencepost:inc, then R:l, R:s, R:q and R:w of each lock in turn
-- ARGV: none
-- Result: {now ms, the incarnation record, then of each lock: {R:l, its PTTL, the last token, {holder id of a waiter, its
--         entry, …} in their order}}
--
-- Atomic because a script is: what it says of one lock was true at one moment.
local time = redis.call('TIME')
local result = {time[1] * 1000 + math.floor(time[2] / 1000), redis.call('GET', KEYS[1])}
for lock = 2, #KEYS, 4 do
  local waiters = {}
  for _, holder in ipairs(redis.call('ZRANGE', KEYS[lock + 2], 0, -1)) do
    waiters[#waiters + 1] = holder
    waiters[#waiters + 1] = redis.call('HGET', KEYS[lock + 3], holder)
  end
  local held = redis.call('GET', KEYS[lock])
  local token = redis.call('HGET', KEYS[lock + 1], 't')
  result[#result + 1] = {held, redis.call('PTTL', KEYS[lock]), token, waiters}
end
return result
