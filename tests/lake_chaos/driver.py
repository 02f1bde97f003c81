"""One driver of a lake, in a process of its own, with its blows: started by run.py, and killed with its group.

A blow is armed from its batch on, and struck at the next step that it is meant for: the file ``struck-N`` tells. Those
of brokers are asked for on standard output, as brokers are run.py's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.spark.lake import LakeJob, run
from holdfast.spark.session import spark_session

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)


class Blows:
    """What is to be struck when. Made again in workers, from the same words."""

    def __init__(self, folder: Path, blows: list[dict[str, Any]]) -> None:
        self._folder, self._blows = folder, blows

    def arm(self, batch: int) -> dict[str, Any] | None:
        """The blow that becomes due in the driver's so manieth batch."""
        if batch >= len(self._blows):
            return None
        (self._folder / f"armed-{batch}").touch()
        return self._blows[batch]

    def due(self, step: str, *victims: str) -> str:
        """The victim of a blow that is armed, meant for this step, and nobody has struck; it is struck now."""
        for number, blow in enumerate(self._blows):
            if blow["step"] != step or blow["victim"] not in victims or not (self._folder / f"armed-{number}").exists():
                continue
            try:
                os.close(os.open(self._folder / f"struck-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return str(blow["victim"])
        return ""


def executor_of(daemon: int) -> int:
    """The JVM that a worker's daemon was started by."""
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def in_worker(folder: str, blows: list[dict[str, Any]]) -> Callable[[str], None]:
    """What a task does at each of its steps."""

    def step(name: str) -> None:
        victim = Blows(Path(folder), blows).due(name, "worker", "executor")
        if victim:
            os.kill(os.getpid() if victim == "worker" else executor_of(os.getppid()), signal.SIGKILL)
        if name == "fetched" and Blows(Path(folder), blows).due(name, "broker"):
            (Path(folder) / "broker-asked").touch()  # and goes on: the broker dies while tasks fetch

    return step


def end_inside(location: Path) -> None:
    """Kills this process group as soon as there is a file in the table's folders that was not there."""

    def files() -> set[str]:
        return {each.path for folder in _folders_of(location) for each in os.scandir(folder)}

    before, ready = files(), threading.Event()

    def watch() -> None:
        ready.set()
        while files() <= before:
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="end-inside", daemon=True).start()
    ready.wait()


def _folders_of(location: Path) -> list[Path]:
    """The table's own, and those in it, without its data: where a commit makes its files."""
    return [location, *(Path(each.path) for each in os.scandir(location) if each.is_dir() and each.name != "data")]


class Driver:
    """Tells Blows of the steps of a job."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._blows = Blows(Path(given["folder"]), given["blows"])
        self._table, self._broker_asked = Path(given["to"]), Path(given["folder"]) / "broker-asked"
        self._batches: list[int] = []
        self._broker_lock = threading.Lock()

    def step(self, name: str, batch: int) -> None:
        if batch not in self._batches and name == "planned":
            blow = self._blows.arm(len(self._batches))
            self._batches.append(batch)
            if blow is not None and blow["victim"] == "moment" and self._blows.due("any", "moment"):
                threading.Timer(blow["after_s"], os.killpg, (0, signal.SIGKILL)).start()
        if name == "commit" and self._blows.due("inside", "driver"):
            end_inside(self._table)
        if self._blows.due(name, "driver"):
            os.killpg(0, signal.SIGKILL)
        if self._blows.due(name, "broker"):
            self._kill_broker()

    def _kill_broker(self) -> None:
        """And waits until it is done: steps come from two threads."""
        with self._broker_lock:
            print("kill a broker", flush=True)
            sys.stdin.readline()

    def watch_workers(self) -> None:
        """Brokers that workers ask to be killed."""

        def watch() -> None:
            while not threading.Event().wait(0.02):
                if self._broker_asked.exists():
                    self._broker_asked.unlink()
                    self._kill_broker()

        threading.Thread(target=watch, name="broker-asked", daemon=True).start()


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    driver = Driver(given)
    driver.watch_workers()
    blows = given["blows"]
    settings = {
        # Two executors that are processes of their own, or threads of the driver's, where a task is tried again.
        "spark.master": "local-cluster[2,1,512]" if any(b["victim"] == "executor" for b in blows) else "local[2,6]",
        "spark.task.maxFailures": "6",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = spark_session("lake chaos", cores=2, driver_memory="512m", settings=settings, log=Path(given["log"]))
    job = LakeJob(
        bootstrap=given["bootstrap"],
        topic=given["topic"],
        to=given["to"],
        checkpoint=Path(given["checkpoint"]),
        format=given["format"],
        values=given["values"],
        schema=AVRO if given["values"] == "avro" else "id BIGINT, name STRING",
        max_offsets_per_batch=given["per_batch"],
        maintain_commits=1,
        available_now=True,
        on_step=driver.step,
        on_task_step=in_worker(given["folder"], blows) if blows else None,
    )
    result = run(job, spark)
    print(f"done {result.total_records} {result.total_bad}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
