"""A standalone Spark cluster of real processes on this machine: a master, and workers that each start executors.

It is what the package pyspark brings, without a script of Spark's. Each worker may have another Python for its
executors' workers and a folder of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark

from holdfast.java.runtime import use_java
from holdfast.testing import wait_for
from holdfast.testing.ports import free_port

START_S = 120


class StandaloneSpark:
    """``with StandaloneSpark(folder, workers=2) as spark: spark.master``, an URL."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1) -> None:
        self._folder = folder
        self._workers = workers
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> StandaloneSpark:
        use_java()
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start(
            "master",
            ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
            "New state: ALIVE",
        )
        for number in range(1, self._workers + 1):
            folder = self._folder / f"worker-{number}"
            command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
            size = ["--cores", str(self._cores), "--memory", "1g", "--work-dir", str(folder)]
            self._start(f"worker-{number}", [*command, *size, self.master], "Successfully registered with master")
        return self

    def _start(self, name: str, command: Sequence[str], ready: str) -> None:
        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command], stdout=file, stderr=file, start_new_session=True,
                env={**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"},
            )  # fmt: skip
        self._processes.append(process)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")
            return ready in log.read_text(errors="replace")

        wait_for(is_ready, f"Spark's {name}", timeout_s=START_S)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
