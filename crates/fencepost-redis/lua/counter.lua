-- Tokens on one node of a quorum, as strings of digits. Stands before the scripts that need it.

local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end

-- The greatest token that the node knows of for a lock; '0' for none.
local function counter(token, floor, idle)
  local greatest = redis.call('HGET', token, 't')
  local others = redis.call('MGET', floor, idle)
  if not greatest then
    greatest = others[2] or '0'
  end
  if others[1] and is_less(greatest, others[1]) then
    greatest = others[1]
  end
  return greatest
end
