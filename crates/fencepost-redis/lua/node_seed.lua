-- Gives one node of a quorum, which may have lost its data, the floor of its tokens, and lets it grant again.
--
-- KEYS: 1 fencepost:inc, 2 fencepost:floor
-- ARGV: 1 the incarnation record that waits for it, 2 the floor
-- Result: the record from now on, or false when another incarnation or another client was there first
--
-- Atomic because a script is: the floor is for the very incarnation that was seen to wait. It is never lowered.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return false
end
local floor = redis.call('GET', KEYS[2])
if not floor or is_less(floor, ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2])
end
local seeded = string.gsub(ARGV[1], '|unseeded$', '')
redis.call('SET', KEYS[1], seeded)
return seeded
