-- One trigger of a guard: a write needs the stamp that is the mark. Filled in are the guard's id, the verb, the table, the
-- lock, and the messages for a missing and for a stale stamp, which SQLite before 3.47 takes as constants only.
--
-- Atomic since it runs in the transaction of the write. SQLite fires it for each row and has no other kind.
DROP TRIGGER IF EXISTS fencepost_guard_{id}_{verb};
CREATE TRIGGER fencepost_guard_{id}_{verb} BEFORE {verb} ON {table} BEGIN
    SELECT CASE
        WHEN NOT EXISTS (SELECT 1 FROM fencepost_stamp WHERE lock = {lock})
            THEN RAISE(ABORT, {missing})
        WHEN NOT EXISTS (
            SELECT 1 FROM fencepost_stamp s JOIN fencepost_fence f USING (lock, token, holder) WHERE s.lock = {lock}
        )
            THEN RAISE(ABORT, {stale})
    END;
END;
