-- The record of a lock that is given back on one node of a quorum, where there is no quicker way.
local held = redis.call('GET', KEYS[1])
