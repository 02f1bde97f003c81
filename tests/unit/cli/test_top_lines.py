"""One frame of ``holdfast top``, made of what two looks told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holdfast.cli.top_lines import TopLook, document, frame, pace
from holdfast.client.health import Survey
from holdfast.client.views import BrokerNode, ClusterMetadata, DiskView, PartitionMetadata, ReplicaOnDisk, TopicView
from holdfast.model.types import Offset, TopicPartition


def disk(path: str, state: str = "online", reason: str | None = None, *, cordoned: bool = False) -> DiskView:
    held = ReplicaOnDisk(tp=TopicPartition("t", 0), size_bytes=3 << 20, offset_lag=0, future=False)
    return DiskView(
        path=path, directory_id=None, state=state, reason=reason, since_ms=None, total_bytes=10 << 30,
        usable_bytes=None if state == "offline" else 5 << 30, probe_ms=None if state == "offline" else 1.25,
        cordoned=cordoned, replicas=(held,),
    )  # fmt: skip


def partition(number: int, leader: int | None, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionMetadata:
    return PartitionMetadata(partition=number, leader=leader, leader_epoch=0, replicas=replicas, isr=isr, offline=())


def look(at_s: float, **ends: Offset) -> TopLook:
    """Brokers 1 and 2, and 3, which is gone; the topics t, of two partitions, and u, of one without a leader."""
    nodes = {b: BrokerNode(broker_id=b, host="h", port=9000 + b) for b in (1, 2)}
    t = TopicView(
        name="t", topic_id=None, internal=False,
        partitions=(partition(0, 1, (1, 2), (1, 2)), partition(1, 2, (2, 3), (2,))),
    )  # fmt: skip
    u = TopicView(name="u", topic_id=None, internal=False, partitions=(partition(0, None, (3,), (3,)),))
    return TopLook(
        survey=Survey(
            view=ClusterMetadata(cluster_id="c", controller_id=2, brokers=nodes, topics={"t": t, "u": u}),
            alive=frozenset({1, 2}),
            min_isr={},
            adding={},
            disks={1: (disk("/a"), disk("/b", "offline", "log dir /b: [Errno 5] EIO")), 2: "refused"},
        ),
        nodes=nodes,
        ends={TopicPartition("t", int(name[1:])): end for name, end in ends.items()},
        at_s=at_s,
        at_ms=1_700_000_000_000,
    )


def test_rates_are_how_far_the_ends_went() -> None:
    before, now = look(10.0, p0=100, p1=50), look(12.0, p0=300, p1=40)
    found = pace(now, before)
    assert (found.everything, found.by_topic, found.by_leader) == (100.0, {"t": 100.0}, {1: 100.0, 2: 0.0})
    assert pace(now, None).everything is None
    assert pace(look(12.0, p0=300, p1=40), look(10.0, p1=20)).by_topic == {"t": 10.0}, "p0 was not told before"
    assert pace(now, now).everything is None, "no time has gone by"


def test_a_frame_tells_all_of_it() -> None:
    lines = frame(look(12.0, p0=300, p1=40), look(10.0, p0=100, p1=40), width=None)
    assert lines[0].endswith("  cluster c  controller 2  100 records/s")
    assert lines[1] == "2 brokers, 2 topics, 3 partitions: 1 without leader, 1 under-replicated"
    assert [line.split() for line in lines[3:7]] == [
        ["BROKER", "STATE", "LEADS", "REPLICAS", "BEHIND", "RECORDS/S", "ADDRESS"],
        ["1", "up", "1", "1", "0", "100", "h:9001"],
        ["2", "silent", "1", "2", "0", "0", "h:9002"],
        ["3", "gone", "0", "2", "1", "0", "-"],
    ]
    assert lines[8].split()[:2] == ["BROKER", "STATE"]
    assert lines[9].split(maxsplit=6) == ["1", "offline", "-", "-", "1", "-", "/b: [Errno 5] EIO"], "the worst first"
    assert lines[10].split() == ["1", "online", "3.0", "MiB", "5.0", "GiB", "1", "1.2", "/a"]
    assert [line.split() for line in lines[12:]] == [
        ["RECORDS/S", "PARTITIONS", "ENDS", "TOPIC"], ["100", "2", "340", "t"], ["0", "1", "-", "u"]
    ]  # fmt: skip


def test_of_one_look_rates_are_not_known() -> None:
    lines = frame(look(12.0, p0=300), None, width=None)
    assert lines[0].endswith("  - records/s")
    assert [line.split()[5] for line in lines[4:7]] == ["-"] * 3
    found = json.loads(document(look(12.0, p0=300), None))
    assert (found["records_per_s"], found["brokers"][0]["records_per_s"], found["topics"][0]["records_per_s"]) == (
        None, None, None
    )  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(40, 20), (80, 24), (200, 10)])
def test_a_frame_fits_the_terminal(width: int, height: int) -> None:
    now = look(12.0, p0=300)
    many = {f"topic-{n}": replace(now.survey.view.topics["t"], name=f"topic-{n}") for n in range(100)}
    now = replace(now, survey=replace(now.survey, view=replace(now.survey.view, topics=many)))
    lines = frame(now, None, width=width, height=height)
    assert len(lines) <= height
    whole = frame(now, None, width=None)
    assert whole[-1] == "and 90 more topics"


def test_the_document_has_everything() -> None:
    found = json.loads(document(look(12.0, p0=300, p1=40), look(10.0, p0=100, p1=40)))
    assert (found["controller"], found["records_per_s"]) == (2, 100.0)
    assert [(b["id"], b["alive"], b["error"], b["behind"]) for b in found["brokers"]] == [
        (1, True, None, 0), (2, True, "refused", 0), (3, False, None, 1)
    ]  # fmt: skip
    assert [(d["path"], d["state"], d["usable_bytes"]) for d in found["directories"]] == [
        ("/a", "online", 5 << 30), ("/b", "offline", None)
    ]  # fmt: skip
    assert [(t["name"], t["leaderless"], t["under_replicated"]) for t in found["topics"]] == [("t", 0, 1), ("u", 1, 0)]
