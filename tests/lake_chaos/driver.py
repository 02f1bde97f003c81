"""One driver of a lake, in a process of its own, with its blow: started by run.py, which is killed with its group."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
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


def executor_of(daemon: int) -> int:
    """The JVM that a worker's daemon was started by."""
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    blow = given["blow"]
    mark = Path(given["mark"])
    batches: list[int] = []

    def step(name: str, batch: int) -> None:
        if batch not in batches:
            batches.append(batch)
            if blow and blow["victim"] == "moment" and len(batches) == 1:
                threading.Timer(blow["after_s"], os.killpg, (0, signal.SIGKILL)).start()
        if not blow or name != blow["step"] or batches.index(batch) != blow["batch"] or mark.exists():
            return
        if blow["victim"] == "driver":
            mark.touch()
            os.killpg(0, signal.SIGKILL)
        if blow["victim"] == "broker":
            mark.touch()
            print("kill a broker", flush=True)  # and wait until it is done
            sys.stdin.readline()

    victim = blow["victim"] if blow else ""
    step_of_worker = blow["step"] if blow and victim in ("worker", "executor") else ""

    def task_step(name: str) -> None:
        if name != step_of_worker:
            return
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid() if victim == "worker" else executor_of(os.getppid()), signal.SIGKILL)

    settings = {
        # Two executors that are processes of their own, or threads of the driver's, where a task is tried four times.
        "spark.master": "local-cluster[2,1,512]" if victim == "executor" else "local[2,4]",
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
        on_step=step,
        on_task_step=task_step if step_of_worker else None,
    )
    result = run(job, spark)
    print(f"done {result.total_records} {result.total_bad}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
