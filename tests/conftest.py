"""Every test can ask for the real stack (see tests/stack.py)."""

from tests.stack import database_url, fresh_database, kafka, stack_folder

__all__ = ["database_url", "fresh_database", "kafka", "stack_folder"]
