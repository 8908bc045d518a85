-- Writes a token on one node of a quorum, if it is above every one that was proposed here, and prolongs the lock.
--
-- KEYS: 1 fencepost:inc, 2 R:l, 3 R:s, 4 fencepost:max, 5 fencepost:floor, 6 fencepost:idle
-- ARGV: 1 the incarnation record that this connection has learned, 2 from when on it grants (not looked at: a lock was granted
--       before), 3 holder, 4 token, 5 ttl (ms)
-- Result: {'ACK', now ms}, {'STALE', counter}, {'NOLOCK'} or {'FORGOT'}
--
-- Atomic because a script is. It writes the counter before the lock. A record that is not ahead of the clock goes after a week;
-- fencepost:idle then stands in for it.
local known = redis.call('MGET', KEYS[1], KEYS[2], KEYS[4])
if known[1] ~= ARGV[1] then
  return {'FORGOT'}
end
local rest = string.match(known[2] or '', '^1|' .. ARGV[3] .. '|%d*(|held|.*)$')
if not rest then
  return {'NOLOCK'}
end
local written = redis.call('HMGET', KEYS[3], 't', 'th')
if written[1] ~= ARGV[4] or written[2] ~= ARGV[3] then
  local greatest = counter(KEYS[3], KEYS[5], KEYS[6])
  if not is_less(greatest, ARGV[4]) then
    return {'STALE', greatest}
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[3], 't', ARGV[4], 'th', ARGV[3])
if not known[3] or is_less(known[3], ARGV[4]) then
  redis.call('SET', KEYS[4], ARGV[4])
end
if is_less(time[1] .. string.rep('0', 6 - #time[2]) .. time[2], ARGV[4]) then
  redis.call('PERSIST', KEYS[3])
else
  local idle = redis.call('GET', KEYS[6])
  if not idle or is_less(idle, ARGV[4]) then
    redis.call('SET', KEYS[6], ARGV[4])
  end
  redis.call('EXPIRE', KEYS[3], 604800)
end
redis.call('SET', KEYS[2], '1|' .. ARGV[3] .. '|' .. ARGV[4] .. rest, 'KEEPTTL')
redis.call('PEXPIRE', KEYS[2], ARGV[5], 'GT')
return {'ACK', now}
