-- Writes the record of a holder who has the lock alone. Stands before the scripts that need it, with KEYS and ARGV as in enter.lua.
--
-- now, micros: the server's time in milliseconds, and in microseconds as a string.
-- It has an expiry by the same command: the ttl, or, where the holder is certain, the time for which it is to be kept if that is longer.
local function write_record(now, micros, token, is_certain)
  local keep, rest = ARGV[4], '0'
  if ARGV[5] ~= '0' then
    keep = is_certain and tonumber(ARGV[5]) > tonumber(keep) and ARGV[5] or keep
    rest = string.format('%.0f', now + ARGV[5])
  end
  local owner = '|held|' .. micros .. '|' .. rest .. '|' .. ARGV[6] .. '|' .. ARGV[7]
  redis.call('SET', KEYS[2], '1|' .. ARGV[3] .. '|' .. token .. owner, 'PX', keep)
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local micros = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
