"""The figures that the marts must have, counted from the retail file without the loader's code or Spark."""
