-- Takes the lock with the id $1 and the name $2 for $3, `ttl_ms holder label`, if it is free, has not rested since it was last granted, and
-- nobody stands in its door. One row: the token, or null, and then the session has nothing of it.
-- It is fencepost.acquire() for somebody who has it at once, without what it costs a session to compile that function: most sessions
-- acquire one lock. Whoever gets null here asks that one.
-- All types are spelled out, since a server whose caches are cold would look through all operators and functions of a name.
-- Atomic as there: the row is written under both locks, and the door ends with the transaction. Materialized, so that nothing is
-- locked twice where the row is read again because it has changed.
with taken as materialized (
    select
        case when pg_catalog.pg_try_advisory_xact_lock(1717923428, $1)
            then pg_catalog.pg_try_advisory_lock(1717923427, $1)
        end as has_lock,
        (pg_catalog.date_part('epoch'::text, pg_catalog.clock_timestamp()) * '1e6'::float8)::bigint as micros
), granted as (
    update fencepost.lock l set
        token = case when l.token < t.micros then t.micros else l.token + 1 end,
        held = case when l.token < t.micros then t.micros else l.token + 1 end,
        pid = pg_catalog.pg_backend_pid(), since = t.micros, who = $3
    from taken t
    where t.has_lock and l.id = $1 and l.name = $2 and l.rest_until is null
    returning l.token
)
select g.token, case when t.has_lock and g.token is null then pg_catalog.pg_advisory_unlock(1717923427, $1) end
from taken t left join granted g on true
