"""kill -9 at each named step of a commit and of upkeep, and two processes at once: other engines say what is there."""

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.lake.table import now_ms
from holdfast.lake.upkeep import sweep
from tests.contracts.lake_killed import REFUSED, STEPS, UPKEEP, write
from tests.contracts.lake_tables import (
    FORMATS,
    all_files,
    count_by_own_library,
    made,
    offsets,
    offsets_by_duckdb,
    opened,
)

# One process imports the libraries, all writers are forked from it: each is an own process for its kill.
PROCESSES: Any = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.contracts.lake_killed", "pyiceberg.catalog.sql", "deltalake"])


def started(folder: Path, format: str, step: str, batches: int, told: Path) -> Any:
    process = PROCESSES.Process(target=write, args=(folder, format, step, batches, told))
    process.start()
    return process


def ended(process: Any) -> int:
    process.join(40)
    assert process.exitcode is not None, "the writer did not end in 40 s"
    return int(process.exitcode)


def noted(told: Path) -> list[int]:
    return [int(line) for line in told.read_text().split()] if told.exists() else []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_kill_at_any_step_neither_loses_nor_doubles(tmp_path: Path, format: str, step: str) -> None:
    made(tmp_path, format)
    told = tmp_path / "told"
    # Upkeep comes after batches 1 and 3; what it may remove is there the second time.
    code = ended(started(tmp_path, format, f"{step}@{3 if step in UPKEEP else 1}", 4, told))
    assert code == -signal.SIGKILL or (step == "sweeping" and code == 0)  # nothing was old enough to be swept
    table = opened(tmp_path, format)
    end = table.position().topics["t"].partitions[0].offset
    # What was told is there; the batch that was under way is there whole or not at all, as the position says.
    assert end - noted(told)[-1] == (10 if step == "committed" else 0)
    assert offsets_by_duckdb(table) == offsets((0, 0, end))
    assert table.position().rows == end == count_by_own_library(table)
    assert ended(started(tmp_path, format, "none@0", 3, told)) == 0
    table = opened(tmp_path, format)
    sweep(table, clock=lambda: now_ms() + 1_000, most_age_ms=0)
    table.refresh()
    assert set(all_files(tmp_path / "table/data")) <= {path.removeprefix("data/") for path in table.referenced()}
    assert offsets_by_duckdb(table) == offsets((0, 0, end + 30)) and noted(told)[-1] == end + 30


@pytest.mark.parametrize("format", FORMATS)
def test_spark_D2_two_processes_on_one_table_land_each_offset_once(tmp_path: Path, format: str) -> None:
    """Both plan from the position that they see; whoever is late is refused and ends."""
    made(tmp_path, format)
    told = [tmp_path / "one", tmp_path / "other"]
    both = [started(tmp_path, format, "none@0", 4, each) for each in told]
    codes = [ended(process) for process in both]
    assert set(codes) <= {0, REFUSED}
    table = opened(tmp_path, format)
    end = table.position().topics["t"].partitions[0].offset
    assert offsets_by_duckdb(table) == offsets((0, 0, end))
    assert sorted(noted(told[0]) + noted(told[1])) == list(range(10, end + 1, 10))  # each was told to one of them
