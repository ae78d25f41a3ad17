"""Every test can ask for the real stack (see tests/stack.py)."""

from tests.spark import spark, spark_environment
from tests.stack import database_url, fresh_database, kafka, stack_folder

__all__ = ["database_url", "fresh_database", "kafka", "spark", "spark_environment", "stack_folder"]
