-- The other keys of a lock, by that of its record. Scripts spell them by themselves: that takes no longer than to be sent them, and
-- spares the client both.
local function key_of(lock, what)
  return string.sub(lock, 1, -2) .. what
end
