"""Spark's own engines for Delta and Iceberg at work on a table while batches land in it, and every reader's sums."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.kafka import cache_dir
from benchmarks.spark_lake import delta_jars
from benchmarks.spark_read import fetched

from holdfast.java.runtime import use_java
from holdfast.lake.position import Position
from holdfast.lake.table import land
from tests.contracts.lake_engines import by_engines
from tests.contracts.lake_tables import batch_of, count_by_own_library, made, offsets, offsets_by_duckdb, opened
from tests.spark import other_engine

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.long(
        "a JVM, and for Iceberg a second PySpark, as its runtime is for 4.1; every run has the formats' own libraries "
        "and DuckDB at work on a table (test_commits_of_other_engines_keep_the_position_and_stop_nobody)"
    ),
]
BATCHES, ROWS = 100, 20
OLDER_SPARK = "4.1.1"
TYPES = {"_kafka_partition": "int", "_offset": "bigint", "_timestamp": "timestamp", "name": "string"}


def older_pyspark() -> str:
    """A folder with PySpark 4.1 in it, installed once: newer ones have no Iceberg runtime."""
    place = cache_dir() / f"pyspark-{OLDER_SPARK}"
    if not (place / "complete").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(place), f"pyspark=={OLDER_SPARK}"]
        subprocess.run(command, check=True, timeout=600)
        (place / "complete").touch()
    return str(place)


def iceberg_jars() -> str:
    wanted = [
        ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0"),
        ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ]
    return fetched("iceberg", wanted)


class OtherEngine:
    """The process, and one command after the other to it."""

    def __init__(self, form: str, location: Path, log: Path) -> None:
        use_java()
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        environ["PYSPARK_PYTHON"] = sys.executable
        jars = delta_jars() if form == "delta" else iceberg_jars()
        if form == "iceberg":
            environ["PYTHONPATH"] = older_pyspark()
        self._log = log
        with open(log, "w") as said:
            self._process = subprocess.Popen(
                [sys.executable, other_engine.__file__, form, str(location), jars],
                env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            )  # fmt: skip

    def ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return answer
        raise AssertionError(f"the other engine ended: {self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_sparks_own_engine_works_on_the_table_while_a_hundred_batches_land(tmp_path: Path, form: str) -> None:
    table = made(tmp_path, form)
    position = land(table, batch_of(table, Position(), (0, 0, ROWS)))
    engine = OtherEngine(form, tmp_path / "table", tmp_path / "engine.log")
    answers: list[dict[str, Any]] = [engine.ask("maintain 0")]  # the JVM is up
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set() or number < 6:
            number += 1
            answers.append(engine.ask(f"maintain {number}"))

    at_work = threading.Thread(target=work)
    at_work.start()
    try:
        for number in range(1, BATCHES):
            writer = opened(tmp_path, form)
            position = land(writer, batch_of(writer, position, (0, number * ROWS, (number + 1) * ROWS)))
    finally:
        stop.set()
        at_work.join()
    done = [each["done"] for each in answers if "done" in each]
    for what in ("OPTIMIZE", "ADD COLUMNS", "VACUUM") if form == "delta" else ("rewrite", "ADD COLUMNS", "expire"):
        assert any(what in each for each in done), (what, [each for each in answers if "refused" in each][:5])

    table = opened(tmp_path, form)
    assert table.position() == position
    assert offsets_by_duckdb(table) == offsets((0, 0, BATCHES * ROWS))
    assert count_by_own_library(table) == BATCHES * ROWS
    every = range(BATCHES * ROWS)
    hashed = sum(int(hashlib.md5(f"n{n}".encode()).hexdigest()[:8], 16) for n in every)
    found = engine.ask("read")
    engine.stop()
    assert found["sums"] == [BATCHES * ROWS, sum(every), 0, hashed]
    assert found["types"] == TYPES and found["time"] == "2023-11-14 22:13:20"
    assert found["others"] == sum("ADD COLUMNS" in each for each in done)
    for rows in by_engines(table, ["_offset", "name"]):
        assert rows == [(n, f"n{n}") for n in every]
