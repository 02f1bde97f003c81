"""What a plan to add or remove a log directory goes by; what other brokers than Holdfast's tell of theirs."""

from __future__ import annotations

import pytest

from holdfast.client.disks import disks_of_kafka, room_without
from holdfast.client.views import DisksView, LogDirView, ReplicaOnDisk
from holdfast.console.acts import ActRefused
from holdfast.console.directory_acts import AddDirectory, refusal
from holdfast.console.disk_acts import broker_of
from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import TopicPartition
from tests.unit.console.snapshots import GIB, disk, snapshot

A, B, C = (
    disk("/a", replicas=[("t", 0), ("t", 1)]),
    disk("/b", state="offline", replicas=[("t", 2)], future=[("t", 0)]),
    disk("/c"),
)


def test_a_directory_is_removed_when_it_holds_nothing_or_is_offline_and_is_not_the_last() -> None:
    view = DisksView(disks=(A, B, C), moves=())
    assert refusal(1, view, A) == ("/a holds 2 replicas: move them first, or take it out of use and lose these copies")
    assert refusal(1, view, B) is None
    assert refusal(1, view, C) is None
    assert refusal(1, DisksView(disks=(B, C), moves=()), C) == "/c is the last log directory that broker 1 can use"


def test_room_is_what_the_other_directories_have_that_can_be_written() -> None:
    view = DisksView(disks=(A, B, C), moves=())
    assert room_without(view, "/a/") == (2000, 50 * GIB)
    assert room_without(view, "/b") == (1000, 100 * GIB)
    assert room_without(view, "/elsewhere") == (0, 100 * GIB)


def test_a_path_is_absolute_and_a_broker_one_that_can_be_asked() -> None:
    now = snapshot(disks={1: [A]})
    act = AddDirectory("b:1")
    assert [f.name for f in act.fields(now, {})] == ["broker", "path", "create"]
    for path in ("disk2", "", "./d"):
        with pytest.raises(ActRefused, match="expected"):
            act.path({"path": path})
    with pytest.raises(ActRefused, match="broker 3 is not alive"):
        broker_of(now, {"broker": "3"}, ours=True)


def test_copies_on_their_way_are_the_moves_of_a_broker_that_tells_of_none() -> None:
    def held(partition: int, *, lag: int = 0, future: bool = False) -> ReplicaOnDisk:
        return ReplicaOnDisk(tp=TopicPartition("t", partition), size_bytes=9, offset_lag=lag, future=future)

    found = disks_of_kafka(
        [
            LogDirView(path="/a", error=None, replicas=(held(0), held(1)), total_bytes=10, usable_bytes=5),
            LogDirView(
                path="/b", error=None, replicas=(held(1, lag=7, future=True), held(2, future=True)),
                total_bytes=10, usable_bytes=5,
            ),
            LogDirView(path="/c", error=KafkaStorageError("x"), replicas=(), total_bytes=None, usable_bytes=None),
        ]
    )  # fmt: skip
    assert [(m.tp.partition, m.source, m.target, m.lag) for m in found.moves] == [(1, "/a", "/b", 7)]
    assert [(d.path, d.state, d.reason) for d in found.disks] == [
        ("/a", "online", None),
        ("/b", "online", None),
        ("/c", "offline", "KAFKA_STORAGE_ERROR"),
    ]
