"""``holdfast segments dump`` over files that Apache Kafka has written, against what its own tool said of them; and over
files that are damaged."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.cli.segment_rows import Damage, rows_of
from holdfast.records.batch import stamp
from holdfast.records.record import Record, encode_batch

GOLDEN = Path(__file__).parents[2] / "golden" / "disk"
AS_IT_IS = ([], ["--print-data-log", "--deep-iteration"])
"""Arguments of Kafka's tool that have nothing to do with what the records mean."""
NAME = "00000000000000000000"


def golden() -> Iterator[Any]:
    for page in sorted(GOLDEN.glob("*/*-0.json")):
        found = json.loads(page.read_text())
        files = found.get("files_after_clean_shutdown") or found.get("files") or {}
        for name, runs in found.get("dump", {}).items():
            for run in runs if isinstance(runs, list) else [runs]:
                if run["arguments"] in AS_IT_IS and name in files and "hex" in files[name]:
                    yield pytest.param(name, files[name], run, id=f"{page.parent.name}-{name}")


GOLDEN_DUMPS = list(golden())


def dump(*args: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["segments", "dump", *map(str, args)], prog_name="holdfast")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_there_are_dumps_of_every_kind() -> None:
    kinds = {Path(each.values[0]).suffix for each in GOLDEN_DUMPS}  # type: ignore[arg-type]
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert len(GOLDEN_DUMPS) > 30


@pytest.mark.parametrize(("name", "file", "run"), GOLDEN_DUMPS)
def test_lines_are_those_of_kafkas_tool(name: str, file: dict[str, Any], run: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / Path(name).name
    path.write_bytes(bytes.fromhex(file["hex"]))
    code, out, err = dump(path, "--records")
    assert (code, err) == (0, "")
    assert out.replace(str(path), name) == run["stdout"]
    code, out, _ = dump(path, "--records", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    types = [row["type"] for row in rows]
    if path.suffix == ".log":
        assert types.count("batch") == run["stdout"].count("\nbaseOffset: ")
        assert types.count("record") == run["stdout"].count("\n| offset: ") == sum(r.get("records", 0) for r in rows)
    else:
        assert len(types) == run["stdout"].count("\n") - 1


def batch(base: int, *values: bytes, codec: int = 0) -> bytearray:
    made = encode_batch([Record(i, 1_700_000_000_000, b"k", value) for i, value in enumerate(values)])
    stamp(made, 0, base, 0)
    return made


def log(folder: Path, *parts: bytes | bytearray) -> Path:
    path = folder / f"{NAME}.log"
    path.write_bytes(b"".join(parts))
    return path


def test_a_directory_is_all_its_files_by_name(tmp_path: Path) -> None:
    log(tmp_path, batch(0, b"a"))
    for name, size in ((f"{NAME}.index", 4096), (f"{NAME}.timeindex", 4092)):
        (tmp_path / name).write_bytes(bytes(size))  # of an active segment: nothing in it yet
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n0\n")
    (tmp_path / f"{NAME}.log.deleted").write_bytes(b"x")
    code, out, err = dump(tmp_path)
    assert (code, err) == (0, "")
    found = out.splitlines()
    assert found[0] == f"Dumping {tmp_path}/{NAME}.index"
    assert found[1:3] == [f"Dumping {tmp_path}/{NAME}.log", "Log starting offset: 0"]
    assert found[3].startswith("baseOffset: 0 lastOffset: 0 count: 1 ")
    assert found[4:] == [f"Dumping {tmp_path}/{NAME}.timeindex"], "records are not shown unless asked for"


def test_half_a_batch_at_the_end_is_told_and_no_damage(tmp_path: Path) -> None:
    whole, half = batch(0, b"a"), batch(1, b"b")[:-3]
    for tail in (half, half[:20]):
        path = log(tmp_path, whole, tail)
        code, out, err = dump(path)
        assert (code, err, out.splitlines()[-1]) == (0, "", f"Found {len(tail)} invalid bytes at the end of {path}")
    (tmp_path / f"{NAME}.txnindex").write_bytes(b"x" * 3)
    assert json.loads(dump(tmp_path / f"{NAME}.txnindex", "--json")[1])["type"] == "torn"


def test_a_wrong_crc_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    bad = batch(1, b"bbbb")
    bad[-2] ^= 1
    path = log(tmp_path, batch(0, b"a"), bad, batch(2, b"c"))
    at = len(batch(0, b"a"))
    code, out, err = dump(path, "--records")
    assert [line.rpartition(" ")[2] for line in out.splitlines() if "isvalid" in line] == ["true", "false", "true"]
    assert [line.split()[2] for line in out.splitlines() if line.startswith("|")] == ["0", "2"], "not to be believed"
    assert (code, err) == (1, f"holdfast segments: {path}: byte {at}: the batch at offset 1 fails its CRC\n")


def test_bytes_that_are_no_batch_are_told_with_their_place(tmp_path: Path) -> None:
    path = log(tmp_path, batch(0, b"a"), bytes(100))
    code, out, err = dump(path, "--json")
    at = len(batch(0, b"a"))
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["batch", "damage"]
    assert (code, err) == (1, f"holdfast segments: {path}: byte {at}: no batch: magic 0 at position 0: expected 2\n")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes: expected a producer snapshot"),
        (b"\0\2" + bytes(20), "version 2 of a producer snapshot: expected 1"),
        (b"\0\1" + bytes(20), "the CRC of the producer snapshot is not that of its bytes"),
    ],
)
def test_a_snapshot_that_is_torn_is_told(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.snapshot"
    path.write_bytes(data)
    assert [row.text.startswith(said) for row in rows_of(path) if isinstance(row, Damage)] == [True]
    assert dump(path)[0] == 1


def test_what_is_no_segment_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("")
    for path, said in (
        (tmp_path / "x.log", "expected a file with one of the names OFFSET.log, OFFSET.index"),
        (tmp_path, "no segment in it: expected the directory of a replica"),
    ):
        code, out, err = dump(path)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith(f"holdfast segments: {path}: {said}")
    gone = tmp_path / f"{NAME}.log"
    assert dump(gone) == (
        1, f"Dumping {gone}\nLog starting offset: 0\n", f"holdfast segments: {gone}: No such file or directory\n"
    )  # fmt: skip


def test_damage_beyond_what_is_told_is_counted(tmp_path: Path) -> None:
    bad = batch(0, b"bbbb")
    bad[-2] ^= 1
    code, _, err = dump(log(tmp_path, *[bad] * 25))
    assert (code, len(err.splitlines())) == (1, 21)
    assert err.splitlines()[-1] == "holdfast segments: and 5 more"


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = log(tmp_path, *(batch(i * 100, *[bytes(1000)] * 100) for i in range(200)))
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in rows_of(path, records=True)) == 200 * 101
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
