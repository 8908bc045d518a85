-- Says which commands this user may not run, running none of them.
--
-- KEYS: none
-- ARGV: commands, each with its arguments, in which a space separates words
-- Result: {the name of a command that is forbidden, …}
--
-- Atomic because a script is; it changes nothing.
local forbidden = {}
for _, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do
    words[#words + 1] = word
  end
  if not redis.acl_check_cmd(unpack(words)) then
    forbidden[#forbidden + 1] = words[1]
  end
end
return forbidden
