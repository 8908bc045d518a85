-- Tokens on one node of a quorum, as strings of digits. Stands before the scripts that need it.

local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end

-- The greatest token that the node knows of for a lock, '0' for none: the one that was written for it, or where its record has
-- expired the greatest of all that have; and the floor.
local function greatest_of(written, floor, idle)
  local greatest = written or idle or '0'
  if floor and is_less(greatest, floor) then
    greatest = floor
  end
  return greatest
end

local function counter(token, floor, idle)
  local others = redis.call('MGET', floor, idle)
  return greatest_of(redis.call('HGET', token, 't'), others[1], others[2])
end
