"""The Python processes that Spark works with in a session of ours: forks of one server, and yet each its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

TWO_AT_ONCE = 2


def told_by_workers(spark: SparkSession) -> list[Row]:
    """What two workers say that run at the same time: so they are two processes."""

    def tell(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import random
        import sys
        from pathlib import Path

        import numpy as np
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {
                    "pid": [os.getpid()],
                    "numpy": [float(np.random.rand())],
                    "random": [random.random()],
                    "threads": [os.environ["OMP_NUM_THREADS"]],
                    "arguments": [" ".join(sys.argv)],
                    "daemon": [Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\0", " ")],
                }
            )

    schema = "pid long, numpy double, random double, threads string, arguments string, daemon string"
    return spark.range(0, TWO_AT_ONCE, 1, TWO_AT_ONCE).mapInArrow(tell, schema, barrier=True).collect()


def test_workers_are_forks_of_the_server_with_what_spark_gives_them(spark: SparkSession) -> None:
    first, second = told_by_workers(spark)
    assert first.pid != second.pid
    for each in (first, second):
        assert "-m holdfast.spark.fork_server" in each.daemon
        assert each.threads == "1" and each.arguments.endswith("pyspark.worker")


def test_two_workers_draw_different_numbers(spark: SparkSession) -> None:
    first, second = told_by_workers(spark)
    assert first.numpy != second.numpy and first.random != second.random
