-- Takes a lock that is free and that nobody waits for, or that is reserved for this waiter, on one node of a quorum. Stands before what else
-- may become of an attempt, which costs more.
--
-- KEYS, ARGV: as in node_lock.lua
-- Result: as in node_lock.lua, or it goes on
local tokens = key_of(KEYS[2], 's')
local known =
  redis.call('MGET', KEYS[1], KEYS[2], key_of(KEYS[2], 'x:' .. ARGV[3]), KEYS[3], KEYS[4], KEYS[5])

-- Writes the token, if it is above every one that was proposed here, and the lock's record; the counter before the lock.
local function take()
  local greatest = greatest_of(redis.call('HGET', tokens, 't'), known[5], known[6])
  if is_less(greatest, ARGV[11]) then
    write_token(tokens, ARGV[11], ARGV[3], micros, known[4], known[6])
    write_record(micros, ARGV[11], false)
    return 'ACK'
  end
  write_record(micros, '', false)
  return {'GRANT', greatest}
end

local is_seeded = ARGV[2] == '0' or not string.find(ARGV[1], '|unseeded', 1, true)
if known[1] == ARGV[1] and is_seeded and not known[3] and micros / 1000 >= tonumber(ARGV[2]) and
    (known[2] == '1|' .. ARGV[8] .. '||resv|' or
    not known[2] and redis.call('EXISTS', key_of(KEYS[2], 'q')) == 0) then
  return take()
end
