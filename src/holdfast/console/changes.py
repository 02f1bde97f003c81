"""What has changed from one snapshot to the next: a pure function, and its outcome in words.

A change is something that an operator wants to be told of: a directory, a broker, the controller, a topic, a leader, a
move, a reassignment, a cordon. Bytes and offsets that grow are none.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from holdfast.client.views import DiskView
from holdfast.console.snapshot import Snapshot, ToldDisks
from holdfast.model.types import BrokerId, TimestampMs, TopicPartition

NAMED = 3
"""Things that one line names before it counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of what happened, and what page shows it. ``grave``: something is worse than it was."""

    at_ms: TimestampMs
    kind: str
    text: str
    page: str = "/"
    grave: bool = False


def changes(old: Snapshot | None, new: Snapshot) -> tuple[Change, ...]:
    """In the order of their weight; nothing of a first snapshot."""
    if old is None:
        return ()
    return (
        *_of_controller(old, new),
        *_of_brokers(old, new),
        *_of_disks(old, new),
        *_of_leaders(old, new),
        *_of_moves(old, new),
        *_of_reassignments(old, new),
        *_of_topics(old, new),
        *_of_groups(old, new),
    )


def _of_controller(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    before, now = old.view.controller_id, new.view.controller_id
    if before != now:
        text = "the cluster has no controller" if now is None else f"broker {now} is the controller"
        yield Change(at_ms=new.taken_ms, kind="controller", text=text, page="/brokers", grave=now is None)


def _of_brokers(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    for broker in sorted(old.alive - new.alive):
        yield Change(at_ms=new.taken_ms, kind="broker", text=f"broker {broker} is away", page="/brokers", grave=True)
    for broker in sorted(new.alive - old.alive):
        yield Change(at_ms=new.taken_ms, kind="broker", text=f"broker {broker} is here", page="/brokers")


def _of_disks(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    for broker, told in sorted(new.disks.items()):
        before = {d.path: d for d in _disks(old.disks.get(broker))}
        now = {d.path: d for d in _disks(told)}
        for path in now:
            yield from _of_disk(new.taken_ms, broker, before.get(path), now[path], known=broker in old.disks)
        for path in before.keys() - now.keys():
            yield Change(at_ms=new.taken_ms, kind="log_dir", text=f"broker {broker}: {path} was removed")


def _disks(told: ToldDisks | None) -> tuple[DiskView, ...]:
    return () if told is None else told.disks.disks


def _of_disk(
    at_ms: TimestampMs, broker: BrokerId, before: DiskView | None, now: DiskView, *, known: bool
) -> Iterator[Change]:
    name = f"broker {broker}: {now.path}"
    if before is None:
        if known:
            yield Change(at_ms=at_ms, kind="log_dir", text=f"{name} was added: {now.state}")
        return
    if before.state != now.state:
        why = f": {now.reason}" if now.reason else ""
        yield Change(
            at_ms=at_ms,
            kind="log_dir",
            text=f"{name} is {now.state}{why}",
            grave=now.state not in ("online", "loading"),
        )
    if before.cordoned != now.cordoned:
        yield Change(at_ms=at_ms, kind="cordon", text=f"{name} is {'' if now.cordoned else 'not '}cordoned")


def _leaderless(snapshot: Snapshot) -> set[TopicPartition]:
    return {
        TopicPartition(name, p.partition)
        for name, topic in snapshot.view.topics.items()
        for p in topic.partitions
        if p.leader is None
    }


def _of_leaders(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    before, now = _leaderless(old), _leaderless(new)
    lost, found = now - before, {tp for tp in before - now if new.partition(tp) is not None}
    if lost:
        text = f"no leader: {some(lost)}"
        yield Change(at_ms=new.taken_ms, kind="leader", text=text, page="/partitions?only=offline", grave=True)
    if found:
        yield Change(at_ms=new.taken_ms, kind="leader", text=f"led again: {some(found)}", page="/partitions")


def _of_moves(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    for broker, told in sorted(new.disks.items()):
        earlier = old.disks.get(broker)
        before = {} if earlier is None else {m.tp: m for m in earlier.disks.moves}
        now = {m.tp: m for m in told.disks.moves}
        begun: dict[str, list[TopicPartition]] = {}
        for tp in now.keys() - before.keys():
            begun.setdefault(now[tp].target, []).append(tp)
        for target, tps in sorted(begun.items()):
            text = f"broker {broker}: {some(tps)} on the way to {target}"
            yield Change(at_ms=new.taken_ms, kind="move", text=text, page="/reassignments")
        places = {r.tp: d.path for d in told.disks.disks for r in d.replicas if not r.future}
        ended = before.keys() - now.keys()
        there = [tp for tp in ended if places.get(tp) == before[tp].target]
        given_up = [tp for tp in ended if tp not in set(there)]
        if there:
            yield Change(at_ms=new.taken_ms, kind="move", text=f"broker {broker}: {some(there)} moved")
        if given_up:
            text = f"broker {broker}: the move of {some(given_up)} was given up"
            yield Change(at_ms=new.taken_ms, kind="move", text=text, grave=True)


def _of_reassignments(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    begun = new.reassignments.keys() - old.reassignments.keys()
    over = old.reassignments.keys() - new.reassignments.keys()
    for tps, word in ((begun, "is being reassigned"), (over, "is not reassigned any more")):
        if tps:
            text = f"{some(tps)} {word}"
            yield Change(at_ms=new.taken_ms, kind="reassignment", text=text, page="/reassignments")


def _of_topics(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    made, gone = new.view.topics.keys() - old.view.topics.keys(), old.view.topics.keys() - new.view.topics.keys()
    for names, word in ((made, "made"), (gone, "deleted")):
        if names:
            yield Change(at_ms=new.taken_ms, kind="topic", text=f"topic {word}: {some(names)}", page="/topics")


def _of_groups(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    before, now = {g.group_id: g.state for g in old.groups}, {g.group_id: g.state for g in new.groups}
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            yield Change(at_ms=new.taken_ms, kind="group", text=f"group {name} is {now[name]}", page="/groups")
    for names, word in ((now.keys() - before.keys(), "new"), (before.keys() - now.keys(), "gone")):
        if names:
            yield Change(at_ms=new.taken_ms, kind="group", text=f"group {word}: {some(names)}", page="/groups")


def some(things: Collection[object]) -> str:
    """The first few by name, and how many more there are."""
    names = sorted(map(str, things))
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
