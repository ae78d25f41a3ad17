-- A record whose headers cannot be read has no version to be left out by: version 0, and its place in the log.
ALTER TABLE skipped
    ADD topic     text,
    ADD partition int,
    ADD "offset"  bigint,
    DROP CONSTRAINT skipped_pkey,
    ADD CHECK ((version = 0) = (topic IS NOT NULL AND partition IS NOT NULL AND "offset" IS NOT NULL));
CREATE UNIQUE INDEX skipped_event ON skipped (read_model, key, version) WHERE version > 0;
CREATE UNIQUE INDEX skipped_record ON skipped (read_model, topic, partition, "offset") WHERE version = 0;
