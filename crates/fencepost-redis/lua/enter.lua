-- Whether an attempt may have the lock now; if not it joins the queue where it wants to. Stands before the scripts that need it.
--
-- KEYS: 1 fencepost:inc, 2 R:l
-- ARGV: 1 the incarnation record that this connection has learned, 2 from when on it grants (ms), 3 holder, 4 ttl (ms),
--       5 the process and the owner (name and label), as they stand in a record, 6 how long a waiter is believed to live without a sign
--       (ms; 0: do not join the queue), 7 its place, if it had one, and then, where something is not as it mostly is,
--       8 the waiter: who stands in the queue and whom the lock is reserved for, whichever holder ids its attempts have (the holder),
--       9 how long to keep the lock at least (ms; 0), 10 'shared' or 'alone': beside whom it wants the lock (alone)
-- known: what stands in fencepost:inc, R:l, R:x:<holder>, and, on one server, R:n. micros: the server's time in microseconds, as a string.
-- places: R:n, on one server: the last place that was given, which is there while anybody waits.
-- Result: a refusal, or nothing; then the token that the holder has the lock with already, if it does; then the lock's record where
--         others share it.
--         A refusal is {'BUSY', ms until it is free if nothing is done (0 where others look), place, rank, now ms, the token of the holder (empty
--         where it is not written yet) or 'none' where nobody holds it}, {'QUARANTINE', ms left}, {'FORGOT'} or {'CANCELLED'}.

local now = math.floor(micros / 1000)

local function enter(known, places)
  if known[1] ~= ARGV[1] then
    return {'FORGOT'}
  end
  if now < tonumber(ARGV[2]) then
    return {'QUARANTINE', tonumber(ARGV[2]) - now}
  end
  if known[3] then
    return {'CANCELLED'}
  end
  local held = known[2]
  local waiter, mode = ARGV[8] or ARGV[3], ARGV[10] or 'alone'
  local queue, waiters = queue_of(KEYS[2])
  if not held then
    -- Its holder has not given it back, or its reservation is over: those who wait come first.
    held = redis.call('EXISTS', queue) == 1 and hand_over(KEYS[2], now)
    if not held then
      return
    end
  end
  if is_shared(held) then
    held = settle(KEYS[2], held, now)
    if not held then
      return
    end
    local record = is_shared(held) and reader(KEYS[2], waiter, now)
    if record then
      return nil, string.match(record, '^1|%x*|(%d+)|'), held
    end
    if is_shared(held) and mode == 'shared' and redis.call('EXISTS', queue) == 0 then
      return nil, nil, held
    end
  end
  local holder, token, state = string.match(held, '^1|(%x*)|(%d*)|(%a+)|')
  if holder == ARGV[3] and state == 'held' then
    return nil, token
  end
  if holder == waiter and state == 'resv' then
    return
  end
  local place, rank = '', 0
  if ARGV[6] ~= '0' then
    local since, is_last
    if ARGV[7] ~= '' then
      -- It has been here before.
      place = redis.call('ZSCORE', queue, waiter)
      since = string.match(redis.call('HGET', waiters, waiter) or '', '^%d+|(%d+)|')
    end
    if ARGV[7] == '' or not place then
      place = ARGV[7] ~= '' and ARGV[7] or string.format('%.0f', (known[4] or 0) + 1)
      if redis.call('ZADD', queue, 'NX', place, waiter) == 0 then
        -- The answer that told it its place was lost.
        place = redis.call('ZSCORE', queue, waiter)
      else
        is_last = places and ARGV[7] == ''
      end
    end
    local alive_until = string.format('%.0f', now + ARGV[6])
    redis.call('HSET', waiters, waiter, alive_until .. '|' .. (since or micros) .. '|' .. mode .. '|' .. ARGV[5])
    local kept = string.format('%.0f', ARGV[6] * 2)
    redis.call('PEXPIRE', queue, kept)
    redis.call('PEXPIRE', waiters, kept)
    if places then
      redis.call('SET', places, string.format('%.0f', math.max(known[4] or 0, place)), 'PX', kept)
    end
    -- The places of one server grow, and to look for one takes the longer the more there are.
    rank = is_last and redis.call('ZCARD', queue) - 1 or redis.call('ZRANK', queue, waiter)
  end
  -- Where one server decides, only the first in the queue looks by itself when the time is over.
  local left = places and rank > 0 and 0 or redis.call('PTTL', KEYS[2])
  return {'BUSY', left, tostring(place), rank, now, state == 'held' and token or 'none'}
end

-- Writes the record of one who shares the lock with others, if there are some, and that of the lock, which lasts as long as the last of
-- them has it.
local function write_reader(token, shared)
  local of_it = micros .. '|0|' .. ARGV[5]
  local record = '1|' .. ARGV[3] .. '|' .. token .. '|held|' .. of_it
  -- Its reservation may last longer than its lease.
  remove_reader(KEYS[2], ARGV[3])
  local last = add_reader(KEYS[2], shared, ARGV[3], record, now, ARGV[4])
  redis.call('SET', KEYS[2], '1||' .. token .. '|read|' .. of_it, 'PXAT', last)
end
