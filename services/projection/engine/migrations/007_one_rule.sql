-- Why a key waits: its first record `failed` in this read model's code, is `forked` from its stream, or is
-- `unreadable` to this reader; the records after it are `behind`.
ALTER TABLE parked ADD kind text NOT NULL DEFAULT 'failed';
UPDATE parked SET kind = CASE
    WHEN reason = 'behind a parked event' THEN 'behind'
    WHEN reason LIKE 'Undecodable(%' OR reason LIKE 'Malformed(%' THEN 'unreadable'
    ELSE 'failed' END;
ALTER TABLE parked ALTER kind DROP DEFAULT;
CREATE INDEX parked_first ON parked (read_model, kind, key) WHERE kind <> 'behind';

-- A foreign record is nobody's event: it is passed over, and need not be skipped by a decision.
DELETE FROM skipped WHERE version = 0;
DROP INDEX skipped_event, skipped_record;
ALTER TABLE skipped
    DROP COLUMN topic, DROP COLUMN partition, DROP COLUMN "offset",
    ADD PRIMARY KEY (read_model, key, version);

-- Records that are not of our log: how many of a partition were seen, up to which offset they are counted, and
-- the first of them. Their bytes are in the log.
CREATE TABLE foreign_count (
    topic      text   NOT NULL,
    partition  int    NOT NULL,
    records    bigint NOT NULL DEFAULT 0,
    counted_to bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, partition)
);
CREATE TABLE foreign_record (
    topic     text        NOT NULL,
    partition int         NOT NULL,
    "offset"  bigint      NOT NULL,
    reason    text        NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, "offset")
);

-- The decisions of site.journal that a read model's rows honour.
CREATE TABLE judged (
    read_model text   NOT NULL,
    stream     text   NOT NULL,
    version    bigint NOT NULL,
    event_id   text   NOT NULL,
    digest     text   NOT NULL,
    verdict    text   NOT NULL,
    PRIMARY KEY (read_model, stream, version, event_id, digest)
);
ALTER TABLE IF EXISTS sales_daily.sales_daily ADD changes bigint;

-- How often a rebuild brought rows in that honour other decisions than those that the projection knew.
ALTER TABLE position ADD decisions int NOT NULL DEFAULT 0;
