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

    step_of_worker = blow["step"] if blow and blow["victim"] == "worker" else ""

    def task_step(name: str) -> None:
        if name != step_of_worker:
            return
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    spark = spark_session(
        "lake chaos", cores=2, driver_memory="512m", settings={"spark.master": "local[2,4]"}, log=Path(given["log"])
    )
    job = LakeJob(
        bootstrap=given["bootstrap"],
        topic=given["topic"],
        to=given["to"],
        checkpoint=Path(given["checkpoint"]),
        format=given["format"],
        schema="id BIGINT, name STRING",
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
