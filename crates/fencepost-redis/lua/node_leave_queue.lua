-- Takes a waiter out of the queue of one node of a quorum: it has got the lock from the others.
--
-- KEYS: 1 R:l
-- ARGV: 1 the waiter
-- Result: 1
--
-- Atomic because a script is.
redis.call('ZREM', key_of(KEYS[1], 'q'), ARGV[1])
redis.call('HDEL', key_of(KEYS[1], 'w'), ARGV[1])
return 1
