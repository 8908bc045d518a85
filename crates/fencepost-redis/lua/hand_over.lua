-- What ends a hold does with the lock: reserves it for the first waiter that lives, or leaves it free. Stands before the
-- scripts that need it.
--
-- lock, queue, waiters: the keys. now: the server's time in milliseconds. CLAIM_MS: how long a reservation lasts.
-- Result: the record of the reservation, or false when the lock is free. Waiters are told on the channels fencepost:p:<process>.
--
-- A waiter whose process does not listen any more is passed over at once, because PUBLISH says that nobody received it. One
-- that is stopped is counted as a receiver: its reservation ends by itself, and the one behind it has been told to look then.
-- Either way it leaves the queue. If it lives after all it comes back, and remembers its place.
local function hand_over(lock, queue, waiters, now)
  while true do
    local heads = redis.call('ZRANGE', queue, 0, 1)
    if not heads[1] then
      redis.call('DEL', lock)
      return false
    end
    local entries = redis.call('HMGET', waiters, heads[1], heads[2] or '')
    redis.call('ZREM', queue, heads[1])
    redis.call('HDEL', waiters, heads[1])
    local alive_until, process = string.match(entries[1] or '', '^(%d+)|([^|]*)|')
    if alive_until and tonumber(alive_until) >= now then
      local record = '1|' .. heads[1] .. '||resv|'
      if redis.call('PUBLISH', 'fencepost:p:' .. process, 'turn ' .. heads[1]) > 0 then
        redis.call('SET', lock, record, 'PX', CLAIM_MS)
        -- A process that is stopped is so with all its waiters.
        local next_process = string.match(entries[2] or '', '^%d+|([^|]*)|')
        if next_process and next_process ~= process then
          redis.call('PUBLISH', 'fencepost:p:' .. next_process, 'next ' .. heads[2])
        end
        return record
      end
    end
  end
end
