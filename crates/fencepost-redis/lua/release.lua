-- Gives the lock back: to the first waiter, to a rest, or to nobody.
--
-- KEYS: 1 R:l, 2 R:q, 3 R:w, 4 R:x:<holder>
-- ARGV: 1 how the record of this holder begins, 2 how long an acquisition of this holder may still be under way (ms; 0: none is);
--       on a node of a quorum 4 how it begins where the token was not written
-- held: the lock's record.
-- Result: 1, or 0 when the lock was not this holder's any more
--
-- Atomic because a script is: the comparison and the change are one step, so a newer holder is never hit.
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[4], '', 'PX', ARGV[2])
end
local beginning = ARGV[1]
if held and ARGV[4] and string.sub(held, 1, #ARGV[4]) == ARGV[4] then
  beginning = ARGV[4]
end
if is_shared(held) then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local holder = string.match(beginning, '^1|(%x*)|')
  local record = reader(KEYS[1], holder, now)
  if not record or string.sub(record, 1, #beginning) ~= beginning then
    return 0
  end
  remove_reader(KEYS[1], holder)
  settle(KEYS[1], held, KEYS[2], KEYS[3], now)
  return 1
end
if not held or string.sub(held, 1, #beginning) ~= beginning then
  return 0
end
local rest = string.match(held, '^%d+|(%d+)|', #beginning + 1)
if rest == '0' and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(rest) > now then
  local token = string.match(held, '^1|%x*|(%d*)|')
  redis.call('SET', KEYS[1], '1||' .. token .. '|rest|' .. string.match(held, '|held|(.*)$'), 'PX', tonumber(rest) - now)
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  local process = head and string.match(redis.call('HGET', KEYS[3], head) or '', '^%d+|([^|]*)|')
  if process then
    redis.call('PUBLISH', 'fencepost:p:' .. process, 'next ' .. head)
  end
  return 1
end
hand_over(KEYS[1], KEYS[2], KEYS[3], now)
return 1
