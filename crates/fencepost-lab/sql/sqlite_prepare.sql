-- What the lab protects, in SQLite: a register with a running total, and a table of processed events. No keys, no arguments, no
-- result.
--
-- Atomic since it is run in a transaction. It can be run again, and changes nothing then.
CREATE TABLE IF NOT EXISTS register (
    partition TEXT NOT NULL PRIMARY KEY,
    total INTEGER NOT NULL,
    last_write TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    partition TEXT NOT NULL,
    event INTEGER NOT NULL,
    "write" TEXT NOT NULL,
    based_on TEXT NOT NULL,
    token INTEGER
);
