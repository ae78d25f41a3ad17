"""What the marts must say, counted straight from the retail file without the loader's code or Spark."""
