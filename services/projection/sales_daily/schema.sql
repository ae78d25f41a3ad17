-- One row per (day, country, currency), by business time in UTC. Money in micros of `currency`.
CREATE TABLE sales_daily (
    day      date   NOT NULL,
    country  text   NOT NULL,
    currency text   NOT NULL,
    orders   bigint NOT NULL,
    units    bigint NOT NULL,
    gross    bigint NOT NULL,
    returned bigint NOT NULL,
    net      bigint GENERATED ALWAYS AS (gross - returned) STORED,
    changes  bigint,  -- how many events added to the day; null where it was made before they were counted
    PRIMARY KEY (day, country, currency)
) WITH (fillfactor = 50);

-- The days carry no versions of orders: this does, so that no event is added twice.
CREATE TABLE applied (
    order_id text   PRIMARY KEY,
    version  bigint NOT NULL
) WITH (fillfactor = 70);
