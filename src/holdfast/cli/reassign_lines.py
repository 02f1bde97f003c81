"""Plans of ``holdfast reassign`` and the lines it says: kafka-reassign-partitions.sh's JSON and words. Pure.

{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d1"]}]}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.client.reassignments import ThrottledReplicas
from holdfast.client.views import ClusterMetadata, LogDirView, ReassignmentView
from holdfast.model.types import BrokerId, TopicPartition

ANY = "any"
"""A log directory that the plan leaves open."""


class PlanError(ValueError):
    """A plan that cannot be; in Kafka's words where it has some."""


class Replica(NamedTuple):
    """One replica of a partition."""

    tp: TopicPartition
    broker: BrokerId

    def __str__(self) -> str:
        return f"{self.tp}-{self.broker}"


class ReassignmentPlan(NamedTuple):
    """Where replicas shall be; ``moves``: those whose log directory is given."""

    replicas: dict[TopicPartition, tuple[BrokerId, ...]]
    moves: dict[Replica, str]


def parse_plan(text: str) -> ReassignmentPlan:
    """PlanError when it is none."""
    entries = _document(text).get("partitions") or []
    replicas: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    moves: dict[Replica, str] = {}
    for entry in entries:
        try:
            tp = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            brokers = tuple(int(broker) for broker in entry["replicas"])
            paths = [str(path) for path in entry.get("log_dirs") or [ANY] * len(brokers)]
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise PlanError(
                f"Cannot read {json.dumps(entry)}: expected topic, partition, replicas and, if any, log_dirs ({e!r})"
            ) from e
        if len(paths) != len(brokers):
            raise PlanError(
                f"Size of replicas list {_listed(brokers)} is different from size of log dirs list {_listed(paths)}"
                f" for partition {tp}"
            )
        if tp in replicas:
            raise PlanError(f"Partition reassignment contains duplicate topic partitions: {tp}")
        if not brokers:
            raise PlanError("Partition replica list cannot be empty")
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise PlanError(
                f"Partition replica lists may not contain duplicate entries: {tp} contains multiple entries for "
                + ", ".join(map(str, twice))
            )
        replicas[tp] = brokers
        moves |= {Replica(tp, broker): path for broker, path in zip(brokers, paths, strict=True) if path != ANY}
    if not replicas:
        raise PlanError("Partition reassignment list cannot be empty")
    return ReassignmentPlan(replicas, moves)


def parse_topics(text: str) -> list[str]:
    """The names in ``{"version":1,"topics":[{"topic":"t"}]}``. PlanError."""
    try:
        names = [str(entry["topic"]) for entry in _document(text).get("topics") or []]
    except (KeyError, TypeError) as e:
        raise PlanError(f"Cannot read the topics to move: expected objects with a topic ({e!r})") from e
    if not names:
        raise PlanError("There are no topics to move: expected one or more")
    return names


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise PlanError(str(e)) from e
    if not isinstance(found, dict):
        raise PlanError(f"Cannot read {type(found).__name__}: expected a JSON object")
    version = found.get("version", 1)
    if version != 1:
        raise PlanError(f"Not supported version field value {version}")
    return found


def parse_brokers(text: str) -> list[BrokerId]:
    """``1,2,3``. PlanError."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError as e:
        raise PlanError(f"Cannot read the broker list {text!r}: expected ids with commas between them") from e
    twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
    if twice:
        raise PlanError(f"Broker list contains duplicate entries: {_listed(twice)}")
    return brokers


def _listed(what: Iterable[Any]) -> str:
    return f"[{', '.join(map(str, what))}]"


# -- what is said ----------------------------------------------------------------------------------------------


def plan_json(replicas: Mapping[TopicPartition, Sequence[BrokerId]], paths: Mapping[Replica, str] | None = None) -> str:
    """A plan as one line, by topic and partition. Directories that are not known are "any"."""
    known = paths or {}
    entries = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(brokers),
            "log_dirs": [known.get(Replica(tp, broker), ANY) for broker in brokers],
        }
        for tp, brokers in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": entries}, separators=(",", ":"))


def places(dirs: Mapping[BrokerId, Sequence[LogDirView]], *, future: bool = False) -> dict[Replica, str]:
    """Where replicas are, or, with ``future``, where they are being copied to."""
    return {
        Replica(each.tp, broker): directory.path
        for broker, found in dirs.items()
        for directory in found
        for each in directory.replicas
        if each.future == future
    }


def refuse_unknown_brokers(brokers: Iterable[BrokerId], existing: Iterable[BrokerId]) -> None:
    """PlanError that names the first broker that the cluster has not."""
    there = sorted(existing)
    for broker in brokers:
        if broker not in there:
            raise PlanError(f"broker {broker} does not exist: expected some of {', '.join(map(str, there))}")


def shrinking_line(
    wanted: Mapping[TopicPartition, Sequence[BrokerId]], now: Mapping[TopicPartition, Sequence[BrokerId]]
) -> str | None:
    """A line about partitions that will have fewer replicas than now; None if there are none."""
    less = [f"{tp} ({len(now[tp])} to {len(wanted[tp])})" for tp in sorted(now) if len(wanted[tp]) < len(now[tp])]
    if not less:
        return None
    return f"Warning: this plan lowers the replication factor, fewer replicas than now: {', '.join(less)}"


def throttled(
    wanted: Mapping[TopicPartition, Sequence[BrokerId]],
    now: Mapping[TopicPartition, Sequence[BrokerId]],
    running: Mapping[TopicPartition, ReassignmentView],
) -> tuple[dict[str, ThrottledReplicas], list[BrokerId]]:
    """Whom a throttle is for: by topic the replicas that send and those that are to come, and every broker of either.

    A topic's lists are set whole, so all that is on its way already is in them, as with Kafka's tool: else the limit
    would end for it. Where a partition is on its way, those that come do not send.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[BrokerId] = set()
    for tp in sorted(wanted.keys() | running.keys()):
        moving = running.get(tp)
        there, adding = (now[tp], ()) if moving is None else (moving.replicas, moving.adding)
        sources = [broker for broker in there if broker not in adding]
        targets = [broker for broker in wanted.get(tp, adding) if broker not in sources]
        brokers.update(sources, targets)
        leaders.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in sorted(sources))
        followers.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in sorted(targets))
    topics = {
        topic: ThrottledReplicas(",".join(entries), ",".join(followers[topic])) for topic, entries in leaders.items()
    }
    return topics, sorted(brokers)


def started(partitions: Iterable[TopicPartition]) -> str:
    """That it has begun."""
    names = sorted(map(str, partitions))
    return f"Successfully started partition reassignment{'s' * (len(names) > 1)} for {','.join(names)}"


def reassignment_lines(
    plan: ReassignmentPlan, running: Mapping[TopicPartition, ReassignmentView], view: ClusterMetadata
) -> tuple[list[str], bool]:
    """The state of each partition of the plan, and whether none is under way in the whole cluster."""
    lines = ["Status of partition reassignment:"]
    for tp, wanted in sorted(plan.replicas.items()):
        topic = view.topics.get(tp.topic)
        partition = None if topic is None else topic.partition(tp.partition)
        if tp in running:
            lines.append(f"Reassignment of partition {tp} is still in progress.")
        elif partition is not None and partition.replicas == wanted:
            lines.append(f"Reassignment of partition {tp} is completed.")
        else:
            there = "" if partition is None else ",".join(map(str, partition.replicas))
            lines.append(
                f"There is no active reassignment of partition {tp}, but replica set is {there} rather than "
                f"{','.join(map(str, wanted))}."
            )
    return lines, not running


def move_lines(
    moves: Mapping[Replica, str], now: Mapping[Replica, str], future: Mapping[Replica, str]
) -> tuple[list[str], bool]:
    """The state of each replica whose directory the plan names, and whether none is under way."""
    lines, over = [], True
    for replica, wanted in sorted(moves.items()):
        tp, broker = replica
        if now.get(replica) is None:
            over = False
            lines.append(
                f"Partition {tp} is not found in any live log dir on broker {broker}. There is likely an offline log "
                "directory on the broker."
            )
        elif future.get(replica) == wanted:
            over = False
            lines.append(f"Reassignment of replica {replica} is still in progress.")
        elif replica in future:
            over = False
            lines.append(
                f"Partition {tp} on broker {broker} is being moved to log dir {future[replica]} instead of {wanted}."
            )
        elif now[replica] == wanted:
            lines.append(f"Reassignment of replica {replica} completed successfully.")
        else:
            lines.append(
                f"Partition {tp} on broker {broker} is not being moved from log dir {now[replica]} to {wanted}."
            )
    return lines, over


def list_document(running: Mapping[TopicPartition, ReassignmentView]) -> str:
    """The same as JSON."""
    found = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(each.replicas),
            "adding": list(each.adding),
            "removing": list(each.removing),
        }
        for tp, each in sorted(running.items())
    ]
    return json.dumps({"version": 1, "reassignments": found})


def list_lines(running: Mapping[TopicPartition, ReassignmentView]) -> list[str]:
    """All that is under way."""
    if not running:
        return ["No partition reassignments found."]
    lines = ["Current partition reassignments:"]
    for tp, each in sorted(running.items()):
        line = f"{tp}: replicas: {','.join(map(str, each.replicas))}."
        if each.adding:
            line += f" adding: {','.join(map(str, each.adding))}."
        if each.removing:
            line += f" removing: {','.join(map(str, each.removing))}."
        lines.append(line)
    return lines
