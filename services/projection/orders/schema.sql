-- One row per order. Money in micros of `currency`.
CREATE TABLE orders (
    order_id    text        PRIMARY KEY,
    version     bigint      NOT NULL,
    event_id    text        NOT NULL,
    lineage     jsonb       NOT NULL,  -- [[site epoch, first version under it], …]
    changed_at  timestamptz NOT NULL,  -- recorded time of the last event
    status      text        NOT NULL,
    customer_id text,
    country     text        NOT NULL,
    currency    text        NOT NULL,
    placed_at   timestamptz NOT NULL,  -- business time
    units       bigint      NOT NULL,
    gross       bigint      NOT NULL,
    refunded    bigint      NOT NULL,
    returned    jsonb       NOT NULL,  -- units by SKU
    short       text[]      NOT NULL,
    carrier     text,
    reference   text,
    reason      text
) WITH (fillfactor = 80);
CREATE INDEX orders_placed_at ON orders (placed_at DESC, order_id DESC);
CREATE INDEX orders_status ON orders (status, placed_at DESC, order_id DESC);
CREATE INDEX orders_customer ON orders (customer_id, placed_at DESC, order_id DESC) WHERE customer_id IS NOT NULL;

-- What was ordered: written once, so that a change of status does not rewrite it.
CREATE TABLE content (
    order_id text  PRIMARY KEY,
    lines    jsonb NOT NULL,
    charges  jsonb NOT NULL
);
