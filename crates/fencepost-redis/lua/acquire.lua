-- Takes the lock, claims a reservation of it, or joins the queue.
--
-- KEYS: 1 fencepost:inc, 2 R:l, 3 R:s, 4 R:q, 5 R:w, 6 R:x:<holder>
-- ARGV: 1 the incarnation record that this connection has learned, 2 from when on it grants (ms), 3 holder, 4 ttl (ms),
--       5 how long to keep the lock at least (ms, 0 for not), 6 the process, 7 the owner (name and label),
--       8 how long a waiter is believed to live without a sign (ms; 0: do not join the queue), 9 its place, if it had one
-- Result: {'OK', token, now ms}, {'BUSY', ms until it is free if nothing is done, place, rank, now ms},
--         {'QUARANTINE', ms left}, {'FORGOT'}, {'CANCELLED'} or {'EXHAUSTED', last token}
--
-- Atomic because a script is. It validates first and writes the token before the lock, so that one that is refused half-way
-- (out of memory) leaves at most a token that nobody has. Tokens never pass through Lua's numbers: those are doubles.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('MGET', KEYS[1], KEYS[2])
if known[1] ~= ARGV[1] then
  return {'FORGOT'}
end
if now < tonumber(ARGV[2]) then
  return {'QUARANTINE', tonumber(ARGV[2]) - now}
end

local held = known[2]
if held or redis.call('EXISTS', KEYS[4], KEYS[6]) > 0 then
  if redis.call('EXISTS', KEYS[6]) == 1 then
    return {'CANCELLED'}
  end
  held = held or hand_over(KEYS[2], KEYS[4], KEYS[5], now)
  if held then
    local holder, token, state = string.match(held, '^1|(%x*)|(%d*)|(%a+)|')
    if holder == ARGV[3] and state == 'held' then
      redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
      return {'OK', token, now}
    end
    if holder ~= ARGV[3] then
      local place, rank = '', 0
      if ARGV[8] ~= '0' then
        place = redis.call('ZSCORE', KEYS[4], ARGV[3])
        if not place then
          place = ARGV[9] ~= '' and ARGV[9] or redis.call('HINCRBY', KEYS[3], 'q', 1)
          redis.call('ZADD', KEYS[4], place, ARGV[3])
        end
        local since = string.match(redis.call('HGET', KEYS[5], ARGV[3]) or '', '^%d+|[^|]*|(%d+)|')
        since = since or time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
        local alive_until = string.format('%.0f', now + ARGV[8])
        redis.call('HSET', KEYS[5], ARGV[3], alive_until .. '|' .. ARGV[6] .. '|' .. since .. '|' .. ARGV[7])
        redis.call('PEXPIRE', KEYS[4], ARGV[8] * 2)
        redis.call('PEXPIRE', KEYS[5], ARGV[8] * 2)
        rank = redis.call('ZRANK', KEYS[4], ARGV[3])
      end
      return {'BUSY', redis.call('PTTL', KEYS[2]), tostring(place), rank, now}
    end
  end
end

local floor = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
local token = redis.call('HGET', KEYS[3], 't')
if not token or #token < #floor or (#token == #floor and token < floor) then
  redis.call('HSET', KEYS[3], 't', floor)
  -- The record of an idle lock goes after a week: the clock is then far above its token. Once an hour is often enough.
  if not token or #token < #floor or string.sub(token, 1, -10) + 3 < string.sub(floor, 1, -10) + 0 then
    redis.call('EXPIRE', KEYS[3], 604800)
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
local keep, rest = tonumber(ARGV[4]), '0'
if ARGV[5] ~= '0' then
  keep = math.max(keep, tonumber(ARGV[5]))
  rest = string.format('%.0f', now + ARGV[5])
end
local owner = '|held|' .. floor .. '|' .. rest .. '|' .. ARGV[6] .. '|' .. ARGV[7]
redis.call('SET', KEYS[2], '1|' .. ARGV[3] .. '|' .. token .. owner, 'PX', string.format('%.0f', keep))
return {'OK', token, now}
