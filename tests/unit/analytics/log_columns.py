"""What `analytics.envelope.with_columns` makes, as Spark's DDL."""

LOG_COLUMNS = """
    topic string, partition int, offset long, entity string, id string, type string, version int,
    recorded_at timestamp, correlation_id string, causation_id string, epoch long, schema_id long,
    value binary
"""
