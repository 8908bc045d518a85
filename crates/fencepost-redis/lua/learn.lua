-- Learns which incarnation of the server this is, once a connection, and begins a quarantine where it may have lost data.
--
-- KEYS: 1 fencepost:inc, 2 fencepost:cfg
-- ARGV: 1 the longest ttl (ms), 2 1 when this connection had learned a record and it is gone or another one now,
--       3 1 where it is one node of a quorum, whose tokens need a floor after a loss of data
-- Result: {the incarnation record, from when on it grants (ms), now ms, why it may have lost data, warnings…}
--
-- Atomic because a script is: of two that find the record missing or strange, the second finds the first's.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function field(section, name)
  return string.match(redis.call('INFO', section), name .. ':([^\r\n]*)')
end

local longest = tonumber(redis.call('HGET', KEYS[2], 'max_ttl') or 0)
if longest < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[2], 'max_ttl', ARGV[1], 'schema', 1)
end
local quarantine = math.floor(math.max(tonumber(ARGV[1]), longest) * 1.001) + 50

local id = field('server', 'run_id')
local record = redis.call('GET', KEYS[1])
local known, ready, followed_before, why = string.match(record or '', '^(%w+)|(%d+)|(%x*)|(.*)$')
ready = tonumber(ready)
-- Whom this server has followed last; all zero where it has followed nobody, or has forgotten whom.
local followed = string.match(field('replication', 'master_replid2') or '', '^0*(%x*)$')
if followed == '' then
  followed = followed_before or ''
end
if known ~= id or followed ~= followed_before then
  if known and known ~= id then
    why = 'it was restarted or a replica took over'
  elseif known then
    -- It may have got the record back together with the data of a replica that lacks the last grants.
    why = 'it was a replica for a while'
  elseif ARGV[2] == '1' or string.find(redis.call('INFO', 'commandstats'), 'cmdstat_flush') then
    why = 'its data was removed'
  -- It counts the beginnings of seconds, which may be one more than have passed.
  elseif (field('server', 'uptime_in_seconds') - 1) * 1000 < quarantine then
    why = 'it was started and knows of no lock'
  elseif followed ~= '' then
    why = 'it took over from another server'
  elseif ARGV[3] == '1' then
    -- However long it has been up: it may stand in for a node that had granted what others still hold.
    why = 'it knows of no lock'
  else
    why = ''
  end
  ready = why ~= '' and now + quarantine or now
  -- Only nodes of a quorum look at this. Whoever learns first writes it, since it is seen once.
  why = why .. '|unseeded'
elseif ready > now + quarantine then
  -- The server's clock has gone back: nobody must wait until it is where it was.
  ready = now + quarantine
elseif ready > now and longest < tonumber(ARGV[1]) then
  -- Leases of this client may have been forgotten as well, together with how long they last.
  ready = now + quarantine
end
local learned = id .. '|' .. string.format('%.0f', ready) .. '|' .. followed .. '|' .. why
if learned ~= record then
  redis.call('SET', KEYS[1], learned)
end
local result = {learned, ready, now, (string.gsub(why, '|unseeded$', ''))}
local policy = field('memory', 'maxmemory_policy')
if policy ~= 'noeviction' and field('memory', 'maxmemory') ~= '0' then
  result[5] = 'its maxmemory-policy is ' .. policy .. ', so it may drop locks and tokens when it is full'
end
return result
