-- Where each read model stands in the log. Written in the same transaction as its rows.
CREATE TABLE position (
    read_model  text   NOT NULL,
    topic       text   NOT NULL,
    partition   int    NOT NULL,
    next_offset bigint NOT NULL DEFAULT 0,
    epoch       int    NOT NULL DEFAULT 0,  -- the highest site epoch seen in the partition
    PRIMARY KEY (read_model, topic, partition)
);

-- How far that is behind the end of the log, as the projection last saw it. For people and dashboards.
CREATE TABLE lag (
    topic       text        NOT NULL,
    partition   int         NOT NULL,
    read_model  text        NOT NULL,
    events      bigint      NOT NULL,
    seconds     float8      NOT NULL,
    observed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (read_model, topic, partition)
);

-- Events that could not be applied, and the later events of their keys, in order.
CREATE TABLE parked (
    read_model text        NOT NULL,
    key        text        NOT NULL,
    version    bigint      NOT NULL,  -- 0 where the headers cannot be read
    topic      text        NOT NULL,
    partition  int         NOT NULL,
    "offset"   bigint      NOT NULL,
    headers    bytea       NOT NULL,  -- MessagePack: pairs of name and value
    record_key bytea,
    value      bytea,
    reason     text        NOT NULL,
    parked_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (read_model, topic, partition, "offset")
);
CREATE INDEX parked_key ON parked (read_model, key);

-- Events that somebody decided to leave out of a read model.
CREATE TABLE skipped (
    read_model text        NOT NULL,
    key        text        NOT NULL,
    version    bigint      NOT NULL,
    reason     text        NOT NULL,
    skipped_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (read_model, key, version)
);
