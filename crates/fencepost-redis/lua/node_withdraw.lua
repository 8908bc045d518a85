-- Ends an attempt that got too few nodes, on one of them, and leaves its waiter in the queue.
--
-- KEYS: 1 R:l
-- ARGV: 1 holder, 2 how long a request of this holder may still be under way (ms; 0: none is);
--       what follows is for other ways to go
-- Result: 1
--
-- Atomic because a script is; final as cancel.lua is. It hands the lock to nobody: who else has split the vote tries again, and the
-- sooner wins. Each attempt has a holder id of its own, so one that arrives late frees nothing of a later attempt.
if ARGV[2] ~= '0' then
  redis.call('SET', key_of(KEYS[1], 'x:' .. ARGV[1]), '', 'PX', ARGV[2])
end
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^1|(%x*)|') == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
