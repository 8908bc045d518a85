-- Takes the lock on one node of a quorum, or joins the queue.
--
-- KEYS: as in enter.lua, then 3 fencepost:floor, 4 fencepost:idle
-- ARGV: as in enter.lua
-- Result: {'GRANT', counter, now ms}, a refusal, or {'UNSEEDED'}
--
-- Atomic because a script is. The counter is the greatest token that was proposed for this lock here. Where its record has
-- expired the greatest of all expired ones stands in for it, so that a counter never falls.
local refusal, held_with = enter(redis.call('MGET', KEYS[1], KEYS[2], key_of(KEYS[2], 'x:' .. ARGV[3])))
if refusal then
  return refusal
end
if ARGV[2] ~= '0' and string.find(ARGV[1], '|unseeded', 1, true) then
  return {'UNSEEDED'}
end
if held_with then
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
else
  write_record(micros, '', false)
end
return {'GRANT', counter(key_of(KEYS[2], 's'), KEYS[3], KEYS[4]), now}
