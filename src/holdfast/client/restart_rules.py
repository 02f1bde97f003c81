"""Whether a broker may be restarted now: a decision over what brokers tell. Pure.

Safe is: a controller, every broker there and answering, every replica in sync, no log directory worse than when the run
began, and min.insync.replicas kept in every partition while that broker is away. What was bad from the beginning is not
held against anybody: replicas of a directory that was offline then are not waited for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.client.health import Survey
from holdfast.client.views import DiskView, PartitionMetadata
from holdfast.model.types import BrokerId, TopicPartition, named

NAMED: Final = 3
"""Partitions that a line names one by one."""
GOOD: Final = "online"
DEAD: Final = "offline"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BadDirectory:
    """A log directory that is not online."""

    broker: BrokerId
    log_dir: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """Why not. ``lasting``: no waiting will change it."""

    text: str
    lasting: bool = False


def bad_directories(survey: Survey) -> frozenset[BadDirectory]:
    """Those that are not online at this moment; one that is being loaded is on its way there."""
    return frozenset(
        BadDirectory(broker=broker, log_dir=disk.path, state=disk.state)
        for broker, disk in _disks(survey)
        if disk.state not in (GOOD, "loading")
    )


def died(survey: Survey, before: frozenset[BadDirectory]) -> tuple[str, ...]:
    """Log directories that are offline and were not when the run began, each as a line."""
    return tuple(
        _directory_line(broker, disk)
        for broker, disk in _disks(survey)
        if disk.state == DEAD and not _was_so(broker, disk, before)
    )


def hindrances(
    survey: Survey, broker: BrokerId | None, *, expected: frozenset[BrokerId], before: frozenset[BadDirectory]
) -> tuple[Hindrance, ...]:
    """Why this broker must not be stopped now; none: it may. Without a broker: why the cluster is not whole."""
    return (
        *_of_brokers(survey, expected),
        *_of_disks(survey, before),
        *_of_partitions(survey, broker, _given_up(survey, before)),
    )


def next_broker(left: Iterable[BrokerId], controller: BrokerId | None) -> BrokerId | None:
    """The controller comes last, so that it changes once. None: all were restarted."""
    in_order = sorted(left)
    return next((b for b in in_order if b != controller), next(iter(in_order), None))


def _disks(survey: Survey) -> Iterator[tuple[BrokerId, DiskView]]:
    for broker, told in sorted(survey.disks.items()):
        if not isinstance(told, str):
            for disk in told:
                yield broker, disk


def _was_so(broker: BrokerId, disk: DiskView, before: frozenset[BadDirectory]) -> bool:
    return BadDirectory(broker=broker, log_dir=disk.path, state=disk.state) in before


def _directory_line(broker: BrokerId, disk: DiskView) -> str:
    why = (disk.reason or "").removeprefix(f"log dir {disk.path}").lstrip(" :")  # the path is named already
    return f"broker {broker}: log directory {disk.path} is {disk.state}" + (f": {why}" if why else "")


def _given_up(survey: Survey, before: frozenset[BadDirectory]) -> frozenset[tuple[BrokerId, TopicPartition]]:
    """Replicas in directories that were offline from the beginning, and are."""
    return frozenset(
        (broker, replica.tp)
        for broker, disk in _disks(survey)
        if disk.state == DEAD and _was_so(broker, disk, before)
        for replica in disk.replicas
    )


def _of_brokers(survey: Survey, expected: frozenset[BrokerId]) -> Iterator[Hindrance]:
    if survey.view.controller_id is None:
        yield Hindrance(text="the cluster has no controller")
    for broker in sorted(expected - survey.alive):
        yield Hindrance(text=f"broker {broker} is missing")
    for broker, told in sorted(survey.disks.items()):
        if isinstance(told, str):
            yield Hindrance(text=f"broker {broker} does not answer: {told}")


def _of_disks(survey: Survey, before: frozenset[BadDirectory]) -> Iterator[Hindrance]:
    for broker, disk in _disks(survey):
        if disk.state != GOOD and not _was_so(broker, disk, before):
            yield Hindrance(text=_directory_line(broker, disk))


def _of_partitions(
    survey: Survey, broker: BrokerId | None, given_up: frozenset[tuple[BrokerId, TopicPartition]]
) -> Iterator[Hindrance]:
    leaderless: list[TopicPartition] = []
    behind: list[TopicPartition] = []
    short: list[TopicPartition] = []
    never: list[TopicPartition] = []
    for topic in sorted(survey.view.topics.values(), key=lambda t: t.name):
        if topic.error is not None:
            yield Hindrance(text=f"topic {topic.name}: {topic.error.words or topic.error}")
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            wanted = {r for r in partition.replicas if (r, tp) not in given_up} - survey.adding.get(tp, frozenset())
            if not wanted:  # it was lost before the run began
                continue
            if partition.leader is None:
                leaderless.append(tp)
                continue
            if wanted - set(partition.isr):
                behind.append(tp)
            if broker is not None and broker in partition.replicas:
                needed = _needed(survey, tp, partition)
                if len(wanted - {broker}) < needed:
                    never.append(tp)
                elif len(set(partition.isr) - {broker}) < needed:
                    short.append(tp)
    yield from _told(leaderless, ("has", "have"), "no leader")
    yield from _told(behind, ("is", "are"), "not in sync everywhere")
    would = ("would be", "would be")
    yield from _told(short, would, f"under min.insync.replicas with broker {broker} stopped")
    few = f"too few other replicas for min.insync.replicas while broker {broker} is stopped"
    yield from _told(never, ("has", "have"), few, lasting=True)


def _needed(survey: Survey, tp: TopicPartition, partition: PartitionMetadata) -> int:
    """As the leader goes by it."""
    return max(1, min(survey.min_isr.get(tp.topic, 1), len(partition.replicas)))


def _told(tps: list[TopicPartition], verb: tuple[str, str], what: str, *, lasting: bool = False) -> Iterator[Hindrance]:
    if tps:
        count = f"1 partition {verb[0]}" if len(tps) == 1 else f"{len(tps)} partitions {verb[1]}"
        yield Hindrance(text=f"{count} {what}: {named(tps, NAMED)}", lasting=lasting)
