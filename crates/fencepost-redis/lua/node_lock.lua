-- Takes the lock on one node of a quorum, or joins the queue.
--
-- KEYS: as in enter.lua, then 7 fencepost:floor, 8 fencepost:idle
-- ARGV: as in enter.lua
-- Result: {'GRANT', counter, now ms}, a refusal, or {'UNSEEDED'}
--
-- Atomic because a script is. The counter is the greatest token that was proposed for this lock here. Where its record has
-- expired the greatest of all expired ones stands in for it, so that a counter never falls.
local refusal, held_with = enter(redis.call('MGET', KEYS[1], KEYS[2], KEYS[6]), now, micros)
if refusal then
  return refusal
end
if ARGV[2] ~= '0' and string.find(ARGV[1], '|unseeded', 1, true) then
  return {'UNSEEDED'}
end
if held_with then
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
else
  write_record(now, micros, '', false)
end
return {'GRANT', counter(KEYS[3], KEYS[7], KEYS[8]), now}
