-- Raises the mark of a fence to a stamp.
--
-- KEYS: 1 R:f
-- ARGV: 1 token, 2 holder, 3 the name of the lock
-- Result: OK, or a refusal of fence.lua
--
-- Atomic because a script is, and the mark is written by one command.
local refused = seal(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
return refused and redis.error_reply(refused) or redis.status_reply('OK')
