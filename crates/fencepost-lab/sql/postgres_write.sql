-- One write of a worker: the total that it has computed, and the event that it has processed. Filled in are the partition, the
-- total, the event, the write, the write that was read, and the token. Where the fence is on, its check stands before this.
--
-- Atomic since it is sent as one message, which Postgres makes one transaction of; so it takes effect also where its author is
-- gone when it arrives. The register's row is written first, so that the numbers of events follow the order of the commits.
update fencepost_lab.register set total = {total}, last_write = '{write}' where partition = '{partition}';
insert into fencepost_lab.event (partition, event, write, based_on, token)
values ('{partition}', {event}, '{write}', '{based_on}', {token});
