-- One row per event of an order.
CREATE TABLE entry (
    order_id       text        NOT NULL,
    version        bigint      NOT NULL,
    event_id       text        NOT NULL,
    type           text        NOT NULL,
    recorded_at    timestamptz NOT NULL,
    occurred_at    timestamptz NOT NULL,  -- business time
    epoch          int         NOT NULL,
    source         text        NOT NULL,
    correlation_id text        NOT NULL,
    causation_id   text        NOT NULL,
    auth_type      text        NOT NULL,  -- who caused it: user, service_account, system, unauthenticated, unknown
    auth_id        text,                  -- a random id, never a name
    body           jsonb       NOT NULL,  -- money in micros, times in micros UTC, as in the event
    PRIMARY KEY (order_id, version)
);
