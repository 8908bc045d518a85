-- The record of a lock that is given back on one node of a quorum, and the end of it where nobody waits for it and it does not rest.
--
-- KEYS, ARGV: as in release.lua, and 3 the waiter, 4 how the record of this holder begins, whichever token is written there: that of an
-- earlier round where the last did not reach the node, or none. A holder id is that of one attempt alone.
-- held: the lock's record. ARGV[1] is from now on how it begins here.
local held = redis.call('GET', KEYS[1])
local begins = held and string.match(held, '^' .. ARGV[4] .. '%d*|held|')
if begins then
  if ARGV[2] == '0' and string.find(held, '^%d+|0|', #begins + 1) and
      redis.call('EXISTS', key_of(KEYS[1], 'q')) == 0 then
    redis.call('DEL', KEYS[1])
    return 1
  end
  ARGV[1] = begins
end
