-- One row per order; `since` is null where nothing is awaited.
CREATE TABLE conversation (
    order_id text        PRIMARY KEY,
    version  bigint      NOT NULL,
    since    timestamptz,            -- recorded time of the oldest unanswered ask
    awaits   jsonb       NOT NULL    -- [[step, sku, number of the return, since in micros UTC], …]
) WITH (fillfactor = 70);
CREATE INDEX conversation_open ON conversation (since, order_id) WHERE since IS NOT NULL;
