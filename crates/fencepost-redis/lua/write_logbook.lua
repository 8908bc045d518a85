-- Writes what the holder leaves for those to come, while it is the holder.
--
-- KEYS: 1 R:l
-- ARGV: 1 how the record of this holder begins, 2 what it writes, 3 how long that is kept (s)
-- Result: 1, 0 when the lock is not this holder's any more, or the reason for which it was taken away
--
-- Atomic because a script is: a holder that was paused past its lease writes nothing.
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
  return redis.call('GET', key_of(KEYS[1], 'x:' .. string.match(ARGV[1], '^1|(%x*)|'))) or 0
end
redis.call('SET', key_of(KEYS[1], 'b'), ARGV[2], 'EX', ARGV[3])
return 1
