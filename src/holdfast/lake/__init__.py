"""Tables that know where they end in the log: one protocol, three formats (Delta, Iceberg, Parquet), no Spark.

Owns the atomic commit of files and position, its fence, the data files, and the upkeep of tables. Never reads a log.
"""
