-- Since when nothing was applied: the time of the transaction that moved the position last.
ALTER TABLE position ADD applied_at timestamptz NOT NULL DEFAULT now();
