-- What the lab protects, in Postgres: a register with a running total, and a table of processed events. Filled in is the
-- partition.
--
-- Atomic since it is one transaction. It can be run again, and changes nothing then.
create schema if not exists fencepost_lab;
create table if not exists fencepost_lab.register (
    partition text primary key,
    total bigint not null,
    last_write text not null
);
create table if not exists fencepost_lab.event (
    sequence bigserial primary key,
    partition text not null,
    event bigint not null,
    write text not null,
    based_on text not null,
    token bigint
);
insert into fencepost_lab.register values ('{partition}', 0, 'start') on conflict do nothing;
