"""One look at a cluster: what is asked, and what becomes of brokers that do not answer.

``look``: brokers, topics, directories, reassignments. ``look_on``: ends of logs, groups, what some of the groups have
committed, min.insync.replicas of some topics; who was not asked for longest comes next, so that one look costs the same
however many there are. The two are apart since a coordinator or a leader that does not answer must not hold up the news
that a disk is dead. Everything is asked through an AdminClient whose timeout is short.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.client.admin import AdminClient
from holdfast.client.configs import min_insync_replicas
from holdfast.client.disks import ask_disks, disks_of_kafka
from holdfast.client.log_offsets import list_offsets_each
from holdfast.client.reassignments import list_reassignments
from holdfast.client.survey import members
from holdfast.client.views import (
    ClusterView,
    DisksView,
    GroupListing,
    OffsetAt,
    OffsetSpec,
    ReassignmentView,
)
from holdfast.console.snapshot import GroupPositions, Snapshot, ToldDisks
from holdfast.model.errors import HoldfastError, UnsupportedVersionError
from holdfast.model.types import BrokerId, Offset, TimestampMs, TopicPartition
from holdfast.protocol.operating import ManageLogDirsRequest

DISKS_TIMEOUT_S = 1.5
"""A broker that does not tell of its directories for so long holds nobody else up."""
KAFKA_FOR_MS = 600_000
GROUPS_A_LOOK = 60
MOST_OFFSETS = 300_000
"""Of all groups that are kept; the lag of a group beyond that is on its own page only."""
AT_ONCE = 8
TOPICS_A_LOOK = 100
ENDS_PATIENCE_S = 0.5
EMPTY = DisksView(disks=(), moves=())


@dataclass(slots=True)
class Turns:
    """Who was asked when: groups and topics are asked in turn.

    ``kafkas``: until when a broker counts as one that has no words for directories but Kafka's. ``doubted``: a broker
    that closed the connection when it was asked for more: once, and it may have died in that moment.
    """

    positions: dict[str, GroupPositions] = field(default_factory=dict)
    min_isr: dict[str, int] = field(default_factory=dict)
    topics_asked: dict[str, TimestampMs] = field(default_factory=dict)
    kafkas: dict[BrokerId, TimestampMs] = field(default_factory=dict)
    doubted: set[BrokerId] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedOn:
    """What ``look_on`` found at ``asked_ms``; as in a Snapshot."""

    asked_ms: TimestampMs
    ends: Mapping[TopicPartition, Offset]
    groups: tuple[GroupListing, ...]
    positions: Mapping[str, GroupPositions]
    min_isr: Mapping[str, int]

    def within(self, now: Snapshot) -> Snapshot:
        """A snapshot that has it besides; of partitions that are gone nothing is kept."""
        ends = {tp: end for tp, end in {**now.ends, **self.ends}.items() if now.partition(tp) is not None}
        return replace(now, ends=ends, groups=self.groups, positions=self.positions, min_isr=self.min_isr)


async def look(client: AdminClient, before: Snapshot | None, turns: Turns, now_ms: TimestampMs) -> Snapshot:
    """The next snapshot; what ``look_on`` asks is in it as it was. HoldfastError when nobody tells of the cluster at
    all. Everything is asked at once, of the brokers of before and then of new ones."""
    known = () if before is None else tuple(sorted(before.alive & client.brokers))
    asked = asyncio.gather(_all_disks(client, known, before, turns, now_ms), _reassignments(client, before))
    try:
        found, view = await asyncio.gather(members(client), client.metadata())
        alive = frozenset(found.brokers)
        disks, moving = await asked
    except BaseException:
        asked.cancel()
        raise
    told = {broker: each for broker, each in disks.items() if broker in alive}
    told |= await _all_disks(client, sorted(alive.difference(known)), before, turns, now_ms)
    for broker, earlier in ({} if before is None else before.disks).items():
        if broker not in told:
            told[broker] = replace(earlier, error="the broker is away")
    return Snapshot(
        number=1 if before is None else before.number + 1,
        taken_ms=now_ms,
        view=view,
        alive=alive,
        disks=told,
        reassignments=moving,
        min_isr={} if before is None else before.min_isr,
        ends={} if before is None else before.ends,
        groups=() if before is None else before.groups,
        positions={} if before is None else before.positions,
    )


async def look_on(client: AdminClient, snapshot: Snapshot, turns: Turns, now_ms: TimestampMs) -> LookedOn:
    """What belongs to the snapshot besides. HoldfastError."""
    ends = await ends_of(client, snapshot.view)
    groups = await _groups(client, snapshot.groups)
    await _ask_positions(client, [g.group_id for g in groups], turns, now_ms)
    with suppress(HoldfastError):
        await _ask_min_isr(client, snapshot.view, turns, now_ms)
    return LookedOn(
        asked_ms=now_ms, ends=ends, groups=groups, positions=dict(turns.positions), min_isr=dict(turns.min_isr)
    )


# -- directories ---------------------------------------------------------------------------------------------------


async def _all_disks(
    client: AdminClient, brokers: Sequence[BrokerId], before: Snapshot | None, turns: Turns, now_ms: TimestampMs
) -> dict[BrokerId, ToldDisks]:
    found = await asyncio.gather(*(_disks(client, broker, before, turns, now_ms) for broker in brokers))
    return dict(zip(brokers, found, strict=True))


async def _disks(
    client: AdminClient, broker: BrokerId, before: Snapshot | None, turns: Turns, now_ms: TimestampMs
) -> ToldDisks:
    earlier = None if before is None else before.disks.get(broker)
    try:
        async with asyncio.timeout(DISKS_TIMEOUT_S):
            return await _told(client, broker, turns, now_ms, told_before=earlier is not None and not earlier.is_kafka)
    except TimeoutError:
        error = f"no answer within {DISKS_TIMEOUT_S:g} s"
    except HoldfastError as e:
        error = str(e)
    if earlier is None:
        return ToldDisks(disks=EMPTY, told_ms=now_ms, error=error)
    return replace(earlier, error=error)


async def _told(
    client: AdminClient, broker: BrokerId, turns: Turns, now_ms: TimestampMs, *, told_before: bool
) -> ToldDisks:
    """``told_before``: it has answered as one of Holdfast's, and counts as one until it refuses twice."""
    if turns.kafkas.get(broker, 0) <= now_ms:
        try:
            disks = await ask_disks(client, broker, ManageLogDirsRequest(), DISKS_TIMEOUT_S)
            turns.doubted.discard(broker)
            return ToldDisks(disks=disks, told_ms=now_ms)
        except UnsupportedVersionError:
            if told_before and broker not in turns.doubted:
                turns.doubted.add(broker)
                raise
    plain = disks_of_kafka((await client.describe_log_dirs([broker]))[broker])
    turns.kafkas[broker] = now_ms + KAFKA_FOR_MS
    return ToldDisks(disks=plain, told_ms=now_ms, is_kafka=True)


async def _reassignments(client: AdminClient, before: Snapshot | None) -> Mapping[TopicPartition, ReassignmentView]:
    """What was under way before, where the controller does not tell, or none is known."""
    if before is not None and before.view.controller_id is None:
        return before.reassignments
    with suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout(DISKS_TIMEOUT_S):
            return await list_reassignments(client)
    return {} if before is None else before.reassignments


# -- what a full look asks besides ---------------------------------------------------------------------------------


async def ends_of(client: AdminClient, view: ClusterView) -> dict[TopicPartition, Offset]:
    """Of partitions that have a leader which answers at once."""
    led = [
        TopicPartition(name, p.partition)
        for name, topic in view.topics.items()
        for p in topic.partitions
        if p.leader in view.brokers
    ]
    if not led:
        return {}
    client.learn(view.topics)
    found = await list_offsets_each(client, dict.fromkeys(led, OffsetSpec.LATEST), patience_s=ENDS_PATIENCE_S)
    return {tp: at.offset for tp, at in found.items() if isinstance(at, OffsetAt) and at.offset is not None}


async def _groups(client: AdminClient, before: tuple[GroupListing, ...]) -> tuple[GroupListing, ...]:
    """Those known before, where a coordinator does not answer."""
    with suppress(HoldfastError):
        return tuple(await client.list_groups())
    return before


async def _ask_positions(client: AdminClient, groups: Iterable[str], turns: Turns, now_ms: TimestampMs) -> None:
    known = set(groups)
    for gone in turns.positions.keys() - known:
        del turns.positions[gone]
    asked = sorted(known, key=lambda g: (turns.positions[g].told_ms if g in turns.positions else 0, g))[:GROUPS_A_LOOK]
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(group: str) -> None:
        async with gate:
            with suppress(HoldfastError):
                offsets = await client.committed(group)
                turns.positions.pop(group, None)
                if len(offsets) + sum(len(each.offsets) for each in turns.positions.values()) <= MOST_OFFSETS:
                    turns.positions[group] = GroupPositions(offsets=offsets, told_ms=now_ms)

    await asyncio.gather(*map(ask, asked))


async def _ask_min_isr(client: AdminClient, view: ClusterView, turns: Turns, now_ms: TimestampMs) -> None:
    for gone in turns.topics_asked.keys() - view.topics.keys():
        del turns.topics_asked[gone]
        turns.min_isr.pop(gone, None)
    asked = sorted(view.topics, key=lambda t: (turns.topics_asked.get(t, 0), t))[:TOPICS_A_LOOK]
    if asked:
        turns.min_isr |= await min_insync_replicas(client, asked)
        turns.topics_asked |= dict.fromkeys(asked, now_ms)
