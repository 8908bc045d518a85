-- Writes a token that is above every one that was proposed here, on one node of a quorum. Stands before the scripts that need it, with KEYS
-- 3 fencepost:max and 5 fencepost:idle.
--
-- tokens: R:s. micros: the server's time in microseconds, as a string. greatest, idle: what stands in those keys.
-- A record that is not ahead of the clock goes after a week; fencepost:idle then stands in for it, and is never above fencepost:max.
local function write_token(tokens, token, holder, micros, greatest, idle)
  redis.call('HSET', tokens, 't', token, 'th', holder)
  local is_ahead = is_less(micros, token)
  if is_ahead then
    redis.call('PERSIST', tokens)
  else
    redis.call('EXPIRE', tokens, 604800)
  end
  if greatest and not is_less(greatest, token) then
    if not is_ahead and (not idle or is_less(idle, token)) then
      redis.call('SET', KEYS[5], token)
    end
  elseif is_ahead then
    redis.call('SET', KEYS[3], token)
  else
    redis.call('MSET', KEYS[3], token, KEYS[5], token)
  end
end
