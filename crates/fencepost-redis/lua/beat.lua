-- Shows that the waiters of one process live, and what has become of the locks that they wait for.
--
-- KEYS: R:l of each waiter
-- ARGV: 1 how long a waiter is believed to live without a sign (ms), then the holder ids of the waiters
-- Result: of each waiter: 'turn' when the lock is reserved for it, 'gone' when it is not in the queue, or else the
--         milliseconds until the lock is free if nothing is done where it is the first in the queue, and -1 elsewhere
--
-- Atomic because a script is. It also hands on a lock whose holder or whose reservation has run out, or the last of its readers.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local alive_until = string.format('%.0f', now + ARGV[1])
local result = {}
for waiter, lock in ipairs(KEYS) do
  local holder = ARGV[waiter + 1]
  local queue, waiters = queue_of(lock)
  local entry = redis.call('HGET', waiters, holder)
  if entry then
    redis.call('HSET', waiters, holder, alive_until .. string.match(entry, '|.*$'))
    redis.call('PEXPIRE', queue, ARGV[1] * 2)
    redis.call('PEXPIRE', waiters, ARGV[1] * 2)
    -- R:n, which one server has.
    redis.call('PEXPIRE', key_of(lock, 'n'), ARGV[1] * 2)
  end
  local held = redis.call('GET', lock)
  if not held then
    held = hand_over(lock, now)
  elseif is_shared(held) then
    held = settle(lock, held, now)
  end
  if held and (string.match(held, '^1|(%x*)||resv|') == holder or is_shared(held) and reader(lock, holder, now)) then
    result[waiter] = 'turn'
  elseif not entry then
    result[waiter] = 'gone'
  else
    if redis.call('ZRANK', queue, holder) == 0 then
      result[waiter] = redis.call('PTTL', lock)
    else
      result[waiter] = -1
    end
  end
end
return result
