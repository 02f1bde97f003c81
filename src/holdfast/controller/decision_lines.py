"""What the controller has decided, as lines of its log: one for each thing that is different now.

Pure: made of the image before and the image after (model/log_events.py has the events). Many partitions that change
together, as when a broker dies that leads thousands, are a bounded number of lines and one with the number of the rest:
``NAMED`` of one kind for one broker in one decision, and ``PER_SECOND`` of all kinds together.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.metadata.image import BrokerImage, ClusterDelta, ClusterImage, ConfigResource, PartitionImage, TopicImage
from holdfast.metadata.records import RecoveryState, ResourceType
from holdfast.model.config_keys import key_of
from holdfast.model.log_events import EventLine, FieldValue, LogEvent
from holdfast.model.types import BrokerId, TimestampMs

NAMED: Final = 10
PER_SECOND: Final = 200
_MAX_VALUE: Final = 200
"""Characters of a configuration's value."""
_HIDDEN: Final = "[hidden]"
_TOPIC_EVENTS: Final = (LogEvent.TOPIC_CREATED, LogEvent.TOPIC_DELETED, LogEvent.TOPIC_PARTITIONS_ADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Many:
    """A line of which there may be many. ``broker``: whom it is about; those of one broker are counted together."""

    line: EventLine
    broker: BrokerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """A partition that was there before and differs now."""

    topic: str
    number: int
    old: PartitionImage
    new: PartitionImage


class DecisionLines:
    """The lines of one reign. Knows how many were told in the second that runs."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._told = 0

    def of(self, delta: ClusterDelta, after: ClusterImage, now_ms: TimestampMs) -> list[EventLine]:
        """The lines of one decision. ``after``: the image that it made of ``delta.before``."""
        second = now_ms // 1000
        if second != self._second:
            self._second, self._told = second, 0
        changed = list(_changed(delta, after))
        lines = list(_about_brokers(delta, after, changed))
        many = [*_about_topics(delta, after), *_about_partitions(changed, after), *_about_configs(delta, after)]
        lines += self._bounded(many)
        lines += _about_the_rest(delta, after)
        return lines

    def _bounded(self, many: Iterable[_Many]) -> Iterator[EventLine]:
        groups: dict[tuple[LogEvent, BrokerId | None], list[EventLine]] = {}
        for each in many:
            groups.setdefault((each.line.event, each.broker), []).append(each.line)
        for (event, broker), lines in groups.items():
            room = max(0, min(NAMED, PER_SECOND - self._told))
            named = lines if len(lines) <= room else lines[:room]
            self._told += len(named)
            yield from named
            if len(named) < len(lines):
                yield _rest(event, broker, len(lines) - len(named), max(line.level for line in lines))


def _rest(event: LogEvent, broker: BrokerId | None, count: int, level: int) -> EventLine:
    """One line for those that are not named."""
    what = "topics" if event in _TOPIC_EVENTS else "resources" if event is LogEvent.CONFIG_CHANGED else "partitions"
    about = "" if broker is None else f", broker {broker}"
    fields: dict[str, FieldValue] = {what: count}
    if broker is not None:
        fields["broker"] = broker
    return EventLine(
        event=event, message=f"{event.value.name} of {count} more {what}{about}", fields=fields, level=level
    )


def _changed(delta: ClusterDelta, after: ClusterImage) -> Iterator[_Changed]:
    for name in sorted(delta.changed_topics):
        before, topic = delta.before.topics.get(name), after.topics.get(name)
        if before is None or topic is None or before.topic_id != topic.topic_id:
            continue
        for number in sorted(delta.changed_topics[name]):
            old, new = before.partitions.get(number), topic.partitions.get(number)
            if old is not None and new is not None and old is not new:
                yield _Changed(topic=name, number=number, old=old, new=new)


# -- brokers ---------------------------------------------------------------------------------------------------


def _about_brokers(delta: ClusterDelta, after: ClusterImage, changed: list[_Changed]) -> Iterator[EventLine]:
    for broker_id in sorted(delta.changed_brokers):
        old, new = delta.before.brokers.get(broker_id), after.brokers.get(broker_id)
        counts = _counts(broker_id, changed)
        about: dict[str, FieldValue] = {"broker": broker_id}
        if new is None:
            if old is not None:
                yield _line(LogEvent.BROKER_UNREGISTERED, f"broker {broker_id} is unregistered", about)
        elif old is None or old.epoch != new.epoch:
            fields = {"epoch": new.epoch, "log_dirs": len(new.log_dirs), "rack": new.rack}
            message = f"broker {broker_id} is registered with epoch {new.epoch}{_in_words(counts)}"
            yield _line(LogEvent.BROKER_REGISTERED, message, {**about, **fields, **counts})
        else:
            yield from _about_one(old, new, about, counts)


def _about_one(
    old: BrokerImage, new: BrokerImage, about: Mapping[str, FieldValue], counts: Mapping[str, int]
) -> Iterator[EventLine]:
    """One that is registered as before."""
    words = _in_words(counts)
    if new.in_controlled_shutdown and not old.in_controlled_shutdown:
        message = f"broker {new.id} is shutting down{words}"
        yield _line(LogEvent.BROKER_SHUTTING_DOWN, message, {**about, **counts})
    if new.fenced and not old.fenced:
        died = not new.in_controlled_shutdown
        level = logging.WARNING if died else logging.INFO
        message = f"broker {new.id} is {'dead' if died else 'gone'}: it is fenced{words}"
        yield _line(LogEvent.BROKER_FENCED, message, {**about, **counts}, level)
    if old.fenced and not new.fenced:
        yield _line(LogEvent.BROKER_UNFENCED, f"broker {new.id} takes part", about)
    if (old.log_dirs, old.cordoned) != (new.log_dirs, new.cordoned):
        gone, back = set(old.log_dirs) - set(new.log_dirs), set(new.log_dirs) - set(old.log_dirs)
        fields: dict[str, FieldValue] = {
            "log_dirs": len(new.log_dirs),
            "gone": tuple(sorted(map(str, gone))),
            "back": tuple(sorted(map(str, back))),
            "cordoned": len(new.cordoned),
        }
        message = f"broker {new.id} has {len(new.log_dirs)} log directories, {len(new.cordoned)} cordoned"
        yield _line(LogEvent.BROKER_DIRS_CHANGED, message, {**about, **fields})


def _counts(broker_id: BrokerId, changed: list[_Changed]) -> dict[str, int]:
    led = [each for each in changed if each.old.leader == broker_id != each.new.leader]
    return {
        "leaders_moved": sum(each.new.leader is not None for each in led),
        "leaderless": sum(each.new.leader is None for each in led),
        "isr_left": sum(broker_id in each.old.isr and broker_id not in each.new.isr for each in changed),
    }


def _in_words(counts: Mapping[str, int]) -> str:
    if not any(counts.values()):
        return ""
    return (
        f"; others lead {counts['leaders_moved']} partitions of it, nobody leads {counts['leaderless']}, "
        f"it left {counts['isr_left']} ISRs"
    )


# -- topics and partitions -------------------------------------------------------------------------------------


def _about_topics(delta: ClusterDelta, after: ClusterImage) -> Iterator[_Many]:
    for topic in sorted(delta.deleted_topics.values(), key=lambda topic: topic.name):
        fields: dict[str, FieldValue] = {"topic_id": str(topic.topic_id), "partitions": len(topic.partitions)}
        message = f"topic {topic.name} is deleted"
        yield _Many(line=_line(LogEvent.TOPIC_DELETED, message, {"topic": topic.name, **fields}))
    for name in sorted(delta.changed_topics):
        found = after.topics.get(name)
        if found is not None:
            yield from _about_topic(delta.before.topics.get(name), found)


def _about_topic(before: TopicImage | None, topic: TopicImage) -> Iterator[_Many]:
    count = len(topic.partitions)
    if before is not None and before.topic_id == topic.topic_id:
        added = count - len(before.partitions)
        if added:
            fields: dict[str, FieldValue] = {"topic": topic.name, "partitions": count, "added": added}
            message = f"topic {topic.name} has {added} more partitions, {count} now"
            yield _Many(line=_line(LogEvent.TOPIC_PARTITIONS_ADDED, message, fields))
        return
    fields = {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": count,
        "replication_factor": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        "leaderless": sum(p.leader is None for p in topic.partitions.values()),
    }
    message = f"topic {topic.name} is there with {count} partitions"
    yield _Many(line=_line(LogEvent.TOPIC_CREATED, message, fields))


def _about_partitions(changed: list[_Changed], after: ClusterImage) -> Iterator[_Many]:
    for each in changed:
        yield from _about_leader(each, after)
        yield from _about_isr(each)
        yield from _about_replicas(each)


def _about_leader(each: _Changed, after: ClusterImage) -> Iterator[_Many]:
    old, new = each.old, each.new
    where, about = _where(each)
    if new.leader is None:
        if old.leader is not None:
            broker = after.brokers.get(old.leader)
            in_order = broker is not None and broker.in_controlled_shutdown
            line = _line(
                LogEvent.LEADER_LOST,
                f"{where} has no leader; broker {old.leader} led it",
                {**about, "broker": old.leader, "replicas": new.replicas, "isr": new.isr, "eligible": new.elr},
                logging.INFO if in_order else logging.WARNING,
            )
            yield _Many(line=line, broker=old.leader)
        return
    recovers = new.recovery_state is RecoveryState.RECOVERING
    unclean = recovers and (old.recovery_state is not RecoveryState.RECOVERING or old.leader != new.leader)
    if new.leader != old.leader or unclean:
        line = _line(
            LogEvent.LEADER_ELECTED,
            f"broker {new.leader} leads {where} in epoch {new.leader_epoch}"
            + (", and may lack acknowledged records" if unclean else ""),
            {**about, "broker": new.leader, "before": old.leader, "epoch": new.leader_epoch, "clean": not unclean},
            logging.WARNING if unclean else logging.INFO,
        )
        yield _Many(line=line, broker=new.leader)
    elif old.recovery_state is RecoveryState.RECOVERING and not recovers:
        message = f"broker {new.leader} has recovered {where}"
        line = _line(LogEvent.LEADER_RECOVERED, message, {**about, "broker": new.leader})
        yield _Many(line=line, broker=new.leader)


def _about_isr(each: _Changed) -> Iterator[_Many]:
    where, about = _where(each)
    for event, words, brokers in (
        (LogEvent.ISR_SHRUNK, "is not in sync any more", _without(each.old.isr, each.new.isr)),
        (LogEvent.ISR_EXPANDED, "is in sync again", _without(each.new.isr, each.old.isr)),
    ):
        for broker in brokers:
            if broker in each.new.replicas:  # one that a reassignment takes away is no news of its health
                fields: dict[str, FieldValue] = {**about, "broker": broker, "isr": each.new.isr}
                yield _Many(line=_line(event, f"{where}: broker {broker} {words}", fields), broker=broker)


def _about_replicas(each: _Changed) -> Iterator[_Many]:
    old, new = each.old, each.new
    if (old.replicas, old.adding, old.removing) == (new.replicas, new.adding, new.removing):
        return
    where, about = _where(each)
    original = _without(old.replicas, old.adding)
    if new.is_reassigned:
        event, words = LogEvent.REASSIGNMENT_STARTED, f"is to be on brokers {_named(new.target)}"
        fields: dict[str, FieldValue] = {"replicas": new.target, "before": original}
    elif old.is_reassigned and set(new.replicas) == set(original):
        event, words = LogEvent.REASSIGNMENT_CANCELLED, f"stays on brokers {_named(new.replicas)}"
        fields = {"replicas": new.replicas}
    else:
        event, words = LogEvent.REASSIGNMENT_FINISHED, f"is on brokers {_named(new.replicas)}"
        fields = {"replicas": new.replicas, "before": original}
    yield _Many(line=_line(event, f"{where} {words}", {**about, **fields}))


# -- the rest --------------------------------------------------------------------------------------------------


def _about_configs(delta: ClusterDelta, after: ClusterImage) -> Iterator[_Many]:
    for resource in sorted(delta.changed_configs):
        kind, name = resource
        if kind == ResourceType.TOPIC and name not in after.topics:
            continue  # it went with its topic
        changes = _changes(resource, delta.before, after)
        if not changes:
            continue
        known = {kind.value: kind.name.lower() for kind in ResourceType}
        what = known.get(kind, str(kind))
        words = f"{what} {name}" if name else f"all {what}s"
        fields: dict[str, FieldValue] = {"resource": what, "name": name, "changes": changes}
        yield _Many(line=_line(LogEvent.CONFIG_CHANGED, f"{words}: {', '.join(changes)}", fields))


def _changes(resource: ConfigResource, before: ClusterImage, after: ClusterImage) -> tuple[str, ...]:
    nothing: Mapping[str, str] = {}
    old, new = before.configs.get(resource, nothing), after.configs.get(resource, nothing)
    found = []
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            known = key_of(key)
            hidden = known is not None and known.sensitive
            value = _HIDDEN if hidden else " ".join(new.get(key, "").splitlines())[:_MAX_VALUE]
            found.append(f"{key}={value}" if key in new else f"{key} is not set any more")
    return tuple(found)


def _about_the_rest(delta: ClusterDelta, after: ClusterImage) -> Iterator[EventLine]:
    before = delta.before
    for name in sorted({*before.features, *after.features}) if delta.features_changed else ():
        old, new = before.features.get(name, 0), after.features.get(name, 0)
        if old != new:
            fields: dict[str, FieldValue] = {"feature": name, "level": new, "before": old}
            yield _line(LogEvent.FEATURE_CHANGED, f"feature {name} is at level {new}", fields)
    count = after.next_producer_id - before.next_producer_id
    if count:
        first = before.next_producer_id
        message = f"producer ids {first} to {after.next_producer_id - 1} are given out"
        yield _line(LogEvent.PRODUCER_IDS_ALLOCATED, message, {"first": first, "count": count})


def _where(each: _Changed) -> tuple[str, dict[str, FieldValue]]:
    return f"{each.topic}-{each.number}", {"topic": each.topic, "partition": each.number}


def _without(some: Iterable[BrokerId], others: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    left_out = set(others)
    return tuple(each for each in some if each not in left_out)


def _named(brokers: Iterable[BrokerId]) -> str:
    return ",".join(map(str, brokers))


def _line(event: LogEvent, message: str, fields: Mapping[str, FieldValue], level: int = logging.INFO) -> EventLine:
    return EventLine(event=event, message=message, fields=fields, level=level)
