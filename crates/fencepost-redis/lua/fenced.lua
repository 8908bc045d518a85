-- Checks a stamp before a script of the user, which follows it as the body of a function. fence.lua stands before this.
--
-- KEYS: 1 R:f, then those of the user's script
-- ARGV: 1 token, 2 holder, then those of the user's script
-- Result: that of the user's script, or a refusal of fence.lua
--
-- Atomic because a script is: nobody can seal between the check and what the user's script does.
local refused = check(KEYS[1], ARGV[1], ARGV[2])
if refused then
  return redis.error_reply(refused)
end
table.remove(KEYS, 1)
table.remove(ARGV, 1)
table.remove(ARGV, 1)
