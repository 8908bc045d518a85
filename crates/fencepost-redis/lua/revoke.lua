-- Takes a lease away from the holder with one token, and from no other.
--
-- KEYS: 1 R:l
-- ARGV: 1 token, 2 reason, 3 how long the reason is kept for its holder (ms)
-- Result: 1, or 0 when nobody holds the lock with that token
--
-- Atomic because a script is: a newer holder is never hit. The token record outlives the lease, so the next token is greater.

-- What is written of the one who shares the lock with this token.
local function reader_with(lock, token, now)
  purge(lock, now)
  local _, records = readers_of(lock)
  for _, record in ipairs(redis.call('HVALS', records)) do
    if string.match(record, '^1|%x*|(%d+)|held|') == token then
      return record
    end
  end
end

local held = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local shared = is_shared(held) and held
if shared then
  held = reader_with(KEYS[1], ARGV[1], now)
end
local holder, token = string.match(held or '', '^1|(%x*)|(%d*)|held|')
if not holder or token ~= ARGV[1] then
  return 0
end
-- A token record that has expired or was lost must not let the token come back.
keep_token(key_of(KEYS[1], 's'), token)
redis.call('SET', key_of(KEYS[1], 'x:' .. holder), ARGV[2], 'PX', ARGV[3])
local process = string.match(held, '^1|%x*|%d*|held|%d+|%d+|([^|]*)|')
redis.call('PUBLISH', 'fencepost:p:' .. process, 'gone ' .. holder .. ' ' .. ARGV[2])
if shared then
  remove_reader(KEYS[1], holder)
  settle(KEYS[1], shared, now)
else
  hand_over(KEYS[1], now)
end
return 1
