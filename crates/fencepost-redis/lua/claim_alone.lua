-- How long a reservation lasts where one server decides: a busy client has time enough, and a stopped one costs little.
local CLAIM_MS = 1000

