-- Writes a token on one node of a quorum, if it is above every one that was proposed here, and prolongs the lock.
--
-- KEYS: 1 fencepost:inc, 2 R:l, 3 fencepost:max, 4 fencepost:floor, 5 fencepost:idle
-- ARGV: 1 the incarnation record that this connection has learned, 2 from when on it grants (ms), 3 holder, 4 token, 5 ttl (ms),
--       6 1 where other nodes have granted it the token, and this one is filled in
-- Result: {'ACK', now ms}, {'STALE', counter}, {'NOLOCK'}, {'FORGOT'}, {'QUARANTINE', ms left} or {'UNSEEDED'}
--
-- Atomic because a script is. A node that is filled in and has a greater counter keeps that, and has the lock all the same.
-- It writes the counter before the lock.
local known = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if known[1] ~= ARGV[1] then
  return {'FORGOT'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < tonumber(ARGV[2]) then
  return {'QUARANTINE', tonumber(ARGV[2]) - now}
end
if ARGV[2] ~= '0' and string.find(ARGV[1], '|unseeded', 1, true) then
  return {'UNSEEDED'}
end
local rest = string.match(known[2] or '', '^1|' .. ARGV[3] .. '|%d*(|held|.*)$')
if not rest then
  return {'NOLOCK'}
end
local record = '1|' .. ARGV[3] .. '|' .. ARGV[4] .. rest

-- It may have to be kept longer than the lease.
local function prolong()
  local kept_until = tonumber(string.match(rest, '^|held|%d+|(%d+)|'))
  redis.call('SET', KEYS[2], record, 'PX', string.format('%.0f', math.max(tonumber(ARGV[5]), kept_until - now)))
end

local tokens = key_of(KEYS[2], 's')
local written = redis.call('HMGET', tokens, 't', 'th')
if written[1] ~= ARGV[4] or written[2] ~= ARGV[3] then
  local greatest = greatest_of(written[1], known[4], known[5])
  if not is_less(greatest, ARGV[4]) then
    if ARGV[6] == '1' then
      prolong()
    end
    return {'STALE', greatest}
  end
end
write_token(tokens, ARGV[4], ARGV[3], time[1] .. string.rep('0', 6 - #time[2]) .. time[2], known[3], known[5])
prolong()
return {'ACK', now}
