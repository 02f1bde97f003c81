"""One look at a cluster: what is asked, and what becomes of brokers that do not answer.

A look is quick or full. Quick: brokers, topics, directories, reassignments. Full besides: ends of logs (and where they
begin, for who scrapes), groups, what some of the groups have committed, min.insync.replicas of some topics; who was not
asked for longest comes next, so that one look costs the same however many there are. Everything is asked through an
AdminClient whose timeout is short.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.client.admin import AdminClient
from holdfast.client.configs import min_insync_replicas
from holdfast.client.disks import disk_of_kafka
from holdfast.client.large_answers import LargeAnswers
from holdfast.client.large_asks import whole_disks, whole_metadata, whole_offsets
from holdfast.client.many_groups import committed_of_groups, members_of_groups
from holdfast.client.reassignments import list_reassignments
from holdfast.client.survey import members
from holdfast.client.views import (
    ClusterView,
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

    ``kafkas``: until when a broker counts as one that has no words for directories but Kafka's; one that only died when
    it was asked is asked again. ``answers``: what was told before, of which as much as possible is used again.
    """

    positions: dict[str, GroupPositions] = field(default_factory=dict)
    groups_asked: dict[str, TimestampMs] = field(default_factory=dict)
    min_isr: dict[str, int] = field(default_factory=dict)
    topics_asked: dict[str, TimestampMs] = field(default_factory=dict)
    kafkas: dict[BrokerId, TimestampMs] = field(default_factory=dict)
    answers: LargeAnswers = field(default_factory=LargeAnswers)


async def look(
    client: AdminClient,
    before: Snapshot | None,
    turns: Turns,
    now_ms: TimestampMs,
    *,
    full: bool,
    with_starts: bool = False,
) -> Snapshot:
    """The next snapshot. HoldfastError when nobody tells of the cluster at all. ``with_starts``: a full one, and where
    logs begin."""
    found = await members(client)
    view = await whole_metadata(client, turns.answers)
    alive = frozenset(found.brokers)
    disks, moving = await asyncio.gather(
        asyncio.gather(*(_disks(client, broker, before, turns, now_ms) for broker in sorted(alive))),
        _reassignments(client, view, before),
    )
    told = dict(zip(sorted(alive), disks, strict=True))
    for broker, earlier in ({} if before is None else before.disks).items():
        if broker not in told:
            told[broker] = replace(earlier, error="the broker is away")
    snapshot = Snapshot(
        number=1 if before is None else before.number + 1,
        taken_ms=now_ms,
        view=view,
        alive=alive,
        disks=told,
        reassignments=moving,
        min_isr=turns.min_isr,
        ends={} if before is None else before.ends,
        starts={} if before is None else before.starts,
        groups=() if before is None else before.groups,
        positions={} if before is None else before.positions,
    )
    return await _fully(client, snapshot, turns, with_starts=with_starts) if full or with_starts else snapshot


async def _fully(client: AdminClient, snapshot: Snapshot, turns: Turns, *, with_starts: bool) -> Snapshot:
    starts = await whole_offsets(client, turns.answers, snapshot.view, OffsetSpec.EARLIEST) if with_starts else {}
    groups = await _groups(client, snapshot.groups)
    await _ask_positions(client, groups, turns, snapshot.taken_ms)
    # Last: no group is beyond the end of a log.
    ends = await whole_offsets(client, turns.answers, snapshot.view, OffsetSpec.LATEST)
    with suppress(HoldfastError):
        await _ask_min_isr(client, snapshot.view, turns, snapshot.taken_ms)
    return replace(
        snapshot,
        ends=_kept(snapshot, snapshot.ends, ends),
        starts=_kept(snapshot, snapshot.starts, starts),
        groups=groups,
        positions=dict(turns.positions),
        min_isr=dict(turns.min_isr),
    )


# -- directories ---------------------------------------------------------------------------------------------------


async def _disks(
    client: AdminClient, broker: BrokerId, before: Snapshot | None, turns: Turns, now_ms: TimestampMs
) -> ToldDisks:
    earlier = None if before is None else before.disks.get(broker)
    try:
        async with asyncio.timeout(DISKS_TIMEOUT_S):
            return await _told(client, broker, turns, now_ms)
    except TimeoutError:
        error = f"no answer within {DISKS_TIMEOUT_S:g} s"
    except HoldfastError as e:
        error = str(e)
    if earlier is None:
        return ToldDisks(disks=EMPTY, told_ms=now_ms, error=error)
    return replace(earlier, error=error)


async def _told(client: AdminClient, broker: BrokerId, turns: Turns, now_ms: TimestampMs) -> ToldDisks:
    if turns.kafkas.get(broker, 0) <= now_ms:
        try:
            disks = await whole_disks(client, turns.answers, broker, DISKS_TIMEOUT_S)
            return ToldDisks(disks=disks, told_ms=now_ms)
        except UnsupportedVersionError:  # it may also have died in this moment: then the next request fails
            pass
    plain = tuple(map(disk_of_kafka, (await client.describe_log_dirs([broker]))[broker]))
    turns.kafkas[broker] = now_ms + KAFKA_FOR_MS
    return ToldDisks(disks=DisksView(disks=plain, moves=()), told_ms=now_ms, is_kafka=True)


async def _reassignments(
    client: AdminClient, view: ClusterView, before: Snapshot | None
) -> Mapping[TopicPartition, ReassignmentView]:
    """What was under way before, where the controller does not tell."""
    if view.controller_id is not None:
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


async def _ask_min_isr(client: AdminClient, view: ClusterView, turns: Turns, now_ms: TimestampMs) -> None:
    for gone in turns.topics_asked.keys() - view.topics.keys():
        del turns.topics_asked[gone]
        turns.min_isr.pop(gone, None)
    asked = sorted(view.topics, key=lambda t: (turns.topics_asked.get(t, 0), t))[:TOPICS_A_LOOK]
    if asked:
        turns.min_isr |= await min_insync_replicas(client, asked)
        turns.topics_asked |= dict.fromkeys(asked, now_ms)
