-- Raises the mark of a lock. ?1: the lock, ?2: the token, ?3: the holder. Changes no row where the mark is higher, or equal
-- with another holder.
--
-- Atomic since it is one statement.
INSERT INTO fencepost_fence AS f (lock, token, holder) VALUES (?1, ?2, ?3)
ON CONFLICT (lock) DO UPDATE SET token = excluded.token, holder = excluded.holder
WHERE f.token < excluded.token OR (f.token = excluded.token AND f.holder = excluded.holder)
