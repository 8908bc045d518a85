-- Takes the lock, claims a reservation of it, or joins the queue.
--
-- KEYS, ARGV: as in enter.lua
-- Result: {'OK', token, now ms}, a refusal, or {'EXHAUSTED', last token}
--
-- Atomic because a script is. It validates first and writes the token before the lock, so that one that is refused half-way
-- (out of memory) leaves at most a token that nobody has. Tokens never pass through Lua's numbers: those are doubles.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local refusal, held_with, shared = enter(time, now)
if refusal then
  return refusal
end
if held_with then
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
  if shared then
    add_reader(KEYS[2], shared, ARGV[3], reader(KEYS[2], ARGV[3], now), now, ARGV[4])
  end
  return {'OK', held_with, now}
end

local floor = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
local token = redis.call('HGET', KEYS[3], 't')
if not token or #token < #floor or (#token == #floor and token < floor) then
  redis.call('HSET', KEYS[3], 't', floor)
  -- The record of an idle lock goes after a week: the clock is then far above its token. Once an hour is often enough, and the
  -- first time when a token that was ahead of the clock is so no more.
  if not token or #token < #floor or string.sub(token, 1, -10) + 3 < string.sub(floor, 1, -10) + 0 then
    redis.call('EXPIRE', KEYS[3], 604800)
  else
    redis.call('EXPIRE', KEYS[3], 604800, 'NX')
  end
  token = floor
else
  if #token > 16 or (#token == 16 and token >= '9007199254740991') then
    return {'EXHAUSTED', token}
  end
  redis.call('HINCRBY', KEYS[3], 't', 1)
  redis.call('PERSIST', KEYS[3])
  token = redis.call('HGET', KEYS[3], 't')
end
if ARGV[11] == 'shared' then
  write_reader(time, now, token, shared)
else
  write_record(time, now, token, true)
end
return {'OK', token, now}
