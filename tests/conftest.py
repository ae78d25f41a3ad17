"""Every test can ask for the real stack (see tests/stack.py)."""

import os

from tests.spark import spark, spark_environment
from tests.stack import database_url, fresh_database, kafka, stack_folder

__all__ = ["database_url", "fresh_database", "kafka", "spark", "spark_environment", "stack_folder"]

# Every JVM here is short-lived and small: code that is quick to compile halves the time of a Spark test.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
