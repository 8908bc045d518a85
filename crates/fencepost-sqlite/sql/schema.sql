-- What a fence needs in a database: the highest stamp that was sealed for each lock, and the stamp of the transaction that
-- writes now. It can be run again, and changes nothing then. No keys, no arguments, no result.
--
-- Atomic since whoever runs it is inside a write transaction, of which SQLite has one at a time. It is plain SQL for every
-- SQLite since 3.8: a STRICT table, or a message that is put together, would keep older programs from the whole file.

CREATE TABLE IF NOT EXISTS fencepost_installation (version INTEGER NOT NULL);
INSERT INTO fencepost_installation (version) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM fencepost_installation);

-- The marks.
CREATE TABLE IF NOT EXISTS fencepost_fence (
    lock TEXT NOT NULL PRIMARY KEY CHECK (typeof(lock) = 'text'),
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token >= 1),
    holder TEXT NOT NULL CHECK (typeof(holder) = 'text')
);

-- Which tables are guarded by which locks. A guard is the triggers fencepost_guard_ID_insert, _update and _delete.
CREATE TABLE IF NOT EXISTS fencepost_guard (
    id INTEGER PRIMARY KEY,
    lock TEXT NOT NULL,
    guarded TEXT NOT NULL COLLATE NOCASE,
    UNIQUE (lock, guarded)
);

-- Always empty when a statement ends.
CREATE TABLE IF NOT EXISTS fencepost_probe (
    id INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES fencepost_probe (id) ON DELETE CASCADE
);

-- The stamps of the transaction that writes now. A row refers to one that never is, and SQLite looks for that one when it
-- commits: a stamp has to be deleted before the end of its transaction, so that none is there for the next writer.
CREATE TABLE IF NOT EXISTS fencepost_stamp (
    lock TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL,
    holder TEXT NOT NULL,
    ends INTEGER NOT NULL DEFAULT 0 CHECK (ends = 0)
        REFERENCES fencepost_probe (id) DEFERRABLE INITIALLY DEFERRED
);

-- Refuses a stamp that is not the mark, and any where SQLite does not look for references: what is deleted in the probe
-- takes what refers to it along, or it does not.
CREATE TRIGGER IF NOT EXISTS fencepost_show BEFORE INSERT ON fencepost_stamp BEGIN
    INSERT INTO fencepost_probe (id, parent) VALUES (1, NULL), (2, 1);
    DELETE FROM fencepost_probe WHERE id = 1;
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM fencepost_probe)
            THEN RAISE(ABORT, 'fencepost FP001: a stamp can be shown under PRAGMA foreign_keys = ON alone, which stands before the transaction')
        WHEN NOT EXISTS (SELECT 1 FROM fencepost_fence WHERE lock = NEW.lock AND token >= NEW.token)
            THEN RAISE(ABORT, 'fencepost FP002: a token that was never sealed: seal the fence before the first write')
        WHEN NOT EXISTS (
            SELECT 1 FROM fencepost_fence WHERE lock = NEW.lock AND token = NEW.token AND holder = NEW.holder
        )
            THEN RAISE(ABORT, 'fencepost FP002: a stale stamp: somebody else holds the lock by now, fencepost_fence says who')
    END;
END;
