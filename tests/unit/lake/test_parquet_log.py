"""The manifest chain of Parquet tables: who comes first, what may be forgotten, and who finds that he is late."""

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.lake.errors import TableError
from holdfast.lake.local_store import LocalStore
from holdfast.lake.parquet_log import (
    LOG,
    SNAPSHOT_EVERY,
    CommitEntry,
    LiveFile,
    ParquetLog,
    path_of,
    schema_text,
    snapshot_path,
)
from holdfast.lake.parquet_table import ParquetTable
from holdfast.lake.position import Position
from holdfast.lake.table import CommitConflict

SCHEMA = pa.schema([("a", pa.int64())])


def entry(number: int, *added: str, removed: tuple[str, ...] = (), time_ms: int | None = None) -> CommitEntry:
    return CommitEntry(
        number=number,
        time_ms=number if time_ms is None else time_ms,
        position=Position(sequence=number).to_text(),
        added=tuple(LiveFile(path=path, rows=1, size=2) for path in added),
        removed=removed,
        schema=schema_text(SCHEMA) if number == 0 else None,
    )


def chain(tmp_path: Path, length: int) -> ParquetLog:
    log = ParquetLog(LocalStore(str(tmp_path)))
    for number in range(length):
        assert log.append(entry(number, f"f{number}"))
    return log


def test_a_state_is_what_its_commits_add_up_to(tmp_path: Path) -> None:
    log = chain(tmp_path, 3)
    assert log.append(entry(3, "c", removed=("f0", "f2")))
    state = log.state()
    assert state is not None and sorted(state.files) == ["c", "f1"] and state.number == 3
    log.write_snapshot(state)
    assert log.snapshot(3) == state == log.state() == log.state(state)


def test_files_that_left_are_known_until_they_are_forgotten(tmp_path: Path) -> None:
    log = chain(tmp_path, 3)
    assert log.append(entry(3, "c", removed=("f0", "f1")))
    log.write_snapshot(log.state())
    for number in range(4, 6):
        assert log.append(entry(number))
    log.write_snapshot(log.state())
    assert log.forget(older_than_ms=6) == 6
    assert log.numbers() == ([], [5]) and log.referenced() == {"c", "f0", "f1", "f2"}
    clock = [10]
    table = ParquetTable.opened(LocalStore(str(tmp_path)), clock=lambda: clock[0])
    table.put((), Position(sequence=7))
    table.expire(older_than_ms=3)  # they left at 3: not before
    assert table.referenced() == {"c", "f0", "f1", "f2"}
    table.put((), Position(sequence=8))
    clock[0] = 1_000_000
    table.expire(older_than_ms=4)
    assert table.referenced() == {"c", "f2"} and table.files() == ("c", "f2")


def test_a_number_is_taken_once(tmp_path: Path) -> None:
    log = chain(tmp_path, 2)
    assert not log.append(entry(1, "other"))
    assert sorted(log.state().files) == ["f0", "f1"]


def test_a_snapshot_is_where_readers_begin_and_what_lies_before_it_may_go(tmp_path: Path) -> None:
    log = chain(tmp_path, 10)
    log.write_snapshot(log.state())
    for number in range(10, 14):
        log.append(entry(number, f"f{number}"))
    assert log.forget(older_than_ms=9) == 0  # the snapshot is as old as commit 9
    old = log.state()
    assert log.forget(older_than_ms=10) == 10
    assert log.numbers() == ([10, 11, 12, 13], [9])
    assert log.state() == old == log.state(old) and len(old.files) == 14
    assert log.referenced() == frozenset(old.files)


def test_spark_D2_a_writer_whose_number_was_forgotten_meanwhile_has_not_committed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    log = chain(tmp_path, 5)
    late = ParquetTable.opened(store)
    assert late is not None
    for number in range(5, 9):
        assert log.append(entry(number, f"f{number}"))
    log.write_snapshot(log.state())
    log.forget(older_than_ms=100)
    assert log.numbers() == ([], [8])
    with pytest.raises(CommitConflict):  # commit 5 can be made again, and counts for nobody
        late.put((), Position(sequence=99))
    assert log.state().position == Position(sequence=8).to_text()
    late.refresh()
    assert late.position().sequence == 8 and len(late.files()) == 9


def test_a_snapshot_is_written_as_the_chain_grows(tmp_path: Path) -> None:
    log = chain(tmp_path, SNAPSHOT_EVERY - 1)
    table = ParquetTable.opened(LocalStore(str(tmp_path)))
    assert table is not None
    for number in range(3):
        table.put((), Position(sequence=1000 + number))
    assert log.numbers()[1] == [SNAPSHOT_EVERY]
    assert log.snapshot(SNAPSHOT_EVERY).files.keys() == log.state().files.keys()


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (path_of(2), b"", "is no commit of a Holdfast table"),
        (path_of(2), b'{"version": 9}', "has format version 9, expected 1"),
        (path_of(3), b"{}", "00002.json is missing, .*00003.json is there"),
        (snapshot_path(1), b"[]", "is no commit of a Holdfast table"),
    ],
)
def test_a_damaged_chain_is_named(tmp_path: Path, path: str, content: bytes, words: str) -> None:
    log = chain(tmp_path, 2)
    (tmp_path / path).write_bytes(content)
    with pytest.raises(TableError, match=words):
        log.state()


def test_what_is_forgotten_while_it_is_read_is_read_anew(tmp_path: Path) -> None:
    log = chain(tmp_path, 4)

    class Forgotten(LocalStore):
        """Upkeep of another process, between our listing and our reading."""

        done = False

        def read(self, path: str) -> bytes:
            if not self.done:
                type(self).done = True
                log.write_snapshot(log.state())
                log.forget(older_than_ms=100)
            return super().read(path)

    state = ParquetLog(Forgotten(str(tmp_path))).state()
    assert state is not None and len(state.files) == 4
    assert (tmp_path / LOG).exists() and log.numbers() == ([], [3])
