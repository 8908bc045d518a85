-- Fences: the highest stamp that was sealed for each lock, and the check of it inside a transaction.
--
-- Key of advisory locks: (1717923429, id) is the fence with that id. Whoever writes under a stamp shares it to the end of its
-- transaction; whoever seals takes it alone. It names the sessions that a seal waits for, and lets no later writer pass by a
-- seal that waits. The row is locked too, since under REPEATABLE READ a plain look at it would see the mark of before.
--
-- The functions that work with marks run with the rights of their owner, so that a role that may use them cannot lower a
-- mark by hand. A stamp is a setting that anybody may set: this stops programs that do not know that they are late, and not
-- those that lie.

create table if not exists fencepost.fence (
    id int generated always as identity unique,
    lock text collate "C" primary key,
    -- 0 while nothing was sealed.
    token bigint not null default 0,
    holder text not null default ''
) with (fillfactor = 50);

-- The id of the fence of a lock, made where there is none.
create or replace function fencepost.fence_id(_lock text) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    found_id int;
begin
    loop
        select f.id into found_id from fencepost.fence f where f.lock = _lock;
        exit when found;
        insert into fencepost.fence (lock) values (_lock) on conflict (lock) do nothing returning id into found_id;
        exit when found;
    end loop;
    return found_id;
end $$;

-- Refuses a stamp, and says what the mark is. For the functions below alone, whose rights it has.
create or replace function fencepost.refuse(_lock text, _token bigint, _holder text) returns void
language plpgsql as $$
declare
    mark record;
begin
    select f.token, f.holder into mark from fencepost.fence f where f.lock = _lock and f.token > 0;
    if not found then
        raise exception 'fencepost: token % of lock "%" was never sealed', _token, _lock
            using errcode = 'FP002', hint = 'Seal the fence before the first write: fencepost.seal(lock, token, holder).';
    elsif mark.token < _token then
        raise exception 'fencepost: token % of lock "%" was never sealed, the mark is % of holder "%"',
            _token, _lock, mark.token, mark.holder
            using errcode = 'FP002', hint = 'Seal the fence before the first write: fencepost.seal(lock, token, holder).';
    end if;
    raise exception 'fencepost: stale stamp for lock "%": token % of holder "%", the mark is % of holder "%"',
        _lock, _token, _holder, mark.token, mark.holder
        using errcode = 'FP002', hint = 'Somebody else holds the lock by now. Stop, acquire it anew, and read again before you write.';
end $$;

-- Raises the mark of a lock to a stamp, and answers its token. Refuses one that is lower than the mark, or equal with
-- another holder (FP002), and none at all (FP001). The stamp that is the mark already changes nothing and waits for nobody.
-- Atomic by the row: of two seals the second sees what the first has left.
create or replace function fencepost.seal(_lock text, _token bigint, _holder text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if _lock is null or _token is null or _token < 1 or _holder is null then
        raise exception 'fencepost: no stamp for lock "%"', _lock using errcode = 'FP001';
    end if;
    if exists (select from fencepost.fence f where f.lock = _lock and f.token = _token and f.holder = _holder) then
        return _token;
    end if;
    -- At once: it need not wait for the writers under the mark.
    if exists (
        select from fencepost.fence f
        where f.lock = _lock and (f.token > _token or (f.token = _token and f.holder <> _holder))
    ) then
        perform fencepost.refuse(_lock, _token, _holder);
    end if;
    perform pg_advisory_xact_lock(1717923429, fencepost.fence_id(_lock));
    update fencepost.fence f set token = _token, holder = _holder
    where f.lock = _lock and (f.token < _token or (f.token = _token and f.holder = _holder));
    if not found then
        perform fencepost.refuse(_lock, _token, _holder);
    end if;
    return _token;
end $$;

-- Holds the fence for the rest of the transaction if the stamp is the mark, else refuses it. For the functions below alone,
-- whose rights it has.
create or replace function fencepost.hold(_lock text, _id int, _token bigint, _holder text) returns void
language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(1717923429, _id);
    perform from fencepost.fence f where f.lock = _lock and f.token = _token and f.holder = _holder for share;
    if not found then
        perform fencepost.refuse(_lock, _token, _holder);
    end if;
end $$;

-- For a transaction of any client: refuses a stamp that is not the mark; otherwise nobody can seal a newer one before the
-- transaction has ended, and guarded tables accept its writes. Call it first in the transaction.
create or replace function fencepost.check(_lock text, _token bigint, _holder text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    checked jsonb;
begin
    if _lock is null or _token is null or _token < 1 or _holder is null then
        raise exception 'fencepost: no stamp for lock "%"', _lock using errcode = 'FP001';
    end if;
    perform fencepost.hold(_lock, fencepost.fence_id(_lock), _token, _holder);
    checked := coalesce(nullif(current_setting('fencepost.checked', true), ''), '{}')::jsonb;
    checked := checked || jsonb_build_object(_lock, jsonb_build_array(_token, _holder));
    perform set_config('fencepost.checked', checked::text, true);
end $$;

-- The mark of a lock, or of all whose names begin with the prefix.
create or replace function fencepost.marks(_lock text, _prefix text)
returns table (lock text, token bigint, holder text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select f.lock, f.token, f.holder from fencepost.fence f
    where f.token > 0 and case when _lock is null then starts_with(f.lock, _prefix) else f.lock = _lock end
    order by f.lock
$$;

-- Forgets the mark of a lock, and says whether there was one. Guarded tables then refuse every write until a new one is sealed.
create or replace function fencepost.forget(_lock text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    had boolean;
begin
    perform pg_advisory_xact_lock(1717923429, f.id) from fencepost.fence f where f.lock = _lock;
    update fencepost.fence f set token = 0, holder = '' where f.lock = _lock and f.token > 0;
    had := found;
    return had;
end $$;

-- The sessions that are inside a transaction under a stamp lower than _token, and that stamp. Who shares the fence has passed
-- the check against the present mark, and so carries exactly that. What somebody holds who only just sealed is not shared,
-- and is left alone.
create or replace function fencepost.blocking(_lock text, _token bigint)
returns table (pid int, mark bigint, holder text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    found_pids int[];
begin
    select array_agg(l.pid) into found_pids
    from fencepost.fence f join pg_locks l on l.objid = f.id
    where f.lock = _lock and l.locktype = 'advisory' and l.classid = 1717923429 and l.objsubid = 2
        and l.database = (select oid from pg_database where datname = current_database())
        and l.mode = 'ShareLock' and l.granted and l.pid <> pg_backend_pid();
    -- Read after the sessions: a mark only grows, and so none of them carries a greater one.
    return query select member, f.token, f.holder from fencepost.fence f, unnest(found_pids) member
        where f.lock = _lock and f.token < _token;
end $$;

-- Ends one of those sessions by the rights of the owner of this function, and says whether it has ended.
create or replace function fencepost.evict_for_caller(_lock text, _token bigint, _pid int) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return not exists (select from fencepost.blocking(_lock, _token) b where b.pid = _pid)
        or pg_terminate_backend(_pid, 1000);
exception when insufficient_privilege then
    return false;
end $$;

-- Ends those sessions, by the rights of the caller or else of the owner, and says of each whether it has ended.
create or replace function fencepost.evict(_lock text, _token bigint)
returns table (pid int, ended boolean, mark bigint, holder text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    for pid, mark, holder in select b.pid, b.mark, b.holder from fencepost.blocking(_lock, _token) b loop
        begin
            -- While another one was being ended, it may have come to its end and begun something else.
            ended := not exists (select from fencepost.blocking(_lock, _token) b where b.pid = evict.pid)
                or pg_terminate_backend(pid, 1000);
        exception when insufficient_privilege then
            ended := fencepost.evict_for_caller(_lock, _token, pid);
        end;
        return next;
    end loop;
end $$;

-- What a session shows for a lock, `[token, holder]`: the stamp of fencepost.check() in this transaction, or else that of the
-- session; null where it is none. For the function below alone.
create or replace function fencepost.shown(_lock text, _key text) returns jsonb
language plpgsql as $$
declare
    stamp jsonb;
begin
    stamp := coalesce(
        nullif(current_setting('fencepost.checked', true), '')::jsonb -> _lock,
        nullif(current_setting('fencepost.stamps', true), '')::jsonb -> _key
    );
    return case when (stamp ->> 0)::bigint > 0 and stamp ->> 1 is not null then stamp end;
exception when others then
    return null;
end $$;

-- The trigger of guarded tables: a write needs the stamp that is the mark. Arguments: the lock, its name in
-- `fencepost.stamps`, and the fence's id. The table's owner can write without one by `set fencepost.bypass = 'reason'`, which
-- the server's log then tells. Every guarded statement pays for this function: what `run` has written is only looked for as
-- text, and read as JSON where it is not found.
create or replace function fencepost.require() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    reason text := current_setting('fencepost.bypass', true);
    stamps text := current_setting('fencepost.stamps', true);
    mark_token bigint;
    mark_holder text;
    stamp jsonb;
    nothing text;
begin
    if reason <> '' then
        if not pg_has_role(session_user, (select relowner from pg_class where oid = tg_relid), 'member') then
            raise exception 'fencepost: only the owner of %.% can pass by its guard', tg_table_schema, tg_table_name
                using errcode = 'insufficient_privilege', schema = tg_table_schema, table = tg_table_name;
        end if;
        raise log 'fencepost: % passes by the guard of %.% (lock "%"): %',
            session_user, tg_table_schema, tg_table_name, tg_argv[0], reason;
        return null;
    end if;
    -- Who shows nothing at all is refused at once, and locks nothing.
    if stamps <> '' or current_setting('fencepost.checked', true) <> '' then
        -- As an assignment it costs less than as a statement of its own.
        nothing := pg_advisory_xact_lock_shared(1717923429, tg_argv[2]::int);
        select f.token, f.holder into mark_token, mark_holder
        from fencepost.fence f where f.lock = tg_argv[0] for share;
        if mark_token > 0
            and strpos(stamps, '"' || tg_argv[1] || '":[' || mark_token || ',"' || mark_holder || '"]') > 0 then
            return null;
        end if;
        stamp := fencepost.shown(tg_argv[0], tg_argv[1]);
        if (stamp ->> 0)::bigint = mark_token and stamp ->> 1 = mark_holder then
            return null;
        end if;
    end if;
    if stamp is null then
        raise exception 'fencepost: no stamp for lock "%" in this session: a write to %.% needs one',
            tg_argv[0], tg_table_schema, tg_table_name
            using errcode = 'FP001', schema = tg_table_schema, table = tg_table_name,
            hint = case when coalesce(stamps, '') = ''
                then 'This session shows no stamp at all. Run the program by `fencepost run --fence`, which passes stamps on in PGOPTIONS; a program with options of its own, or a pooler, loses them: call fencepost.check(lock, token, holder) in the transaction.'
                else 'This session shows other stamps: ' || stamps || '. Hold that lock as well, or look at what guards the table.'
            end;
    end if;
    perform fencepost.refuse(tg_argv[0], (stamp ->> 0)::bigint, stamp ->> 1);
    return null;
end $$;

-- A table with its partitions and those that inherit from it. A statement on one of those fires no trigger of the other.
create or replace function fencepost.family(_table regclass) returns setof regclass language sql stable as $$
    with recursive family as (
        select _table as member
        union
        select i.inhrelid::regclass from pg_catalog.pg_inherits i join family f on i.inhparent = f.member
    )
    select member from family
$$;

-- Guards a table, and says of each member of its family that it was done. The table's owner calls it.
create or replace function fencepost.guard(_table regclass, _lock text, _key text) returns setof text
language plpgsql as $$
declare
    fence int := fencepost.fence_id(_lock);
    member regclass;
    called text;
    part text;
begin
    for member in select fencepost.family(_table) loop
        if (select relkind from pg_catalog.pg_class where oid = member) not in ('r', 'p') then
            raise exception 'fencepost: % is not a table whose writes can be checked', member using errcode = 'wrong_object_type';
        end if;
        for called, part in values ('fencepost_guard_' || fence, 'insert or update or delete'),
                                   ('fencepost_guard_' || fence || '_truncate', 'truncate') loop
            execute pg_catalog.format(
                'create or replace trigger %I before %s on %s for each statement execute function fencepost.require(%L, %L, %L)',
                called, part, member, _lock, _key, fence);
            -- Also for a session that replays the changes of another server.
            execute pg_catalog.format('alter table %s enable always trigger %I', member, called);
        end loop;
        return next pg_catalog.format('writes to %s need the token of lock %s', member, _lock);
    end loop;
end $$;

-- Takes the guards of a table and its family away, or with null those of all tables, and names the tables and their locks.
create or replace function fencepost.unguard(_table regclass) returns setof text language plpgsql as $$
declare
    guard record;
begin
    for guard in
        select t.tgrelid::regclass as member, t.tgname, f.lock, t.tgname like '%\_truncate' as is_second
        from pg_catalog.pg_trigger t
            left join fencepost.guarded_locks() f
                on t.tgname in ('fencepost_guard_' || f.id, 'fencepost_guard_' || f.id || '_truncate')
        where t.tgfoid = 'fencepost.require()'::pg_catalog.regprocedure
            and (_table is null or t.tgrelid::regclass in (select fencepost.family(_table)))
        order by 1, 2
    loop
        execute pg_catalog.format('drop trigger %I on %s', guard.tgname, guard.member);
        if not guard.is_second then
            return next pg_catalog.format('writes to %s need no token of lock %s any more', guard.member, guard.lock);
        end if;
    end loop;
end $$;

-- The locks that a fence is known for, and the ids that guards are named after.
create or replace function fencepost.guarded_locks() returns table (id int, lock text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select f.id, f.lock from fencepost.fence f
$$;

-- What weakens the fence of a lock: a guard that does not fire always, or that a member of the family lacks, all or in part.
create or replace function fencepost.findings(_lock text) returns setof text language sql stable as $$
    with fence as (
        select 'fencepost_guard_' || f.id as called from fencepost.guarded_locks() f where f.lock = _lock
    ), guards as (
        select t.tgrelid::regclass as member, t.tgname, t.tgenabled
        from pg_catalog.pg_trigger t, fence f
        where t.tgfoid = 'fencepost.require()'::pg_catalog.regprocedure
            and t.tgname in (f.called, f.called || '_truncate')
    )
    select pg_catalog.format('the guard of %s %s', member, case tgenabled
            when 'D' then 'is disabled'
            else 'does not fire always, and not in a session that replays changes' end)
        from guards where tgenabled <> 'A'
    union
    select case when child = parent then pg_catalog.format('the guard of %s lacks a part', child)
            else pg_catalog.format('%s has no guard, or a part of one, and belongs to %s, which has one', child, parent) end
        from (
            select g.member as parent, fencepost.family(g.member) as child from guards g
        ) as families, fence f
        where not exists (
            select from pg_catalog.pg_trigger t where t.tgrelid = child::oid and t.tgname = f.called
        ) or not exists (
            select from pg_catalog.pg_trigger t where t.tgrelid = child::oid and t.tgname = f.called || '_truncate'
        )
$$;
