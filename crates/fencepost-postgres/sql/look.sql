-- What is seen of the locks $1 (names), or of all whose names begin with $2 where $1 is null: name, how long it rests in ms, and, a
-- row for each session that holds or waits, its process, whether it has the lock, and whether beside others, since when it waits,
-- how long it has been idle in ms, and what it said of itself if it has waited for a while. Token, process, beginning and `who` are
-- those of the session's grant where it shares the lock, or else those of the last grant to somebody who had it alone.
-- It changes nothing. Rows and the lock table are not read at one instant: whoever asks compares their processes.
with wanted as materialized (
    select id, name, held, pid, since, who, greatest(0, ceil(extract(epoch from rest_until - pg_catalog.clock_timestamp()) * 1000))::bigint as rests
    from fencepost.lock
    where case when $1::text[] is null then pg_catalog.starts_with(name, $2) else name = any ($1) end
), sessions as materialized (
    select k.objid::bigint as id, k.pid, k.granted and k.classid = 1717923427 as holds,
        k.granted and k.classid = 1717923427 and k.mode = 'ShareLock' as shares, k.granted, k.classid, k.waitstart
    from pg_catalog.pg_locks k
    where k.locktype = 'advisory' and k.objsubid = 2 and k.classid in (1717923427, 1717923428)
        and k.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
)
select w.name, w.rests, s.pid, s.holds, s.shares,
    case when s.shares then r.token else w.held end as held,
    case when s.shares then r.pid else w.pid end as last_pid,
    case when s.shares then r.since else w.since end as held_since,
    case when s.shares then r.who else w.who end as who,
    (extract(epoch from coalesce(a.since, s.waitstart)) * 1000000)::bigint as waits_since,
    greatest(0, extract(epoch from pg_catalog.clock_timestamp() - p.state_change) * 1000)::bigint as idle_ms,
    a.holder, a.label
from wanted w
    left join sessions s on s.id = w.id and (s.holds or not s.granted)
    left join fencepost.reader r on r.id = w.id and r.pid = s.pid and s.shares
    left join fencepost.waiter a on a.pid = s.pid and not s.holds
    left join pg_catalog.pg_stat_activity p on p.pid = s.pid and s.holds
order by w.name, s.waitstart nulls first
