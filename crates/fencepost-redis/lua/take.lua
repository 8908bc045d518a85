-- Takes a lock that is free and that nobody waits for. Stands before what else may become of an attempt, which costs more.
--
-- KEYS, ARGV: as in enter.lua
-- Result: {'OK', token, now ms} or {'EXHAUSTED', last token}, or it goes on

-- The next token, which is written before the lock; nothing where there is none. Tokens never pass through Lua's numbers: those are
-- doubles.
local function draw(last)
  if not last or #last < #micros or (#last == #micros and last < micros) then
    -- The record of an idle lock goes after a week: the clock is then far above its token.
    redis.call('SET', KEYS[3], micros, 'EX', 604800)
    return micros
  end
  if #last > 16 or (#last == 16 and last >= '9007199254740991') then
    return
  end
  redis.call('INCR', KEYS[3])
  redis.call('PERSIST', KEYS[3])
  return redis.call('GET', KEYS[3])
end

local known = redis.call('MGET', KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[3])
if known[1] == ARGV[1] and not (known[2] or known[3] or known[4]) and now >= tonumber(ARGV[2]) and ARGV[11] == 'alone' then
  local token = draw(known[5])
  if not token then
    return {'EXHAUSTED', known[5]}
  end
  write_record(now, micros, token, true)
  return {'OK', token, now}
end
