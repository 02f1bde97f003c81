"""Values of records as typed columns. Knows no Spark and does no I/O."""
