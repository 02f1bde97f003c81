"""The Python processes that Spark works with in a session of ours: forks of one server, and yet each its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

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


SESSION = """
import sys
from pathlib import Path
from holdfast.java.runtime import use_java
from holdfast.spark.fork_client import start_server
from holdfast.spark.session import spark_session
from pyspark.sql import SparkSession

use_java()
if sys.argv[1] == "own":
    start_server()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
else:
    spark = spark_session("without", cores=1, forks=False)


def tell(rows):
    import os
    yield Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\\0", " ")


print("DAEMON", spark.sparkContext.parallelize([0], 1).mapPartitions(tell).collect()[0])
spark.stop()
"""


@pytest.mark.parametrize(
    ("session", "daemon"), [("own", "holdfast.spark.fork_server"), ("without", "holdfast.spark.daemon")]
)
def test_a_users_own_session_may_have_forks_and_one_of_ours_may_do_without(session: str, daemon: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, session],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("DAEMON")] or [done.stderr[-2000:]]
    assert f"-m {daemon} " in said
