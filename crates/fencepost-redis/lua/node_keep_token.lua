-- Keeps the token of a lease that is ended by force, on one node of a quorum.
local function keep_token(key, token)
  local last = redis.call('HGET', key, 't')
  if not last or #last < #token or (#last == #token and last < token) then
    redis.call('HSET', key, 't', token)
  end
end
