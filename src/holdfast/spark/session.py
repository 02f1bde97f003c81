"""A Spark session with the settings that were measured to be right for the data source.

Owns the settings of sessions that we start ourselves. A session that a user made works as well: docs/spark.md lists
what it should set.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Mapping[str, str] = {
    # A third less time per row and 40 ms less per task than TCP between the JVM and its Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers with the decoder loaded: half of the first query's time.
    "spark.python.daemon.module": "holdfast.spark.daemon",
    # Needed by reads with pushDownFilters=true; without that option nothing is handed over.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}


def spark_session(
    name: str = "holdfast",
    *,
    cores: int | None = None,
    driver_memory: str = "1g",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
    forks: bool = True,
) -> "SparkSession":
    """A local session (or the one that is active). Finds Java, and makes workers use this Python.

    What Spark's processes say on standard error goes to ``log``, if one is given, for as long as they live. With
    ``forks`` its Python processes are forks of one that has imported what they need, where that is as good as a start
    of their own (``holdfast.spark.fork_client``).
    """
    from pyspark.sql import SparkSession

    from holdfast.java.runtime import use_java
    from holdfast.spark.fork_client import start_server
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
    log4j = Path(__file__).with_name("log4j2.properties")
    # A small heap that is collected in parallel beats a large one that is not, on a laptop.
    java_options = f"-XX:+UseParallelGC -Dlog4j2.configurationFile={log4j.as_uri()}"
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    merged = {
        **DEFAULTS,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.memory": driver_memory,
        **(settings or {}),
    }
    for key, value in merged.items():
        builder = builder.config(key, value)
    with _stderr_to(log):
        if forks:
            start_server()
        return builder.getOrCreate()


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Processes that are started inside write to the file instead of the terminal."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
