-- Takes the lock, claims a reservation of it, or joins the queue.
--
-- KEYS, ARGV: as in enter.lua
-- Result: as in take.lua, or a refusal
--
-- Atomic because a script is. It validates first and writes the token before the lock, so that one that is refused half-way
-- (out of memory) leaves at most a token that nobody has.
local refusal, held_with, shared = enter(known, places)
if refusal then
  return refusal
end
if held_with then
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
  if shared then
    add_reader(KEYS[2], shared, ARGV[3], reader(KEYS[2], ARGV[3], now), now, ARGV[4])
  end
  return {'OK', held_with, now}
end
local token = draw(known[5])
if not token then
  return {'EXHAUSTED', known[5]}
end
if ARGV[10] == 'shared' then
  write_reader(token, shared)
else
  write_record(micros, token, true)
end
return granted(token)
