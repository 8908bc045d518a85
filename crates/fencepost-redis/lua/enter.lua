-- Whether an attempt may have the lock now; if not it joins the queue where it wants to. Stands before the scripts that need it.
--
-- KEYS: 1 fencepost:inc, 2 R:l, 3 R:s, 4 R:q, 5 R:w, 6 R:x:<holder>, 7 R:n (one server only): the last place that was given, which is
--       there while anybody waits
-- ARGV: 1 the incarnation record that this connection has learned, 2 from when on it grants (ms), 3 holder, 4 ttl (ms),
--       5 how long to keep the lock at least (ms, 0 for not), 6 the process, 7 the owner (name and label),
--       8 how long a waiter is believed to live without a sign (ms; 0: do not join the queue), 9 its place, if it had one,
--       10 the waiter: who stands in the queue and whom the lock is reserved for, whichever holder ids its attempts have,
--       11 'shared' or 'alone' (one server only): beside whom it wants the lock
-- known: what stands in KEYS 1, 2 and 6, and, on one server, in 7. now, micros: the server's time in milliseconds, and in microseconds as a string.
-- Result: a refusal, or nothing; then the token that the holder has the lock with already, if it does; then the lock's record where
--         others share it.
--         A refusal is {'BUSY', ms until it is free if nothing is done, place, rank, now ms, 1 where a holder has it whose token
--         is not written yet or else 0}, {'QUARANTINE', ms left}, {'FORGOT'} or {'CANCELLED'}.

local function enter(known, now, micros)
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
  if not held then
    -- Its holder has not given it back, or its reservation is over: those who wait come first.
    held = redis.call('EXISTS', KEYS[4]) == 1 and hand_over(KEYS[2], KEYS[4], KEYS[5], now)
    if not held then
      return
    end
  end
  if is_shared(held) then
    held = settle(KEYS[2], held, KEYS[4], KEYS[5], now)
    if not held then
      return
    end
    local record = is_shared(held) and reader(KEYS[2], ARGV[10], now)
    if record then
      return nil, string.match(record, '^1|%x*|(%d+)|'), held
    end
    if is_shared(held) and ARGV[11] == 'shared' and redis.call('EXISTS', KEYS[4]) == 0 then
      return nil, nil, held
    end
  end
  local holder, token, state = string.match(held, '^1|(%x*)|(%d*)|(%a+)|')
  if holder == ARGV[3] and state == 'held' then
    return nil, token
  end
  if holder == ARGV[10] and state == 'resv' then
    return
  end
  local place, rank = '', 0
  if ARGV[8] ~= '0' then
    local since
    if ARGV[9] ~= '' then
      -- It has been here before.
      place = redis.call('ZSCORE', KEYS[4], ARGV[10])
      since = string.match(redis.call('HGET', KEYS[5], ARGV[10]) or '', '^%d+|[^|]*|(%d+)|')
    end
    if ARGV[9] == '' or not place then
      place = ARGV[9] ~= '' and ARGV[9] or string.format('%.0f', (known[4] or 0) + 1)
      if redis.call('ZADD', KEYS[4], 'NX', place, ARGV[10]) == 0 then
        -- The answer that told it its place was lost.
        place = redis.call('ZSCORE', KEYS[4], ARGV[10])
      end
    end
    since = since or micros
    local alive_until = string.format('%.0f', now + ARGV[8])
    local of_it = ARGV[6] .. '|' .. since .. '|' .. (ARGV[11] or 'alone') .. '|' .. ARGV[7]
    redis.call('HSET', KEYS[5], ARGV[10], alive_until .. '|' .. of_it)
    redis.call('PEXPIRE', KEYS[4], ARGV[8] * 2)
    redis.call('PEXPIRE', KEYS[5], ARGV[8] * 2)
    if ARGV[11] then
      local last = string.format('%.0f', math.max(known[4] or 0, place))
      redis.call('SET', KEYS[7], last, 'PX', string.format('%.0f', ARGV[8] * 2))
    end
    rank = redis.call('ZRANK', KEYS[4], ARGV[10])
  end
  local is_attempt = state == 'held' and token == '' and 1 or 0
  return {'BUSY', redis.call('PTTL', KEYS[2]), tostring(place), rank, now, is_attempt}
end

-- Writes the record of one who shares the lock with others, if there are some, and that of the lock, which lasts as long as the last of
-- them has it.
local function write_reader(now, micros, token, shared)
  local of_it = micros .. '|0|' .. ARGV[6] .. '|' .. ARGV[7]
  local record = '1|' .. ARGV[3] .. '|' .. token .. '|held|' .. of_it
  -- Its reservation may last longer than its lease.
  remove_reader(KEYS[2], ARGV[3])
  local last = add_reader(KEYS[2], shared, ARGV[3], record, now, ARGV[4])
  redis.call('SET', KEYS[2], '1||' .. token .. '|read|' .. of_it, 'PXAT', last)
end
