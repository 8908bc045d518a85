-- Reads what one node of a quorum says of itself.
--
-- KEYS: 1 fencepost:max, 2 fencepost:floor, 3 fencepost:inc
-- ARGV: 1 the incarnation record that this connection has learned
-- Result: {now ms, the greatest token that it knows of, or '0'}, or {'FORGOT'}
--
-- Atomic because a script is; it changes nothing.
local time = redis.call('TIME')
local known = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
if known[3] ~= ARGV[1] then
  return {'FORGOT'}
end
local greatest = known[1] or '0'
if known[2] and is_less(greatest, known[2]) then
  greatest = known[2]
end
return {time[1] * 1000 + math.floor(time[2] / 1000), greatest}
