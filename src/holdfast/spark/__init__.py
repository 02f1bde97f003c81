"""PySpark: the data source, the stream to the lake, the replica audit."""
