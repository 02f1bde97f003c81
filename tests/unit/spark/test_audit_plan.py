"""What the audit reads: which files, in which portions, and what it cannot read here."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.types import TopicPartition
from holdfast.spark.audit_plan import PartitionPlan, ReplicaPlan, cut, list_segments, not_here, settled_segments
from holdfast.spark.audit_scan import SegmentFile

MIB = 1 << 20


def make_segments(folder: Path, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        (folder / f"{number * 10:020d}.log").write_bytes(bytes(size))


def test_segments_are_listed_in_order_with_what_follows(tmp_path: Path) -> None:
    make_segments(tmp_path, 3, 2, 1)
    (tmp_path / "00000000000000000000.index").write_bytes(b"")
    (tmp_path / "00000000000000000005.log.deleted").write_bytes(b"")
    (tmp_path / "5.log").write_bytes(b"")
    assert [(s.base_offset, s.next_base, s.size, s.name) for s in list_segments(str(tmp_path))] == [
        (0, 10, 3, "00000000000000000000.log"),
        (10, 20, 2, "00000000000000000010.log"),
        (20, None, 1, "00000000000000000020.log"),
    ]
    with pytest.raises(FileNotFoundError):
        list_segments(str(tmp_path / "none"))


def test_files_with_what_the_broker_counts_or_more_are_enough(tmp_path: Path) -> None:
    make_segments(tmp_path, 3, 2)
    never = iter(())
    for told in (5, 4):
        segments, short = settled_segments(str(tmp_path), told, lambda: next(never))
        assert (len(segments), short) == (2, 0)


def test_a_segment_that_retention_took_between_two_looks_is_not_missed(tmp_path: Path) -> None:
    make_segments(tmp_path, 3, 2)
    _, short = settled_segments(str(tmp_path), 9, lambda: 5)
    assert short == 0


def test_bytes_that_stay_away_are_missed(tmp_path: Path) -> None:
    make_segments(tmp_path, 3, 2)
    segments, short = settled_segments(str(tmp_path), 9, lambda: 9)
    assert (len(segments), short) == (2, 4)
    _, unknown = settled_segments(str(tmp_path), 9, lambda: None)
    assert unknown == 0


def test_a_log_directory_is_read_if_it_is_the_brokers_own(tmp_path: Path) -> None:
    meta = tmp_path / "meta.properties"
    assert "not readable on this machine" in str(not_here(str(tmp_path / "none"), 1, "c"))
    assert "not readable on this machine" in str(not_here(str(tmp_path), 1, "c"))
    meta.write_text("#\nversion=1\nnode.id=1\ncluster.id=c\n")
    assert not_here(str(tmp_path), 1, "c") is None
    assert not_here(str(tmp_path), 1, None) is None
    assert not_here(str(tmp_path), 2, "c") == "on this machine that directory is broker 1's"
    assert not_here(str(tmp_path), 1, "d") == "on this machine that directory belongs to cluster c, not d"
    meta.write_text("version=0\nbroker.id=7\n")
    assert not_here(str(tmp_path), 7, "c") is None
    assert "Not a directory" in str(not_here(str(meta), 7, "c"))
    meta.write_bytes(b"\xff\xfe")
    assert "not readable" in str(not_here(str(tmp_path), 7, "c"))


def partition(number: int, *sizes: int, high_watermark: int | None = 1000, replicas: int = 1) -> PartitionPlan:
    tp = TopicPartition("t", number)
    segments = tuple(
        SegmentFile(path=f"/d/{tp}/{n}.log", base_offset=n * 10, next_base=(n + 1) * 10, size=size)
        for n, size in enumerate(sizes)
    )
    made = tuple(
        ReplicaPlan(
            tp=tp,
            broker=slot + 1,
            slot=slot,
            in_sync=True,
            high_watermark=high_watermark or 0,
            compacted=False,
            directory="/d",
            segments=segments,
        )
        for slot in range(replicas)
    )
    return PartitionPlan(
        tp=tp, leader=1, log_start_offset=0, high_watermark=high_watermark, compacted=False, replicas=made
    )


def shape(tasks: list[tuple]) -> list[list[tuple[str, int, list[int]]]]:
    return [
        [(str(p.replica.tp), p.replica.broker, [s.base_offset for s in p.segments]) for p in pieces] for pieces in tasks
    ]


def test_small_replicas_share_a_task() -> None:
    tasks = cut([partition(0, 100, replicas=3), partition(1, 100)], parallelism=2)
    assert shape(tasks) == [[("t-0", 1, [0]), ("t-0", 2, [0]), ("t-0", 3, [0]), ("t-1", 1, [0])]]


def test_large_replicas_are_cut_between_segments() -> None:
    tasks = cut([partition(0, *[200 * MIB] * 5)], parallelism=1)
    assert shape(tasks) == [[("t-0", 1, [n * 10])] for n in range(5)]
    tasks = cut([partition(0, *[100 * MIB] * 5, replicas=2)], parallelism=1)
    assert all(sum(piece.size for piece in task) <= 256 * MIB for task in tasks)
    assert sorted(base for task in shape(tasks) for _, b, bases in task for base in bases if b == 2) == [
        0,
        10,
        20,
        30,
        40,
    ]


def test_nothing_is_read_of_what_is_empty_or_beyond_the_high_watermark() -> None:
    assert cut([partition(0, 100, high_watermark=0), partition(1, 100, high_watermark=None)], parallelism=2) == []
    assert shape(cut([partition(0, 1, 1, 1, high_watermark=11)], parallelism=2)) == [[("t-0", 1, [0, 10])]]
    assert cut([], parallelism=2) == []
