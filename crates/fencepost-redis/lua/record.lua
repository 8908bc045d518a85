-- Writes the record of a holder who has the lock alone. Stands before the scripts that need it, with KEYS and ARGV as in enter.lua.
--
-- micros: the server's time in microseconds, as a string.
-- It has an expiry by the same command: the ttl, or, where the holder is certain, the time for which it is to be kept if that is longer.
local function write_record(micros, token, is_certain)
  local keep, at_least, rest = ARGV[4], ARGV[9], '0'
  if at_least and at_least ~= '0' then
    keep = is_certain and tonumber(at_least) > tonumber(keep) and at_least or keep
    rest = string.format('%.0f', math.floor(micros / 1000) + at_least)
  end
  redis.call('SET', KEYS[2], '1|' .. ARGV[3] .. '|' .. token .. '|held|' .. micros .. '|' .. rest .. '|' .. ARGV[5], 'PX', keep)
end

local time = redis.call('TIME')
local micros = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
