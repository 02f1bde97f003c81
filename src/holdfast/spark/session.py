"""A Spark session with the settings that were measured to be right for the data source.

Owns the settings of sessions that we start ourselves. A session that a user made works as well: docs/spark.md lists
what it should set.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Mapping[str, str] = {
    # A third less time per row and 40 ms less per task than TCP between the JVM and its Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    # A small heap that is collected in parallel beats a large one that is not, on a laptop.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Dlog4j2.level=ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}


def spark_session(
    name: str = "holdfast",
    *,
    cores: int | None = None,
    driver_memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A local session (or the one that is active). Finds Java, and makes workers use this Python."""
    from pyspark.sql import SparkSession

    from holdfast.spark.java import use_java
    from holdfast.spark.reader import PARALLELISM

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    use_java()
    cores = cores or max(1, min(4, os.cpu_count() or 1))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ[PARALLELISM] = str(cores)
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    merged = {**DEFAULTS, "spark.driver.memory": driver_memory, **(settings or {})}
    for key, value in merged.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
