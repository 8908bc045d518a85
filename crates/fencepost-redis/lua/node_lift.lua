-- Makes the next token of one lock at least one that is given, on one node of a quorum, and never lowers it.
--
-- KEYS: 1 R:l, 2 fencepost:max, 3 fencepost:floor, 4 fencepost:idle
-- ARGV: 1 the token below it
-- Result: 1
--
-- Atomic because a script is. It is remembered as a token that was proposed here, so that another node which loses its data
-- is given a floor above it.
local tokens = key_of(KEYS[1], 's')
if is_less(counter(tokens, KEYS[3], KEYS[4]), ARGV[1]) then
  redis.call('HSET', tokens, 't', ARGV[1], 'th', '')
  redis.call('PERSIST', tokens)
end
local greatest = redis.call('GET', KEYS[2])
if not greatest or is_less(greatest, ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1])
end
return 1
