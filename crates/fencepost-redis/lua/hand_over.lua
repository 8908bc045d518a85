-- What ends a hold does with the lock: reserves it for the first waiter that lives, or leaves it free. Stands before the
-- scripts that need it.
--
-- lock: its key. now: the server's time in milliseconds. CLAIM_MS: how long a reservation lasts.
-- Result: the record of the lock, or false when it is free. Waiters are told on the channels fencepost:p:<process>.
--
-- A waiter whose process does not listen any more is passed over at once, because PUBLISH says that nobody received it. One
-- that is stopped is counted as a receiver: its reservation ends by itself, and the one behind it has been told to look then.
-- Either way it leaves the queue. If it lives after all it comes back, and remembers its place.

-- Who waits for a lock, in order, and what is written of each.
local function queue_of(lock)
  return key_of(lock, 'q'), key_of(lock, 'w')
end

-- The first two who wait: for each its id, until when it is believed to live, its process, and its mode.
local function first_waiters(lock)
  local queue, waiters = queue_of(lock)
  local heads = redis.call('ZRANGE', queue, 0, 1)
  if not heads[1] then
    return
  end
  local entries = redis.call('HMGET', waiters, heads[1], heads[2] or '')
  local seen = {}
  for index, head in ipairs(heads) do
    local alive_until, mode, process = string.match(entries[index] or '', '^(%d+)|%d+|(%a+)|([^|]*)|')
    seen[index] = {id = head, alive_until = tonumber(alive_until or 0), process = process or '', mode = mode}
  end
  return seen[1], seen[2]
end

local function leave_queue(lock, waiter)
  local queue, waiters = queue_of(lock)
  redis.call('ZREM', queue, waiter)
  redis.call('HDEL', waiters, waiter)
end

-- A process that is stopped is so with all its waiters.
local function tell_next(told, next)
  if next and next.process ~= told and next.process ~= '' then
    redis.call('PUBLISH', 'fencepost:p:' .. next.process, 'next ' .. next.id)
  end
end

-- Reserves a lock that readers share, or that is free, for those who stand in front and share it too; they come in together, up to
-- the first who wants it alone. `held` is the lock's record.
local function admit(lock, held, now)
  local told
  while true do
    local head, next = first_waiters(lock)
    if not head then
      return held
    end
    if head.mode ~= 'shared' and head.alive_until >= now and
        redis.call('PUBSUB', 'NUMSUB', 'fencepost:p:' .. head.process)[2] > 0 then
      if told then
        tell_next(told, head)
      end
      return held
    end
    leave_queue(lock, head.id)
    if head.mode == 'shared' and head.alive_until >= now and
        redis.call('PUBLISH', 'fencepost:p:' .. head.process, 'turn ' .. head.id) > 0 then
      local last = add_reader(lock, held, head.id, '1|' .. head.id .. '||resv|', now, CLAIM_MS)
      if is_shared(held) then
        redis.call('PEXPIREAT', lock, last)
      else
        held = '1|||read|'
        redis.call('SET', lock, held, 'PXAT', last)
      end
      told = head.process
    end
  end
end

local function hand_over(lock, now)
  while true do
    local head, next = first_waiters(lock)
    if not head then
      redis.call('DEL', lock)
      return false
    end
    if head.mode == 'shared' and head.alive_until >= now then
      local held = admit(lock, false, now)
      if held then
        return held
      end
    else
      leave_queue(lock, head.id)
      if head.alive_until >= now and
          redis.call('PUBLISH', 'fencepost:p:' .. head.process, 'turn ' .. head.id) > 0 then
        local record = '1|' .. head.id .. '||resv|'
        redis.call('SET', lock, record, 'PX', CLAIM_MS)
        tell_next(head.process, next)
        return record
      end
    end
  end
end

-- What becomes of a lock that is shared, when one of those who share it may be gone or one who waits for it is; its record.
local function settle(lock, held, now)
  if purge(lock, now) == 0 then
    return hand_over(lock, now)
  end
  redis.call('PEXPIREAT', lock, end_of_readers(lock))
  return admit(lock, held, now)
end
