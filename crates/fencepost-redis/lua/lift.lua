-- Makes the next token at least one that is given, and never lowers it.
--
-- KEYS: 1 R:l
-- ARGV: 1 the token below it
-- Result: 1
--
-- Atomic because a script is. Numbers are compared as strings, because those of Lua are doubles. A record that may be ahead
-- of the clock must not expire.
local tokens = key_of(KEYS[1], 's')
local token = redis.call('GET', tokens)
if not token or #token < #ARGV[1] or (#token == #ARGV[1] and token < ARGV[1]) then
  redis.call('SET', tokens, ARGV[1])
end
return 1
