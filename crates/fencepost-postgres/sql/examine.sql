-- What the server says of itself, of this role and of the schema, as one row of texts.
--
-- Keys and arguments: none. It reads the catalogue alone, which every role may.
-- Atomic because a statement is, but for the clock and the counts, which are of the moment.
select
    pg_catalog.current_setting('server_version') as version,
    pg_catalog.pg_is_in_recovery()::text as is_standby,
    (extract(epoch from pg_catalog.clock_timestamp()) * 1e6)::bigint as now_micros,
    current_user::text as role,
    pg_catalog.current_database()::text as database,
    (select sum(numbackends) from pg_catalog.pg_stat_database) as clients,
    (select numbackends from pg_catalog.pg_stat_database where datname = pg_catalog.current_database()) as clients_of_database,
    (select datconnlimit from pg_catalog.pg_database where datname = pg_catalog.current_database()) as most_of_database,
    (select count(*) from pg_catalog.pg_stat_activity where usename = current_user) as clients_of_role,
    (select rolconnlimit from pg_catalog.pg_roles where rolname = current_user) as most_of_role,
    (select count(*) from pg_catalog.pg_stat_replication) as standbys,
    (select ssl from pg_catalog.pg_stat_ssl where pid = pg_catalog.pg_backend_pid())::text as is_encrypted,
    exists (select from pg_catalog.pg_namespace where nspname = 'fencepost')::text as has_schema,
    exists (
        select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'fencepost' and c.relname = 'installation'
    )::text as has_installation,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')::text as may_create,
    -- What `grant.sql` grants and this role lacks. A table that is not there is another matter.
    (
        select pg_catalog.string_agg(lacks, '; ' order by place)
        from (
            select min(needed.place) as place,
                pg_catalog.string_agg(needed.privilege, ', ' order by needed.place) || ' on '
                    || coalesce('fencepost.' || needed.called, 'schema fencepost') as lacks
            from (values
                (1, null, 'usage'), (2, 'installation', 'select'), (3, 'installation', 'update'),
                (4, 'incarnation', 'select'), (5, 'incarnation', 'insert'), (6, 'incarnation', 'update'),
                (7, 'lock', 'select'), (8, 'lock', 'insert'), (9, 'lock', 'update'),
                (10, 'revocation', 'select'), (11, 'revocation', 'insert'), (12, 'revocation', 'update'),
                (13, 'waiter', 'select'), (14, 'waiter', 'insert'), (15, 'waiter', 'update'), (16, 'waiter', 'delete'),
                (17, 'logbook', 'select'), (18, 'logbook', 'insert'), (19, 'logbook', 'update'),
                (20, 'reader', 'select'), (21, 'reader', 'insert'), (22, 'reader', 'update'), (23, 'reader', 'delete')
            ) as needed (place, called, privilege)
                join pg_catalog.pg_namespace n on n.nspname = 'fencepost'
                left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = needed.called
            where case when needed.called is null then not pg_catalog.has_schema_privilege(n.oid, needed.privilege)
                else not pg_catalog.has_table_privilege(c.oid, needed.privilege) end
            group by needed.called
        ) as lacking
    ) as missing_rights
