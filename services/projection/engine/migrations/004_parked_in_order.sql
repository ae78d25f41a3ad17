-- A key's parked events in their order, a portion at a time, and which keys are parked, without reading all of them.
CREATE INDEX parked_in_order ON parked (read_model, key, topic, partition, "offset");
DROP INDEX parked_key;
