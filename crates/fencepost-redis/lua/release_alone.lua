-- Gives back a lock that is held alone, that nobody waits for, and that does not rest. Stands before what else a release may do.
--
-- KEYS, ARGV: as in release.lua
-- held: the lock's record.
local known = redis.call('MGET', KEYS[1], key_of(KEYS[1], 'n'))
local held = known[1]
if held and not known[2] and not ARGV[2] and string.sub(held, 1, #ARGV[1]) == ARGV[1] and
    string.find(held, '^%d+|0|', #ARGV[1] + 1) then
  redis.call('DEL', KEYS[1])
  return 1
end
