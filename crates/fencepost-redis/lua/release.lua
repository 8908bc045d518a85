-- Gives the lock back: to the first waiter, to a rest, or to nobody.
--
-- KEYS: 1 R:l
-- ARGV: 1 how the record of this holder begins, 2 how long an acquisition may still be under way (ms; nothing or 0: none is)
-- held: the lock's record.
-- Result: 1, or 0 when the lock was not this holder's any more
--
-- Atomic because a script is: the comparison and the change are one step, so a newer holder is never hit.
local beginning = ARGV[1]
local holder = string.match(beginning, '^1|(%x*)|')
if ARGV[2] and ARGV[2] ~= '0' then
  redis.call('SET', key_of(KEYS[1], 'x:' .. holder), '', 'PX', ARGV[2])
end
if is_shared(held) then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local record = reader(KEYS[1], holder, now)
  if not record or string.sub(record, 1, #beginning) ~= beginning then
    return 0
  end
  remove_reader(KEYS[1], holder)
  settle(KEYS[1], held, now)
  return 1
end
if not held or string.sub(held, 1, #beginning) ~= beginning then
  return 0
end
local rest = string.match(held, '^%d+|(%d+)|', #beginning + 1)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(rest) > now then
  local token = string.match(held, '^1|%x*|(%d*)|')
  redis.call('SET', KEYS[1], '1||' .. token .. '|rest|' .. string.match(held, '|held|(.*)$'), 'PX', tonumber(rest) - now)
  tell_next(nil, (first_waiters(KEYS[1])))
  return 1
end
hand_over(KEYS[1], now)
return 1
