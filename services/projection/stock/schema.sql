-- One row per SKU, in units.
CREATE TABLE stock (
    sku        text        PRIMARY KEY,
    version    bigint      NOT NULL,
    event_id   text        NOT NULL,
    lineage    jsonb       NOT NULL,  -- [[site epoch, first version under it], …]
    changed_at timestamptz NOT NULL,  -- recorded time of the last event
    received   bigint      NOT NULL,
    adjusted   bigint      NOT NULL,
    returned   bigint      NOT NULL,
    issued     bigint      NOT NULL,
    reserved   bigint      NOT NULL,
    on_hand    bigint      GENERATED ALWAYS AS (received + adjusted + returned - issued) STORED,
    available  bigint      GENERATED ALWAYS AS (received + adjusted + returned - issued - reserved) STORED
) WITH (fillfactor = 70);
CREATE INDEX stock_available ON stock (available, sku);
