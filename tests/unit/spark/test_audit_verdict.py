"""What the readings of replicas mean: which offsets were compared, what is wrong, what is only worth knowing."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.types import TopicPartition
from holdfast.spark.audit_plan import PartitionPlan, ReplicaPlan
from holdfast.spark.audit_result import AuditedState, AuditResult, ProblemKind, numbers
from holdfast.spark.audit_scan import Flaw, SegmentFile, SegmentReport
from holdfast.spark.audit_verdict import (
    Compared,
    Comparison,
    Copy,
    Window,
    judge,
    lagging,
    not_compared,
    settled,
    windows,
    windows_of,
)

TP = TopicPartition("flights", 2)
HIGH_WATERMARK = 100


def segment(base: int = 0) -> SegmentFile:
    return SegmentFile(path=f"/d/flights-2/{base:020d}.log", base_offset=base, next_base=None, size=1000)


def replica(broker: int, *, slot: int | None = None, in_sync: bool = True, **changes: object) -> ReplicaPlan:
    given = {"directory": "/d", "segments": (segment(),), "high_watermark": HIGH_WATERMARK} | changes
    return ReplicaPlan(
        tp=TP,
        broker=broker,
        slot=broker - 1 if slot is None else slot,
        in_sync=in_sync,
        compacted=False,
        **given,  # type: ignore[arg-type]
    )


def plan(*replicas: ReplicaPlan, high_watermark: int | None = HIGH_WATERMARK, reason: str | None = None):
    return PartitionPlan(
        tp=TP,
        leader=1,
        log_start_offset=0,
        high_watermark=high_watermark,
        compacted=False,
        replicas=replicas,
        reason=reason,
    )


def report(start: int = 0, end: int = HIGH_WATERMARK, *flaws: Flaw, **more: object) -> SegmentReport:
    count = (end - start) // 10
    return SegmentReport(
        base_offset=start, end_offset=end, batches=count, records=end - start, bytes=count * 100,
        runs=[(start, end)], flaws=list(flaws), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def reports(**by_broker: Sequence[SegmentReport]):
    return {(TP, int(name[1:])): list(found) for name, found in by_broker.items()}


WHOLE = Comparison(windows={0: Compared(10, 100, 1000, 0)})


def test_windows_say_who_has_what() -> None:
    runs = {0: [(0, 50), (50, 120)], 1: [(20, 60), (70, 100)], 2: []}
    assert windows(runs, 100) == [
        Window(0, 20, 0b01),
        Window(20, 60, 0b11),
        Window(60, 70, 0b01),
        Window(70, 100, 0b11),
    ]
    assert windows({}, 100) == []
    assert windows({0: [(100, 120)]}, 100) == []


def test_runs_that_overlap_are_one() -> None:
    assert windows({0: [(0, 30), (20, 40)], 1: [(40, 50)]}, 50) == [Window(0, 40, 1), Window(40, 50, 2)]


def test_equal_replicas_are_ok() -> None:
    audit = judge(plan(replica(1), replica(2)), reports(b1=[report()], b2=[report()]), WHOLE)
    assert audit.ok
    assert (audit.compared_from, audit.compared_to) == (0, 100)
    assert (audit.batches, audit.records, audit.bytes) == (10, 100, 1000)
    assert audit.compared == (1, 2)
    assert audit.missing == ()
    assert audit.notes == ()
    assert [(r.start_offset, r.end_offset, r.segments) for r in audit.replicas] == [(0, 100, 1), (0, 100, 1)]


def test_an_empty_partition_is_ok() -> None:
    audit = judge(plan(replica(1, high_watermark=0), high_watermark=0), {}, Comparison())
    assert (audit.ok, audit.compared_from, audit.records) == (True, None, 0)


def test_flaws_of_a_replica_name_partition_broker_and_offset() -> None:
    bad = report(0, 100, Flaw("corrupt", 40, "fails its CRC"), more_flaws=3)
    audit = judge(plan(replica(1), replica(2)), reports(b1=[report()], b2=[bad]), WHOLE)
    (problem,) = audit.problems
    assert (problem.kind, problem.brokers, problem.offset) == (ProblemKind.CORRUPT, (2,), 40)
    assert str(problem) == "flights-2 on broker 2 at offset 40: fails its CRC"
    assert audit.more_problems == 3


def test_a_replica_in_sync_that_ends_early_lacks_records() -> None:
    found = reports(b1=[report()], b2=[report(0, 90, torn_bytes=17)])
    plans = plan(replica(1), replica(2))
    assert lagging([plans], found) == [TP]
    audit = judge(plans, found, WHOLE, in_sync=(1, 2))
    (problem,) = audit.problems
    assert (problem.kind, problem.brokers, problem.offset) == (ProblemKind.MISSING, (2,), 90)
    assert "17 bytes of half a batch" in problem.what
    assert windows_of(plans, found) == [Window(0, 90, 3), Window(90, 100, 1)]
    assert audit.compared_to == 90


def test_why_it_ends_early_is_said_once() -> None:
    bad = SegmentReport(base_offset=0, end_offset=40, runs=[(0, 40)], flaws=[Flaw("corrupt", 40, "no batch")])
    audit = judge(plan(replica(1), replica(2)), reports(b1=[report()], b2=[bad]), Comparison())
    assert [p.kind for p in audit.problems] == [ProblemKind.CORRUPT]


def test_a_replica_that_is_behind_and_known_to_be_is_a_note() -> None:
    found = reports(b1=[report()], b2=[report(0, 90)])
    behind = judge(plan(replica(1), replica(2, in_sync=False)), found, WHOLE)
    assert behind.ok
    assert behind.notes == ("broker 2 is not in sync: it has offsets up to 90 of 100",)
    fell_behind = judge(plan(replica(1), replica(2)), found, WHOLE, in_sync=(1,))
    assert fell_behind.ok
    assert fell_behind.notes == behind.notes


def test_different_starts_are_a_note_and_the_rest_is_compared() -> None:
    found = reports(b1=[report(40)], b2=[report(0)], b3=[report(40)])
    plans = plan(replica(1), replica(2), replica(3))
    counted = Comparison(windows={0: Compared(4, 40, 400, 0), 40: Compared(6, 60, 600, 0)})
    audit = judge(plans, found, counted)
    assert audit.ok
    assert (audit.compared_from, audit.compared_to, audit.records) == (40, 100, 60)
    assert audit.notes == (
        "broker 2 begins at offset 0; brokers 1 and 3 begin at offset 40: compared where at least two have the offsets",
    )


def test_what_retention_took_while_it_was_read_is_not_missed() -> None:
    gone = SegmentReport(base_offset=30, end_offset=30, gone=True)
    kept = [report(0, 30), gone, report(60, 100)]
    assert settled(kept) == [kept[2]]
    audit = judge(plan(replica(1), replica(2)), reports(b1=kept, b2=[report()]), WHOLE)
    assert audit.ok
    assert audit.replicas[0].start_offset == 60


def test_a_replica_that_is_nowhere_is_missing() -> None:
    nowhere = replica(2, directory=None, segments=())
    audit = judge(plan(replica(1), nowhere), reports(b1=[report()]), WHOLE)
    (problem,) = audit.problems
    assert (problem.kind, problem.brokers, problem.offset) == (ProblemKind.MISSING, (2,), None)
    assert audit.missing == (2,)
    emptied = judge(plan(replica(1), replica(2, segments=())), reports(b1=[report()]), WHOLE)
    assert str(emptied.problems[0]) == "flights-2 on broker 2: the replica is not in /d"


def test_a_replica_that_cannot_be_read_is_named_and_not_compared() -> None:
    offline = replica(2, directory="/dead", segments=(), reason="offline: broken")
    down = replica(3, directory=None, segments=(), reason="the broker is down")
    plans = plan(replica(1), offline, down)
    audit = judge(plans, reports(b1=[report()]), WHOLE)
    assert audit.ok
    assert [r.state for r in audit.replicas] == [
        AuditedState.COMPARED,
        AuditedState.NOT_READABLE,
        AuditedState.NOT_READABLE,
    ]
    assert audit.records == 100
    assert audit.notes == ("only broker 1's replica could be read: it was checked, and compared with nothing",)
    assert [str(place) for place in not_compared([plans, plans])] == [
        "broker 2, /dead: offline: broken: 2 replicas not compared",
        "broker 3: the broker is down: 2 replicas not compared",
    ]


def test_a_partition_of_which_nothing_can_be_read_is_not_ok() -> None:
    audit = judge(plan(replica(1, segments=(), reason="the broker is down")), {}, Comparison())
    assert [p.kind for p in audit.problems] == [ProblemKind.UNKNOWN]
    leaderless = judge(plan(replica(1), high_watermark=None, reason="it has no leader"), {}, Comparison())
    assert [str(p) for p in leaderless.problems] == ["flights-2: it has no leader"]
    assert leaderless.compared == ()


def test_bytes_that_the_broker_counts_and_nobody_finds_are_missing() -> None:
    audit = judge(plan(replica(1), replica(2, short_bytes=5)), reports(b1=[report()], b2=[report()]), WHOLE)
    assert [(p.kind, p.brokers) for p in audit.problems] == [(ProblemKind.MISSING, (2,))]


def copies(*found: tuple[int, int]) -> list[Copy]:
    return [Copy(broker, 49, 10, 100, digest) for broker, digest in found]


def differing(*found: tuple[int, int], others: int = 0) -> Comparison:
    return Comparison(windows={0: Compared(10, 100, 1000, 1 + others)}, copies={40: copies(*found)})


THREE = reports(b1=[report()], b2=[report()], b3=[report()])


def test_the_one_that_differs_from_most_is_named() -> None:
    three = plan(replica(1), replica(2), replica(3))
    audit = judge(three, THREE, differing((1, 7), (2, 7), (3, -1)))
    (problem,) = audit.problems
    assert (problem.kind, problem.brokers, problem.offset) == (ProblemKind.DIFFERENT, (3,), 40)
    assert "brokers 1 and 2: up to offset 49, 100 bytes, digest 0000000000000007" in problem.what
    assert "broker 3: up to offset 49, 100 bytes, digest ffffffffffffffff" in problem.what


def test_without_a_majority_all_are_named() -> None:
    audit = judge(plan(replica(1), replica(2)), THREE, differing((1, 7), (2, 8)))
    assert audit.problems[0].brokers == (1, 2)
    three = judge(plan(replica(1), replica(2), replica(3)), THREE, differing((1, 7), (2, 8), (3, 9)))
    assert three.problems[0].brokers == (1, 2, 3)


def test_a_replica_without_the_batch_is_named() -> None:
    audit = judge(plan(replica(1), replica(2), replica(3)), THREE, differing((1, 7), (3, 7)))
    assert audit.problems[0].brokers == (2,)
    assert "broker 2: no batch begins there" in audit.problems[0].what


def test_differences_that_are_not_told_are_counted() -> None:
    audit = judge(plan(replica(1), replica(2)), THREE, differing((1, 7), (2, 8), others=41))
    assert (len(audit.problems), audit.more_problems) == (1, 41)
    result = AuditResult(partitions=(audit,), not_compared=(), seconds=1.0)
    assert not result.ok
    assert result.problem_count == 42
    assert result.differences[-1] == "flights-2: and 41 more"


def test_totals() -> None:
    audit = judge(plan(replica(1), replica(2), replica(3, reason="down", segments=())), THREE, WHOLE)
    result = AuditResult(partitions=(audit, audit), not_compared=(), seconds=1.0)
    assert result.ok
    assert (result.replicas, result.replicas_not_compared) == (4, 2)
    assert (result.batches, result.records, result.bytes, result.bytes_read) == (20, 200, 2000, 4000)
    assert result.problems == ()
    assert result.differences == ()


def test_numbers_in_a_sentence() -> None:
    assert [numbers((1,)), numbers((1, 2)), numbers((1, 2, 3))] == ["1", "1 and 2", "1, 2 and 3"]
