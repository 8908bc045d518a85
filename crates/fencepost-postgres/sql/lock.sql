-- Locks: what they are kept in, and the functions that grant them.
--
-- Keys of advisory locks: (1717923427, id) is the lock with that id, shared by those who only read; (1717923428, id) the door in
-- front of it, where one session stands at a time. Whoever takes the lock stands in the door, up to the commit, so that the next
-- one need not wait for the row besides. Who waits there stays from one statement to the next, so that nobody who comes later
-- passes by, and readers who come and go keep no writer waiting for ever.
-- Who writes a row without standing in the door waits for no lock while it has that row, or else the two could form a cycle.
-- The session's search_path is pg_catalog; no function here relies on it. What is assigned costs plpgsql less than what is
-- performed, which is a query of its own.

-- What is installed. Logged: where it is there and the incarnation is not, the server has crashed.
create table if not exists fencepost.installation (
    one boolean primary key default true check (one),
    version int not null,
    -- The longest max_ttl that anybody has come with: so long may a lease last that the server has forgotten.
    max_ttl_ms bigint not null default 0
);

-- Since when the server holds its locks. Unlogged: every crash, also of one backend alone, empties it, and so does a
-- promotion; both lose all locks, and neither need change the start time.
create unlogged table if not exists fencepost.incarnation (
    one boolean primary key default true check (one),
    started timestamptz not null,
    ready_at timestamptz not null
);

create table if not exists fencepost.lock (
    id int generated always as identity primary key,
    name text collate "C" not null unique,
    -- The last token; a lift raises it.
    token bigint not null default 0,
    -- Of the last grant: its token, the server's process, since when in microseconds, and `ttl_ms holder label`.
    held bigint,
    pid int,
    since bigint,
    who text,
    rest_until timestamptz
) with (fillfactor = 10);

-- Who waits for longer than a moment. Rows of sessions that do not wait any more mean nothing.
create unlogged table if not exists fencepost.waiter (
    pid int primary key,
    holder text not null,
    label text not null,
    since timestamptz not null
);

-- Those who share a lock. Rows of sessions that do not hold it mean nothing.
create unlogged table if not exists fencepost.reader (
    id int not null,
    pid int not null,
    token bigint not null,
    since bigint not null,
    who text not null,
    primary key (id, pid)
);

-- Why leases were taken away, the last one of each lock.
create table if not exists fencepost.revocation (
    id int primary key,
    token bigint not null,
    reason text not null
);

-- What holders of a lock have left for those to come. Not in the lock's row, which each grant writes anew.
create table if not exists fencepost.logbook (
    id int primary key,
    content bytea not null
);

-- A first installation has forgotten no lease. In an older one, whoever may hold locks may also use the tables that have come since.
do $$
declare
    grantee text;
begin
    insert into fencepost.installation (version) values (2) on conflict do nothing;
    if found then
        insert into fencepost.incarnation (started, ready_at)
        values (pg_catalog.pg_postmaster_start_time(), pg_catalog.clock_timestamp())
        on conflict do nothing;
    end if;
    update fencepost.installation set version = 2 where version < 2;
    if found then
        for grantee in
            select case a.grantee when 0 then 'public' else a.grantee::regrole::text end
            from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
            where c.oid = 'fencepost.lock'::regclass and a.privilege_type = 'UPDATE' and a.grantee <> c.relowner
        loop
            execute 'grant select, insert, update on fencepost.logbook to ' || grantee;
            execute 'grant select, insert, update, delete on fencepost.reader to ' || grantee;
        end loop;
    end if;
end $$;

-- In how many milliseconds the server may grant again: 0 unless it has lost its locks since it was last asked.
-- Atomic by the row of the incarnation: of two who find it missing one writes, and the other reads.
create or replace function fencepost.ready_in(_max_ttl_ms bigint) returns bigint language plpgsql as $$
declare
    longest bigint;
    ready timestamptz;
begin
    update fencepost.installation set max_ttl_ms = _max_ttl_ms where max_ttl_ms < _max_ttl_ms;
    if found then
        -- A standby that was promoted need not have known of leases as long as these.
        update fencepost.incarnation
        set ready_at = greatest(ready_at, pg_catalog.clock_timestamp() + (_max_ttl_ms + _max_ttl_ms / 1000 + 50) * interval '1 millisecond')
        where started = pg_catalog.pg_postmaster_start_time() and ready_at > pg_catalog.clock_timestamp();
    end if;
    select ready_at into ready from fencepost.incarnation where started = pg_catalog.pg_postmaster_start_time();
    if not found then
        select max_ttl_ms into strict longest from fencepost.installation;
        insert into fencepost.incarnation as i (started, ready_at) values (
            pg_catalog.pg_postmaster_start_time(),
            -- A thousandth for clocks that run at other rates, and something for the way.
            pg_catalog.clock_timestamp() + (longest + longest / 1000 + 50) * interval '1 millisecond'
        )
        on conflict (one) do update set started = excluded.started, ready_at = excluded.ready_at
        where i.started <> excluded.started;
        select ready_at into strict ready from fencepost.incarnation;
    end if;
    return greatest(0, ceil(extract(epoch from ready - pg_catalog.clock_timestamp()) * 1000))::bigint;
end $$;

-- The id of a lock, made where there is none.
create or replace function fencepost.lock_id(_name text) returns int language plpgsql as $$
declare
    found_id int;
begin
    loop
        select l.id into found_id from fencepost.lock l where l.name = _name;
        exit when found;
        insert into fencepost.lock (name) values (_name) on conflict (name) do nothing returning id into found_id;
        exit when found;
    end loop;
    return found_id;
end $$;

-- Gives back what this session has of one lock beyond its transaction, but for the door where `_keeps_door` says so: after an error
-- it may have been granted all the same.
create or replace function fencepost.give_up(_id int, _keeps_door boolean) returns void language sql as $$
    with held as materialized (
        select classid::bigint::int as class, mode
        from pg_catalog.pg_locks
        where locktype = 'advisory' and objsubid = 2 and granted
            and database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
            and (classid = 1717923427 or (classid = 1717923428 and not _keeps_door))
            and objid = _id and pid = pg_catalog.pg_backend_pid()
    )
    select case mode
        when 'ShareLock' then pg_catalog.pg_advisory_unlock_shared(class, _id)
        else pg_catalog.pg_advisory_unlock(class, _id)
    end
    from held
$$;

-- Takes the lock if it is free and nobody stands in its door; where `_waits` says so, waits for it, at most three times the
-- session's lock_timeout: for the door, the row, and the lock. `_has_door` says that the session stands in the door already. The
-- token; below -3 the token of a grant that was waited for, as -3 - token; null if it is taken, or that time is over; -3 if so and
-- the session stands in the door from now on; -1 if the row is not that lock's; -2 if it rests. `_who` is `ttl_ms holder label`.
--
-- Who waits writes its token in the door, while the holder still works; nobody sees it before the commit, which comes with the
-- grant. Order of tokens = order of the door = order of grants. Atomic: the row is written under both locks, or before the
-- second one in the same transaction, and the token is told after the commit.
--
-- A session that waits may be idle for `_waiting_idle` only, which is set with each statement, since its client may be stopped, and
-- would be granted the lock or keep the door; one that need not wait for `_holding_idle`, where that is to be changed.
create or replace function fencepost.acquire(
    _id int, _name text, _who text, _rest_ms bigint, _has_door boolean, _waits boolean,
    _waiting_idle text, _holding_idle text
) returns bigint language plpgsql as $$
declare
    drawn bigint;
    micros bigint;
    has_waited boolean := false;
    is_done boolean;
    idle text;
    nothing text;
begin
    if not (_has_door or pg_catalog.pg_try_advisory_xact_lock(1717923428, _id)) then
        if not _waits then
            return null;
        end if;
        has_waited := true;
        idle := pg_catalog.set_config('idle_session_timeout', _waiting_idle, false);
        begin
            nothing := pg_catalog.pg_advisory_xact_lock(1717923428, _id);
        exception when lock_not_available then
            return null;
        end;
    end if;
    micros := (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1e6)::bigint;
    if pg_catalog.pg_try_advisory_lock(1717923427, _id) then
        update fencepost.lock l set
            token = greatest(l.token + 1, micros), held = greatest(l.token + 1, micros),
            pid = pg_catalog.pg_backend_pid(), since = micros, who = _who,
            rest_until = case when _rest_ms > 0
                then pg_catalog.clock_timestamp() + _rest_ms * interval '1 millisecond' end
        where l.id = _id and l.name = _name and (l.rest_until is null or l.rest_until <= pg_catalog.clock_timestamp())
        returning l.token into drawn;
        if drawn is null then
            is_done := pg_catalog.pg_advisory_unlock(1717923427, _id);
        end if;
    elsif not _waits then
        return null;
    else
        if not has_waited then
            has_waited := true;
            idle := pg_catalog.set_config('idle_session_timeout', _waiting_idle, false);
        end if;
        -- Where the lock does not come, the row is as it was before: it tells of who has the lock.
        begin
            update fencepost.lock l set
                token = greatest(l.token + 1, micros), held = greatest(l.token + 1, micros),
                pid = pg_catalog.pg_backend_pid(), since = micros, who = _who, rest_until = null
            where l.id = _id and l.name = _name
                and (l.rest_until is null or l.rest_until <= pg_catalog.clock_timestamp())
            returning l.token into drawn;
            if drawn is not null then
                nothing := pg_catalog.pg_advisory_lock(1717923427, _id);
            end if;
        exception when lock_not_available then
            perform fencepost.give_up(_id, true);
            if not _has_door then
                perform pg_catalog.pg_advisory_lock(1717923428, _id);
            end if;
            return -3;
        end;
        if _rest_ms > 0 and drawn is not null then
            update fencepost.lock l
            set rest_until = pg_catalog.clock_timestamp() + _rest_ms * interval '1 millisecond'
            where l.id = _id;
        end if;
    end if;
    if _has_door then
        is_done := pg_catalog.pg_advisory_unlock(1717923428, _id);
    end if;
    if drawn is null then
        return case when exists (select from fencepost.lock l where l.id = _id and l.name = _name) then -2 else -1 end;
    end if;
    if has_waited then
        return -3 - drawn;
    end if;
    if _holding_idle is not null then
        idle := pg_catalog.set_config('idle_session_timeout', _holding_idle, false);
    end if;
    return drawn;
end $$;

-- Takes the lock beside others who share it, and answers as fencepost.acquire() does. Each draws a token of its own, so that the
-- next one who has it alone has a greater one than all of them; the row goes on telling of the last one who had it alone.
create or replace function fencepost.share(
    _id int, _name text, _who text, _has_door boolean, _waits boolean, _waiting_idle text, _holding_idle text
) returns bigint language plpgsql as $$
declare
    drawn bigint;
    micros bigint;
    has_waited boolean := false;
begin
    if not (_has_door or pg_catalog.pg_try_advisory_xact_lock(1717923428, _id)) then
        if not _waits then
            return null;
        end if;
        has_waited := true;
        perform pg_catalog.set_config('idle_session_timeout', _waiting_idle, false);
        begin
            perform pg_catalog.pg_advisory_xact_lock(1717923428, _id);
        exception when lock_not_available then
            return null;
        end;
    end if;
    if not pg_catalog.pg_try_advisory_lock_shared(1717923427, _id) then
        if not _waits then
            return null;
        end if;
        has_waited := true;
        perform pg_catalog.set_config('idle_session_timeout', _waiting_idle, false);
        begin
            perform pg_catalog.pg_advisory_lock_shared(1717923427, _id);
        exception when lock_not_available then
            perform fencepost.give_up(_id, true);
            if not _has_door then
                perform pg_catalog.pg_advisory_lock(1717923428, _id);
            end if;
            return -3;
        end;
    end if;
    micros := (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1e6)::bigint;
    update fencepost.lock l set token = greatest(l.token + 1, micros)
    where l.id = _id and l.name = _name and (l.rest_until is null or l.rest_until <= pg_catalog.clock_timestamp())
    returning l.token into drawn;
    if _has_door then
        perform pg_catalog.pg_advisory_unlock(1717923428, _id);
    end if;
    if drawn is null then
        perform pg_catalog.pg_advisory_unlock_shared(1717923427, _id);
        return case when exists (select from fencepost.lock l where l.id = _id and l.name = _name) then -2 else -1 end;
    end if;
    insert into fencepost.reader as r (id, pid, token, since, who)
    values (_id, pg_catalog.pg_backend_pid(), drawn, micros, _who)
    on conflict (id, pid) do update set token = excluded.token, since = excluded.since, who = excluded.who;
    if has_waited then
        return -3 - drawn;
    end if;
    if _holding_idle is not null then
        perform pg_catalog.set_config('idle_session_timeout', _holding_idle, false);
    end if;
    return drawn;
end $$;

-- Gives back a lock that the session shares. Whether it did.
create or replace function fencepost.stop_sharing(_id int) returns boolean language plpgsql as $$
begin
    delete from fencepost.reader r where r.id = _id and r.pid = pg_catalog.pg_backend_pid();
    return pg_catalog.pg_advisory_unlock_shared(1717923427, _id);
end $$;

-- How long the lock still rests, in milliseconds.
create or replace function fencepost.rests_for(_id int) returns bigint language sql as $$
    select greatest(0, ceil(extract(epoch from rest_until - pg_catalog.clock_timestamp()) * 1000))::bigint
    from fencepost.lock where id = _id
$$;

-- The server's process behind this session if the session holds the lock, else null. It only looks: taking the lock
-- once more would have to be undone once more.
create or replace function fencepost.held_by(_id int) returns int language sql as $$
    select pid
    from pg_catalog.pg_locks
    where locktype = 'advisory' and objsubid = 2 and granted
        and database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
        and classid = 1717923427 and objid = _id and pid = pg_catalog.pg_backend_pid()
$$;

-- Makes the next token at least _below + 1. False when somebody who waits had the row for the session's lock_timeout.
create or replace function fencepost.lift(_id int, _below bigint) returns boolean language plpgsql as $$
begin
    update fencepost.lock l set token = _below where l.id = _id and l.token < _below;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- The sessions that hold the lock, and their grants: of one that has it alone by the lock's row, of those who share it by theirs.
create or replace function fencepost.grants_of(_id int)
returns table (pid int, token bigint, since bigint, who text) language sql as $$
    with held as materialized (
        select k.pid, k.mode
        from pg_catalog.pg_locks k
        where k.locktype = 'advisory' and k.objsubid = 2 and k.granted
            and k.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
            and k.classid = 1717923427 and k.objid = _id
    )
    select h.pid, l.held, l.since, l.who
    from held h join fencepost.lock l on l.id = _id and l.pid = h.pid
    where h.mode = 'ExclusiveLock'
    union all
    select h.pid, r.token, r.since, r.who
    from held h join fencepost.reader r on r.id = _id and r.pid = h.pid
    where h.mode = 'ShareLock'
$$;

-- The server's process that holds the lock by the grant with this token, and of this holder where one is named, else null.
create or replace function fencepost.holder_of(_id int, _token bigint, _holder text) returns int language sql as $$
    select g.pid from fencepost.grants_of(_id) g
    where g.token = _token and (_holder is null or pg_catalog.split_part(g.who, ' ', 2) = _holder)
$$;

-- Whether the lock has had a holder for a while. One that is not settled may be a session whose client is gone and that has
-- not noticed yet.
create or replace function fencepost.is_settled(_id int) returns boolean language sql as $$
    select exists (
        select from fencepost.grants_of(_id) g
        where g.since / 1e6 < pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) - 0.1
    )
$$;
