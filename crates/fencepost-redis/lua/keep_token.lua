-- Keeps the token of a lease that is ended by force, where one server decides.
local function keep_token(key, token)
  local last = redis.call('GET', key)
  if not last or #last < #token or (#last == #token and last < token) then
    redis.call('SET', key, token)
  end
end
