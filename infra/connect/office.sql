-- The office's own database: what is bought and paid for, without a way into the shop's tables.
CREATE TABLE IF NOT EXISTS settled_orders (
    order_id     text        PRIMARY KEY,  -- an event that is read twice finds its row
    occurred_at  timestamptz NOT NULL,     -- business time
    country      text        NOT NULL,
    currency     text        NOT NULL,
    units        integer     NOT NULL,
    gross_micros bigint      NOT NULL,     -- of `currency`, as in the event
    gross        numeric     NOT NULL GENERATED ALWAYS AS (round(gross_micros / 1000000.0, 6)) STORED
);
