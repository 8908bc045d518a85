-- Takes the lock on one node of a quorum and writes its token, or joins the queue.
--
-- KEYS: as in enter.lua, then 3 fencepost:max, 4 fencepost:floor, 5 fencepost:idle
-- ARGV: as in enter.lua, then 11 the token (0: none)
-- Result: 'ACK' where the lock is the holder's and its token is written, {'GRANT', counter} where the counter is not below the token,
--         a refusal, or {'UNSEEDED'}
--
-- Atomic because a script is. The counter is the greatest token that was proposed for this lock here. Where its record has
-- expired the greatest of all expired ones stands in for it, so that a counter never falls.
local refusal, held_with = enter({known[1], known[2], known[3]})
if refusal then
  return refusal
end
if not is_seeded then
  return {'UNSEEDED'}
end
if not held_with then
  return take()
end
-- It has been here before.
redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
local written = redis.call('HMGET', tokens, 't', 'th')
if held_with == ARGV[11] and written[1] == held_with and written[2] == ARGV[3] then
  return 'ACK'
end
return {'GRANT', greatest_of(written[1], known[5], known[6])}
