-- Ends an attempt to acquire, whatever has become of it.
--
-- KEYS: 1 R:l
-- ARGV: 1 holder, 2 how long an acquisition of this holder may still be under way (ms; 0: none is), 3 the waiter
-- Result: 1
--
-- Final once acknowledged: scripts run one after the other, and one that acquires for this holder later finds the
-- tombstone R:x:<holder>. Without one the connection's own order has the acquisition done before this.
if ARGV[2] ~= '0' then
  redis.call('SET', key_of(KEYS[1], 'x:' .. ARGV[1]), '', 'PX', ARGV[2])
end
leave_queue(KEYS[1], ARGV[3])
local held = redis.call('GET', KEYS[1])
local holder = held and string.match(held, '^1|(%x*)|')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if holder and (holder == ARGV[1] or holder == ARGV[3]) then
  hand_over(KEYS[1], now)
elseif is_shared(held) then
  -- It may have been one of them, or have kept others from coming in.
  remove_reader(KEYS[1], ARGV[1])
  settle(KEYS[1], held, now)
end
return 1
