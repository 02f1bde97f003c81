"""One look at a cluster: what is asked, and what becomes of brokers that do not answer.

``look``: brokers, topics, directories, reassignments. ``look_on``: ends of logs (and where they begin, for who
scrapes), groups, what some of the groups have committed, min.insync.replicas of some topics; who was not asked for
longest comes next, so that one look costs the same however many there are. The two are apart since a coordinator or a
leader that does not answer must not hold up the news that a disk is dead. Everything is asked through an AdminClient
whose timeout is short.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.client.admin import AdminClient
from holdfast.client.configs import min_insync_replicas
from holdfast.client.disks import disks_of_kafka
from holdfast.client.large_answers import LargeAnswers
from holdfast.client.large_asks import whole_disks, whole_metadata, whole_offsets
from holdfast.client.many_groups import committed_of_groups, members_of_groups
from holdfast.client.reassignments import list_reassignments
from holdfast.client.survey import members
from holdfast.client.views import (
    ClusterMetadata,
    DisksView,
    GroupListing,
    OffsetSpec,
    ReassignmentView,
)
from holdfast.console.snapshot import GroupPositions, Snapshot, ToldDisks
from holdfast.model.errors import HoldfastError, UnsupportedVersionError
from holdfast.model.types import BrokerId, Offset, TimestampMs, TopicPartition

DISKS_TIMEOUT_S = 1.5
"""A broker that does not tell of its directories for so long holds nobody else up."""
KAFKA_FOR_MS = 600_000
GROUPS_A_LOOK = 500
GROUPS_A_REQUEST = 100
MOST_OFFSETS = 300_000
"""Of all groups that are kept; the lag of a group beyond that is on its own page only."""
AT_ONCE = 4
TOPICS_A_LOOK = 100
EMPTY = DisksView(disks=(), moves=())


@dataclass(slots=True)
class Turns:
    """Who was asked when: groups and topics are asked in turn.

    ``kafkas``: until when a broker counts as one that has no words for directories but Kafka's. ``doubted``: a broker
    that closed the connection when it was asked for more: once, and it may have died in that moment. ``answers``: what
    was told before, of which as much as possible is used again.
    """

    positions: dict[str, GroupPositions] = field(default_factory=dict)
    groups_asked: dict[str, TimestampMs] = field(default_factory=dict)
    min_isr: dict[str, int] = field(default_factory=dict)
    topics_asked: dict[str, TimestampMs] = field(default_factory=dict)
    kafkas: dict[BrokerId, TimestampMs] = field(default_factory=dict)
    doubted: set[BrokerId] = field(default_factory=set)
    answers: LargeAnswers = field(default_factory=LargeAnswers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedOn:
    """What ``look_on`` found at ``asked_ms``; as in a Snapshot."""

    asked_ms: TimestampMs
    ends: dict[TopicPartition, Offset]
    starts: dict[TopicPartition, Offset]
    groups: tuple[GroupListing, ...]
    positions: Mapping[str, GroupPositions]
    min_isr: Mapping[str, int]

    def within(self, now: Snapshot) -> Snapshot:
        """A snapshot that has it besides; of partitions that are gone nothing is kept."""
        return replace(
            now,
            ends=_kept(now, now.ends, self.ends),
            starts=_kept(now, now.starts, self.starts),
            groups=self.groups,
            positions=self.positions,
            min_isr=self.min_isr,
        )


async def look(client: AdminClient, before: Snapshot | None, turns: Turns, now_ms: TimestampMs) -> Snapshot:
    """The next snapshot; what ``look_on`` asks is in it as it was. HoldfastError when nobody tells of the cluster at
    all. Everything is asked at once, of the brokers of before and then of new ones."""
    known = () if before is None else tuple(sorted(before.alive & client.brokers))
    asked = asyncio.gather(_all_disks(client, known, before, turns, now_ms), _reassignments(client, before))
    try:
        found, view = await asyncio.gather(members(client), whole_metadata(client, turns.answers))
        alive = frozenset(found.brokers)
        disks, moving = await asked
    except BaseException:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)  # asyncio tells the log of an error that nobody has seen
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
        starts={} if before is None else before.starts,
        groups=() if before is None else before.groups,
        positions={} if before is None else before.positions,
    )


async def look_on(
    client: AdminClient, snapshot: Snapshot, turns: Turns, now_ms: TimestampMs, *, with_starts: bool = False
) -> LookedOn:
    """What belongs to the snapshot besides; ``with_starts``: where logs begin, too. HoldfastError."""
    starts = await whole_offsets(client, turns.answers, snapshot.view, OffsetSpec.EARLIEST) if with_starts else {}
    groups = await _groups(client, snapshot.groups)
    await _ask_positions(client, groups, turns, now_ms)
    # Last: no group is beyond the end of a log.
    ends = await whole_offsets(client, turns.answers, snapshot.view, OffsetSpec.LATEST)
    with suppress(HoldfastError):
        await _ask_min_isr(client, snapshot.view, turns, now_ms)
    return LookedOn(
        asked_ms=now_ms,
        ends=ends,
        starts=starts,
        groups=groups,
        positions=dict(turns.positions),
        min_isr=dict(turns.min_isr),
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
            disks = await whole_disks(client, turns.answers, broker, DISKS_TIMEOUT_S)
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


def _kept(
    snapshot: Snapshot, before: Mapping[TopicPartition, Offset], now: dict[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    """What is told now, and of partitions that are still there what was told before."""
    return now | {tp: before[tp] for tp in before.keys() - now.keys() if snapshot.partition(tp) is not None}


async def _groups(client: AdminClient, before: tuple[GroupListing, ...]) -> tuple[GroupListing, ...]:
    """Those known before, where a coordinator does not answer."""
    with suppress(HoldfastError):
        return tuple(await client.list_groups())
    return before


async def _ask_positions(
    client: AdminClient, groups: Sequence[GroupListing], turns: Turns, now_ms: TimestampMs
) -> None:
    known = {group.group_id: group.coordinator for group in groups}
    for kept in (turns.positions, turns.groups_asked):
        for gone in kept.keys() - known.keys():
            del kept[gone]
    asked = sorted(known, key=lambda group: (turns.groups_asked.get(group, 0), group))[:GROUPS_A_LOOK]
    turns.groups_asked |= dict.fromkeys(asked, now_ms)
    by_coordinator: dict[BrokerId, list[str]] = {}
    for group in asked:
        coordinator = known[group]
        if coordinator is not None:
            by_coordinator.setdefault(coordinator, []).append(group)
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(coordinator: BrokerId, some: Sequence[str]) -> None:
        async with gate:
            with suppress(HoldfastError):
                offsets = await committed_of_groups(client, coordinator, some)
                members = await members_of_groups(client, coordinator, some)
                turns.positions |= {
                    group: GroupPositions(offsets=at, told_ms=now_ms, members=members.get(group))
                    for group, at in offsets.items()
                }

    await asyncio.gather(
        *(
            ask(coordinator, names[at : at + GROUPS_A_REQUEST])
            for coordinator, names in by_coordinator.items()
            for at in range(0, len(names), GROUPS_A_REQUEST)
        )
    )
    _limit(turns.positions, asked)


def _limit(positions: dict[str, GroupPositions], asked: Sequence[str]) -> None:
    """Of all groups no more than ``MOST_OFFSETS``: what was ``asked`` now goes first, the last of it foremost."""
    too_many = sum(len(at.offsets) for at in positions.values()) - MOST_OFFSETS
    for group in reversed(asked):
        if too_many <= 0:
            return
        if group in positions:
            too_many -= len(positions.pop(group).offsets)


async def _ask_min_isr(client: AdminClient, view: ClusterMetadata, turns: Turns, now_ms: TimestampMs) -> None:
    for gone in turns.topics_asked.keys() - view.topics.keys():
        del turns.topics_asked[gone]
        turns.min_isr.pop(gone, None)
    asked = sorted(view.topics, key=lambda t: (turns.topics_asked.get(t, 0), t))[:TOPICS_A_LOOK]
    if asked:
        turns.min_isr |= await min_insync_replicas(client, asked)
        turns.topics_asked |= dict.fromkeys(asked, now_ms)
