-- The record of a lock that is given back on one node of a quorum, and the end of it where nobody waits for it and it does not rest.
--
-- KEYS, ARGV: as in release.lua, and 3 the waiter, then how else the record of this holder may begin: without a token, or with one of
-- an earlier round, where the last did not reach the node.
-- held: the lock's record. ARGV[1] is from now on how it begins here.
local held = redis.call('GET', KEYS[1])
local begins
for index, beginning in ipairs(ARGV) do
  if (index == 1 or index > 3) and held and string.sub(held, 1, #beginning) == beginning then
    begins = beginning
  end
end
if begins then
  if ARGV[2] == '0' and string.find(held, '^%d+|0|', #begins + 1) and
      redis.call('EXISTS', key_of(KEYS[1], 'q')) == 0 then
    redis.call('DEL', KEYS[1])
    return 1
  end
  ARGV[1] = begins
end
