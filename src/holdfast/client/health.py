"""Whether a cluster is healthy, and what is wrong with it: a decision over what brokers tell. Pure.

A problem is what somebody has to look at; a notice is what is no failure yet. Nothing here asks anybody:
survey.py does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.client.views import ClusterMetadata, DiskView, PartitionMetadata
from holdfast.model.types import BrokerId, TopicPartition


class Finding(Enum):
    """What can be found, the worst first."""

    NO_CONTROLLER = "no_controller"
    NO_LEADER = "no_leader"
    TOPIC_UNKNOWN = "topic_unknown"
    """A topic of which the broker cannot tell."""
    UNDER_MIN_ISR = "under_min_isr"
    BROKER_MISSING = "broker_missing"
    BROKER_UNREACHABLE = "broker_unreachable"
    LOG_DIR = "log_dir"
    """A log directory that is not fit for everything."""
    UNDER_REPLICATED = "under_replicated"
    AT_MIN_ISR = "at_min_isr"
    REASSIGNING = "reassigning"
    LOG_DIR_LOADING = "log_dir_loading"


NOTICES = frozenset({Finding.AT_MIN_ISR, Finding.REASSIGNING, Finding.LOG_DIR_LOADING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing that is not as it should be. ``text`` says it without its partitions."""

    kind: Finding
    text: str
    broker: BrokerId | None = None
    log_dir: str | None = None
    state: str | None = None
    """Of the directory."""
    reason: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a cluster told at one moment.

    ``alive``: the brokers that the controller counts on. ``min_isr`` by topic; ``adding``: replicas that a
    reassignment has begun to make. ``disks`` of each live broker, or why it did not tell.
    """

    view: ClusterMetadata
    alive: frozenset[BrokerId]
    min_isr: Mapping[str, int]
    adding: Mapping[TopicPartition, frozenset[BrokerId]]
    disks: Mapping[BrokerId, tuple[DiskView, ...] | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The judgement; problems and notices in order of their kinds."""

    problems: tuple[Found, ...]
    notices: tuple[Found, ...]

    @property
    def is_healthy(self) -> bool:
        return not self.problems


def judge(survey: Survey) -> Health:
    """Healthy is: a controller, a leader for every partition, every replica in sync, every disk in use."""
    found = [*_of_cluster(survey), *_of_partitions(survey), *_of_brokers(survey), *_of_disks(survey)]
    order = list(Finding)
    found.sort(key=lambda f: order.index(f.kind))  # it is stable: brokers and directories stay in their order
    return Health(
        problems=tuple(f for f in found if f.kind not in NOTICES),
        notices=tuple(f for f in found if f.kind in NOTICES),
    )


def _of_cluster(survey: Survey) -> Iterator[Found]:
    if survey.view.controller_id is None:
        yield Found(kind=Finding.NO_CONTROLLER, text="the cluster has no controller")
    for topic in sorted(survey.view.topics.values(), key=lambda t: t.name):
        if topic.error is not None:
            yield Found(kind=Finding.TOPIC_UNKNOWN, text=f"topic {topic.name}: {topic.error.words or topic.error}")


def _partitions(survey: Survey) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
    for name in sorted(survey.view.topics):
        for partition in survey.view.topics[name].partitions:
            yield TopicPartition(name, partition.partition), partition


def _of_partitions(survey: Survey) -> Iterator[Found]:
    """Of a partition without a leader nothing else is said: its ISR is what it was before."""
    by_kind: dict[Finding, list[TopicPartition]] = {}
    for tp, partition in _partitions(survey):
        for kind in _kinds(tp, partition, survey):
            by_kind.setdefault(kind, []).append(tp)
    words = {
        Finding.NO_LEADER: ("has", "have", "no leader: nobody can read or write"),
        Finding.UNDER_MIN_ISR: ("is", "are", "under min.insync.replicas: acks=all is refused"),
        Finding.UNDER_REPLICATED: ("is", "are", "under-replicated"),
        Finding.AT_MIN_ISR: ("is", "are", "at min.insync.replicas: with one replica less acks=all is refused"),
        Finding.REASSIGNING: ("is", "are", "being reassigned"),
    }
    for kind, tps in by_kind.items():
        one, many, what = words[kind]
        count = f"{len(tps)} partition{'' if len(tps) == 1 else 's'} {one if len(tps) == 1 else many}"
        yield Found(kind=kind, text=f"{count} {what}", partitions=tuple(tps))


def _kinds(tp: TopicPartition, partition: PartitionMetadata, survey: Survey) -> Iterator[Finding]:
    adding = survey.adding.get(tp)
    if adding is not None:
        yield Finding.REASSIGNING
    if partition.leader is None:
        yield Finding.NO_LEADER
        return
    wanted = set(partition.replicas) - (adding or frozenset())  # what is on its way is not missing
    needed = min(survey.min_isr.get(tp.topic, 1), len(partition.replicas))  # as the leader goes by it
    if wanted - set(partition.isr):
        yield Finding.UNDER_REPLICATED
    if len(partition.isr) < needed:
        yield Finding.UNDER_MIN_ISR
    elif len(partition.isr) == needed and len(partition.replicas) > 1:
        yield Finding.AT_MIN_ISR


def _of_brokers(survey: Survey) -> Iterator[Found]:
    """One that is away is missed when it has replicas; nobody else is known to be expected."""
    missing: dict[BrokerId, list[TopicPartition]] = {}
    for tp, partition in _partitions(survey):
        for replica in partition.replicas:
            if replica not in survey.alive:
                missing.setdefault(replica, []).append(tp)
    for broker, tps in sorted(missing.items()):
        text = f"broker {broker} is missing: it has {len(tps)} replica{'' if len(tps) == 1 else 's'}"
        yield Found(kind=Finding.BROKER_MISSING, text=text, broker=broker, partitions=tuple(tps))
    for broker, told in sorted(survey.disks.items()):
        if isinstance(told, str):
            text = f"broker {broker} does not answer: {told}"
            yield Found(kind=Finding.BROKER_UNREACHABLE, text=text, broker=broker, reason=told)


def _of_disks(survey: Survey) -> Iterator[Found]:
    for broker, told in sorted(survey.disks.items()):
        if not isinstance(told, str):
            yield from _of_directories(broker, told)


def _of_directories(broker: BrokerId, disks: Iterable[DiskView]) -> Iterator[Found]:
    for disk in disks:
        if disk.state == "online":
            continue
        why = (disk.reason or "").removeprefix(f"log dir {disk.path}").lstrip(" :")  # the path is named already
        text = f"broker {broker}: {disk.path} is {disk.state}" + (f": {why}" if why else "")
        yield Found(
            kind=Finding.LOG_DIR_LOADING if disk.state == "loading" else Finding.LOG_DIR,
            text=text,
            broker=broker,
            log_dir=disk.path,
            state=disk.state,
            reason=disk.reason,
            partitions=tuple(sorted(r.tp for r in disk.replicas)),
        )
