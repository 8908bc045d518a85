-- What a session finds in the database at its beginning: the version of the schema, whether nothing is to be set up, and the id of the
-- lock $2, null where there is no such lock or $2 is null. Nothing is to be set up where the server grants at once to somebody who comes
-- with leases of $1 ms at most, and the role may also write down who waits and who shares, which is told now and not when it is needed.
-- No row: half of the schema is not there. It changes nothing.
-- Atomic because a statement is, and what a server has that lost its locks after that ends every session.
select
    i.version,
    i.max_ttl_ms >= $1 and exists (
        select from fencepost.incarnation n
        where n.started = pg_catalog.pg_postmaster_start_time() and n.ready_at <= pg_catalog.clock_timestamp()
    )
        and pg_catalog.has_table_privilege('fencepost.waiter', 'delete')
        and pg_catalog.has_table_privilege('fencepost.reader', 'delete') as is_ready,
    (select l.id from fencepost.lock l where l.name = $2) as id
from fencepost.installation i
