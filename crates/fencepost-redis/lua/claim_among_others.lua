-- How long a reservation lasts on one of several nodes. They may reserve the lock for different waiters, and none of those gets it
-- before the reservations are over.
local CLAIM_MS = 250

