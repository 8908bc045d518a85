-- Takes a waiter out of the queue of one node of a quorum: it has got the lock from the others.
--
-- KEYS: 1 R:q, 2 R:w
-- ARGV: 1 the waiter
-- Result: 1
--
-- Atomic because a script is.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
