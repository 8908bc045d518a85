-- What a role needs to hold locks, to revoke them, and to show stamps.
grant usage on schema fencepost to ROLE;
grant select, update on fencepost.installation to ROLE;
grant select, insert, update on fencepost.incarnation, fencepost.lock, fencepost.revocation, fencepost.logbook to ROLE;
grant select, insert, update, delete on fencepost.waiter, fencepost.reader to ROLE;
