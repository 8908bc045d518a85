-- The rule of the fence: stands before the scripts and functions that apply it.
--
-- key: R:f, a hash: t the token, h the holder, n the name of the lock; it never expires
-- token, holder: the stamp that is shown
-- Result of each: nothing, or a refusal as an error reply begins. FP001: no stamp, or not the key of a fence; FP002: a stale stamp, or
-- one that was never sealed; FP003: the mark is damaged. What is refused has changed nothing.
--
-- Atomic because the script is that it stands in. Tokens never pass through Lua's numbers: those are doubles, in which 2^53 and
-- 2^53+1 are one. More digits are more, and of as many digits the order of text is the order of numbers.
local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end

local function is_token(text)
  return text and string.find(text, '^[1-9]%d*$') and not is_less('9223372036854775807', text)
end

local function no_stamp(key, token, holder)
  if not string.find(key or '', '^fencepost:{[^{}]+}:f$') then
    return 'FP001 the first key is not fencepost:{NAME}:f'
  end
  if not is_token(token) then
    return 'FP001 no fencing token: a whole number in 1..=9223372036854775807'
  end
  if not holder or #holder > 64 or string.find(holder, '[^A-Za-z0-9%-]') then
    return 'FP001 no holder: 0 to 64 letters, digits and hyphens'
  end
end

-- The mark's token and holder; nothing where there is none.
local function mark_of(key)
  local mark = redis.call('HMGET', key, 't', 'h')
  if (mark[1] or mark[2]) and not (mark[2] and is_token(mark[1])) then
    return nil, nil, 'FP003 the mark in ' .. key .. ' is damaged'
  end
  return mark[1], mark[2]
end

local function stale(token, mark)
  if token == mark then
    return 'FP002 token ' .. token .. ' is sealed for another holder'
  end
  return 'FP002 token ' .. token .. ' is stale, the mark is ' .. mark
end

-- Raises the mark to a stamp.
local function seal(key, token, holder, name)
  local wrong = no_stamp(key, token, holder)
  if wrong then
    return wrong
  end
  local mark, of, damaged = mark_of(key)
  if damaged then
    return damaged
  end
  if mark and (is_less(token, mark) or (token == mark and holder ~= of)) then
    return stale(token, mark)
  end
  if token == mark then
    return
  end
  if name then
    redis.call('HSET', key, 't', token, 'h', holder, 'n', name)
  else
    redis.call('HSET', key, 't', token, 'h', holder)
  end
end

-- Accepts exactly the sealed stamp.
local function check(key, token, holder)
  local wrong = no_stamp(key, token, holder)
  if wrong then
    return wrong
  end
  local mark, of, damaged = mark_of(key)
  if damaged then
    return damaged
  end
  if token == mark and holder == of then
    return
  end
  if mark and not is_less(mark, token) then
    return stale(token, mark)
  end
  local there = mark and 'the mark is ' .. mark or 'there is no mark'
  return 'FP002 token ' .. token .. ' was never sealed, ' .. there .. ': seal first'
end
