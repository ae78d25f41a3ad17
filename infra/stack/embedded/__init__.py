"""Kafka and PostgreSQL as child processes: what `daybook up` and the tests run on, without Docker."""
