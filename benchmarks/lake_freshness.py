"""From produce to visible in another engine: how old a record is when DuckDB, in a process of its own, first sees it.

    python -m benchmarks.lake_freshness --format iceberg --minutes 10

A producer writes at a rate, ``holdfast lake`` lands with its default trigger and its upkeep, and a second process asks
DuckDB, in one thread and with a pause of PAUSE_S, which records are new. A record's age is the end of the query that
first saw it, less the time at which it was produced, so the poll's pause and its own time are in it. One record of
SAMPLE is looked at. First and last minute stand apart, as a table grows.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.spark_lake import values
from benchmarks.spark_read import say
from holdfast.lake.columns import partition_column
from holdfast.lake.errors import LakeError
from holdfast.lake.opening import open_table
from holdfast.testing import Cluster, wait_for
from tests.contracts.lake_tables import duckdb_connection, rows_by, scan_of

TOPIC, PARTITIONS, SAMPLE = "fresh", 2, 100
PAUSE_S = 0.2
"""Without one the polls take more than a core, and what is measured is who gets the other."""


class Load(threading.Thread):
    """Writes ``rate`` records a second until it is told to stop."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        from confluent_kafka import Producer

        super().__init__(name="freshness-load", daemon=True)
        self.stop, self.sent = threading.Event(), 0
        self._rate = rate
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})

    def run(self) -> None:
        ready, began = values(20_000, 100, 0.0), time.monotonic()
        while not self.stop.is_set():
            due = int((time.monotonic() - began) * self._rate)
            for number in range(self.sent, due):
                self._producer.produce(TOPIC, ready[number % len(ready)], partition=number % PARTITIONS)
            self.sent = max(self.sent, due)
            self._producer.poll(0.01)
        self._producer.flush(30)


def poll(location: str, form: str, seconds: float) -> None:
    """The second process: prints the ages of what each query first saw, as JSON, a line for each query."""
    with duckdb_connection() as connection:
        connection.execute("SET threads = 1")
        _poll(connection, location, form, time.monotonic() + seconds)


def _poll(connection: Any, location: str, form: str, limit: float) -> None:
    ends = dict.fromkeys(range(PARTITIONS), -1)
    while time.monotonic() < limit:
        beyond = " OR ".join(
            f"({partition_column(form)} = {number} AND _offset > {end})" for number, end in ends.items()
        )
        try:
            table = open_table(location, form)
            if table is None:
                time.sleep(PAUSE_S)
                continue
            query = f"SELECT {partition_column(form)}, _offset, epoch_ms(_timestamp) FROM {scan_of(table)}"
            rows = rows_by(connection, f"{query} WHERE _offset % {SAMPLE} = 0 AND ({beyond})")
        except (LakeError, OSError) as error:
            print(json.dumps({"error": str(error)}), flush=True)
            continue
        now = time.time() * 1000
        for number, offset, _ in rows:
            ends[number] = max(ends[number], offset)
        print(json.dumps({"at": now, "ages": [now - produced for _, _, produced in rows]}), flush=True)
        time.sleep(PAUSE_S)


def measure(form: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, NewTopic

    seconds = args.minutes * 60
    with Cluster(brokers=1, log_dirs=1, data_dir=folder / "cluster") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            future.result()
        load = Load(cluster.bootstrap, args.rate)
        load.start()
        to = str(folder / "table")
        land = [sys.executable, "-m", "holdfast.cli.main", "lake", "--bootstrap-server", cluster.bootstrap]
        land += ["--topic", TOPIC, "--to", to, "--checkpoint", str(folder / "checkpoint"), "--format", form, "--json"]
        with open(folder / "lake.out", "w") as said:
            lake = subprocess.Popen(land, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait_for(lambda: '"batch"' in (folder / "lake.out").read_text(), "the first batch", timeout_s=120)
            wait_for(lambda: _behind(folder) < args.rate * 4, "the lake to be up with the load", timeout_s=120)
            say(f"{form}: polling for {seconds:.0f} s")
            poller = [sys.executable, "-m", "benchmarks.lake_freshness", "--poll", to, "--format", form]
            began = time.time() * 1000
            lines = subprocess.run(
                [*poller, "--minutes", str(args.minutes)], capture_output=True, text=True, check=True
            ).stdout.splitlines()
        finally:
            load.stop.set()
            load.join()
            os.killpg(lake.pid, signal.SIGINT)
            lake.wait(60)
        table = open_table(to, form)
        assert table is not None
        files = len(table.files())
    return {**_ages([json.loads(line) for line in lines], began, seconds), "files at the end": files}


def _behind(folder: Path) -> int:
    last = [json.loads(line) for line in (folder / "lake.out").read_text().splitlines() if line.startswith("{")]
    return int(last[-1].get("behind", 0)) if last else 1 << 60


def _ages(polls: list[dict[str, Any]], began_ms: float, seconds: float) -> dict[str, Any]:
    errors = [each["error"] for each in polls if "error" in each]
    if errors:
        raise RuntimeError(f"{len(errors)} queries failed: {errors[:3]}")
    # The first query sees all that was there before.
    seen = [(each["at"] - began_ms, np.array(each["ages"])) for each in polls[1:] if each["ages"]]
    parts = {
        "all": [ages for _, ages in seen],
        "first minute": [ages for at, ages in seen if at < 60_000],
        "last minute": [ages for at, ages in seen if at > seconds * 1000 - 60_000],
    }
    numbers: dict[str, Any] = {"queries": len(polls), "records looked at": int(sum(len(a) for a in parts["all"]))}
    for name, ages in parts.items():
        if ages:
            half, most = np.percentile(np.concatenate(ages), [50, 99]) / 1000
            numbers[f"{name} p50 s"], numbers[f"{name} p99 s"] = round(float(half), 2), round(float(most), 2)
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="delta,iceberg", help="a comma list of delta, iceberg, parquet")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--poll", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.poll:
        poll(args.poll, args.format, args.minutes * 60)
        return 0
    print(json.dumps(machine.describe()))
    for form in args.format.split(","):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            print(form, json.dumps(measure(form, args, Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
