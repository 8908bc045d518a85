-- The fence as functions that any client can call: FCALL fencepost_write 2 fencepost:{NAME}:f total TOKEN HOLDER SET total 7.
--
-- KEYS: 1 R:f; of fencepost_write, then the keys of the command
-- ARGV: 1 token, 2 holder; of fencepost_seal, then the name of the lock, which may be left out where the key spells it; of
--       fencepost_write, then a command with its arguments
-- Result: OK, of fencepost_write that of the command; or a refusal of fence.lua
--
-- Atomic because a function is: nobody can seal between the check and the command.
local function answer(refused)
  return refused and redis.error_reply(refused) or redis.status_reply('OK')
end

redis.register_function('fencepost_seal', function(keys, args)
  if not args[3] and string.find(keys[1] or '', '{h~', 1, true) then
    return redis.error_reply('FP001 the name of the lock is missing: the key does not spell it')
  end
  return answer(seal(keys[1], args[1], args[2], args[3]))
end)

redis.register_function{
  function_name = 'fencepost_check',
  callback = function(keys, args)
    return answer(check(keys[1], args[1], args[2]))
  end,
  flags = {'no-writes'},
}

redis.register_function('fencepost_write', function(keys, args)
  local refused = check(keys[1], args[1], args[2])
  if refused then
    return redis.error_reply(refused)
  end
  if not args[3] then
    return redis.error_reply('FP001 no command: write it behind the token and the holder')
  end
  return redis.call(unpack(args, 3))
end)
