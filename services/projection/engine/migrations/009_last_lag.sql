-- The last lag of the mirror that was measured, as JSON: it stays when the other site is lost, also over restarts.
ALTER TABLE site ADD COLUMN last_lag jsonb;
