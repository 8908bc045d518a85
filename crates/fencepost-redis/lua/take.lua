-- Takes a lock that is free and that nobody waits for, or that is reserved for this holder. Stands before what else may become of an
-- attempt, which costs more.
--
-- KEYS, ARGV: as in enter.lua
-- Result: the token, where that is the server's time in microseconds, or {'OK', token, now ms} or {'EXHAUSTED', last token}, or it
--         goes on

local beside = key_of(KEYS[2], '')
local tokens, places = beside .. 's', beside .. 'n'

-- The next token, which is written before the lock; nothing where there is none. Tokens never pass through Lua's numbers: those are
-- doubles.
local function draw(last)
  if not last or #last < #micros or (#last == #micros and last < micros) then
    -- The record of an idle lock goes after a week: the clock is then far above its token.
    redis.call('SET', tokens, micros, 'EX', '604800')
    return micros
  end
  if #last > 16 or (#last == 16 and last >= '9007199254740991') then
    return
  end
  redis.call('INCR', tokens)
  redis.call('PERSIST', tokens)
  return redis.call('GET', tokens)
end

-- What an attempt that has got the lock with this token is told. Redis takes longer for a list.
local function granted(token)
  if token == micros then
    return token
  end
  return {'OK', token, math.floor(micros / 1000)}
end

local known = redis.call('MGET', KEYS[1], KEYS[2], beside .. 'x:' .. ARGV[3], places, tokens)
local is_free = not known[2] and not known[4] or known[2] == '1|' .. ARGV[3] .. '||resv|'
if is_free and known[1] == ARGV[1] and not known[3] and micros / 1000 >= tonumber(ARGV[2]) and not ARGV[8] then
  local token = draw(known[5])
  if not token then
    return {'EXHAUSTED', known[5]}
  end
  write_record(micros, token, true)
  return granted(token)
end
