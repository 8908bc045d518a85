-- What a role needs to hold locks and to show stamps.
grant usage on schema fencepost to ROLE;
grant select, insert, update, delete
    on fencepost.installation, fencepost.incarnation, fencepost.lock, fencepost.waiter, fencepost.revocation
    to ROLE;
