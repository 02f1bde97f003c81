"""PySpark's worker daemon with the decoder loaded before it forks: ``spark.python.daemon.module`` of our sessions.

A worker then starts with what it needs, shares its memory with the others, and compiles nothing. Driver-side daemons
(planning, catalog) load nothing. Also quieter: a worker that the JVM has let go says nothing about it.
"""

import sys
from typing import Any

from pyspark import daemon


def preload() -> None:
    """Imports and warms what a read needs; a failure here is left for the worker to tell."""
    try:
        from holdfast.spark.numba_cache import settle_cache

        settle_cache()
        import pyarrow  # noqa: F401
        import pyspark.sql.pandas.types
        import pyspark.worker  # noqa: F401

        import holdfast.spark.fetching  # noqa: F401
        from holdfast.records.columns import COLUMN_TYPES, Chunk, ColumnDecoder
        from holdfast.records.record import BatchBuilder

        builder = BatchBuilder()
        builder.append(b"k", b"v", 0)
        decoder = ColumnDecoder(list(COLUMN_TYPES))
        for _ in decoder.decode(Chunk.scan(bytearray(builder.build())), start=0, end=1):
            pass
    except Exception:
        return


def quiet(worker: Any) -> Any:
    """``worker`` without a trace when the JVM has closed the connection: that is how it lets a worker go."""

    def run(*arguments: Any) -> Any:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:
        preload()
    daemon.worker = quiet(daemon.worker)
    daemon.manager()
