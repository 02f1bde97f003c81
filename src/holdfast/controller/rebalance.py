"""Which replicas move so that every broker has its share again (R-08, R-09). Pure.

``minimal``: for n brokers that are even and m that are added, with R replicas in all, each new broker gets R/(n+m) of
them, rounded down or up, and nothing moves between the brokers that were there:

    brokers 1 2 3      p0 123   p1 231   p2 312   p3 132        4 each
    4 is added         p0 423   p1 234   p2 412   p3 132        3 each: three replicas move

It is a flow from brokers with too many replicas through partitions to brokers with too few: a partition gives each
replica at most once and takes each broker at most once. A first pass takes what it finds; paths that undo some of it
(Ford and Fulkerson) bring the rest. Then the lists are put into an order that makes the preferred leaders even, for
which nothing has to be copied. ``full`` places everything anew, as ``placement`` would for new topics.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from holdfast.controller.placement import Place, place
from holdfast.model.errors import InvalidReplicationFactorError
from holdfast.model.types import BrokerId, TopicPartition

Assignment = dict[TopicPartition, tuple[BrokerId, ...]]

_SPREAD = 0.6180339887498949
"""Multiples of it, without what is before the point, are evenly apart: replicas are taken from all topics alike."""


def minimal(now: Mapping[TopicPartition, Sequence[BrokerId]], brokers: Sequence[Place]) -> Assignment:
    """The partitions that change, and their new replicas. Every broker that is not among ``brokers`` gives all it has.

    Replicas per broker differ by 1 at most, unless racks forbid it: a partition never spans fewer of them than before.
    So do preferred leaders, unless partitions with one replica forbid it. InvalidReplicationFactorError when a
    partition has more replicas than there are brokers.
    """
    _refuse_too_few(now, brokers)
    spread = _Spread(now, brokers)
    spread.take_what_fits()
    if not spread.racks:
        spread.mend()
    spread.empty_the_others()
    return _changed(now, _even_leaders(spread.replicas(), {b.id for b in brokers}))


def full(now: Mapping[TopicPartition, Sequence[BrokerId]], brokers: Sequence[Place]) -> Assignment:
    """The partitions that change when all are placed anew. InvalidReplicationFactorError as of ``minimal``."""
    _refuse_too_few(now, brokers)
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(now):
        topics.setdefault(tp.topic, []).append(tp)
    wanted: Assignment = {}
    leads = 0
    for shift, partitions in enumerate(topics.values()):
        for tp in partitions:
            # One at a time: a partition keeps as many replicas as it has, whatever the others of its topic have.
            [wanted[tp]] = place(brokers, 1, len(now[tp]), start=leads, shift=shift)
            leads += 1
    return _changed(now, wanted)


def counts(replicas: Iterable[Sequence[BrokerId]]) -> tuple[Counter[BrokerId], Counter[BrokerId]]:
    """By broker: how many replicas it has, and of how many partitions it is the preferred leader."""
    held: Counter[BrokerId] = Counter()
    led: Counter[BrokerId] = Counter()
    for each in replicas:
        held.update(each)
        led[each[0]] += 1
    return held, led


def moved(now: Mapping[TopicPartition, Sequence[BrokerId]], wanted: Mapping[TopicPartition, Sequence[BrokerId]]) -> int:
    """How many replicas are copied to another broker."""
    return sum(len(set(after).difference(now[tp])) for tp, after in wanted.items())


def _refuse_too_few(now: Mapping[TopicPartition, Sequence[BrokerId]], brokers: Sequence[Place]) -> None:
    for tp, replicas in now.items():
        if len(replicas) > len(brokers):
            raise InvalidReplicationFactorError(
                f"{tp} has {len(replicas)} replicas, and there are {len(brokers)} brokers to hold them: expected at "
                f"least as many"
            )


def _changed(now: Mapping[TopicPartition, Sequence[BrokerId]], wanted: Assignment) -> Assignment:
    return {tp: replicas for tp, replicas in wanted.items() if tuple(now[tp]) != replicas}


class _Spread:
    """The flow: which brokers each partition loses, and which it gains."""

    def __init__(self, now: Mapping[TopicPartition, Sequence[BrokerId]], brokers: Sequence[Place]) -> None:
        self._now = {tp: tuple(now[tp]) for tp in sorted(now)}
        self._lost: dict[TopicPartition, list[BrokerId]] = {tp: [] for tp in self._now}
        self._gained: dict[TopicPartition, list[BrokerId]] = {tp: [] for tp in self._now}
        known = {b.id: b.rack for b in brokers}
        self.racks = known if None not in known.values() and len(set(known.values())) > 1 else {}
        """Empty: racks do not count."""
        held, _ = counts(self._now.values())
        base, extra = divmod(sum(held.values()), len(brokers))
        by_load = sorted((b.id for b in brokers), key=lambda b: (-held[b], b))
        self._share = share = {b: base + (at < extra) for at, b in enumerate(by_load)}
        self._over = {b: held[b] - share.get(b, 0) for b in {*held, *share} if held[b] > share.get(b, 0)}
        self._under = {b: share[b] - held[b] for b in by_load if held[b] < share[b]}

    def replicas(self) -> Assignment:
        """What comes of it: who gains a replica takes the place of one that was lost."""
        wanted: Assignment = {}
        for tp, before in self._now.items():
            instead = dict(zip(self._lost[tp], self._gained[tp], strict=True))
            wanted[tp] = tuple(instead.get(b, b) for b in before)
        return wanted

    def take_what_fits(self) -> None:
        """Once over all partitions for each broker that has too few."""
        order = [tp for _, tp in sorted((at * _SPREAD % 1, tp) for at, tp in enumerate(self._now))]
        for taker in sorted(self._under):
            for tp in order:
                if not self._under[taker]:
                    break
                if taker in self._now[tp] or taker in self._gained[tp]:
                    continue
                givers = [b for b in self._givers(tp) if self._rack_allows(tp, b, taker)]
                if givers:
                    self._move(tp, max(givers, key=lambda b: (self._over[b], -b)), taker)

    def _givers(self, tp: TopicPartition) -> list[BrokerId]:
        return [b for b in self._now[tp] if self._over.get(b, 0) > 0 and b not in self._lost[tp]]

    def _rack_allows(self, tp: TopicPartition, giver: BrokerId, taker: BrokerId) -> bool:
        if not self.racks or self.racks.get(giver) == self.racks[taker]:
            return True
        stay = [b for b in self._now[tp] if b != giver and b not in self._lost[tp]] + self._gained[tp]
        return self.racks[taker] not in {self.racks.get(b) for b in stay}

    def _move(self, tp: TopicPartition, giver: BrokerId, taker: BrokerId) -> None:
        self._lost[tp].append(giver)
        self._gained[tp].append(taker)
        self._over[giver] -= 1
        self._under[taker] -= 1

    def mend(self) -> None:
        """Paths over moves that are undone, as long as there is one from a broker with too many to one with too few."""
        while any(self._over.values()) and any(self._under.values()):
            path = self._path()
            if path is None:
                return
            self._follow(path)

    def empty_the_others(self) -> None:
        """What brokers that shall have nothing still have goes to whoever has least, though that is one too many."""
        held, _ = counts(self.replicas().values())
        for tp, before in self._now.items():
            for giver in (b for b in before if b not in self._share and b not in self._lost[tp]):
                others = [b for b in self._share if b not in before and b not in self._gained[tp]]
                allowed = [b for b in others if self._rack_allows(tp, giver, b)] or others
                taker = min(allowed, key=lambda b: (held[b], b))
                self._lost[tp].append(giver)
                self._gained[tp].append(taker)
                held[taker] += 1

    def _path(self) -> list[BrokerId | TopicPartition] | None:
        """Brokers and partitions by turns: broker > partition (gives), partition > broker (takes), and the same
        backwards where that undoes it."""
        came: dict[BrokerId | TopicPartition, BrokerId | TopicPartition | None] = {}
        waiting: deque[BrokerId | TopicPartition] = deque(sorted(b for b, left in self._over.items() if left))
        came.update(dict.fromkeys(waiting))
        where: dict[BrokerId, list[TopicPartition]] = {}
        for tp, replicas in self._now.items():
            for b in (*replicas, *self._gained[tp]):
                where.setdefault(b, []).append(tp)
        while waiting:
            node = waiting.popleft()
            for following in self._following(node, where):
                if following in came:
                    continue
                came[following] = node
                if not isinstance(following, TopicPartition) and self._under.get(following, 0) > 0:
                    return _back(came, following)
                waiting.append(following)
        return None

    def _following(
        self, node: BrokerId | TopicPartition, where: Mapping[BrokerId, Sequence[TopicPartition]]
    ) -> Iterable[BrokerId | TopicPartition]:
        if isinstance(node, TopicPartition):
            takes = (b for b in self._under if b not in self._now[node] and b not in self._gained[node])
            return (*takes, *self._lost[node])
        return (tp for tp in where.get(node, ()) if node in self._gained[tp] or self._can_lose(tp, node))

    def _can_lose(self, tp: TopicPartition, broker: BrokerId) -> bool:
        return broker in self._over and broker in self._now[tp] and broker not in self._lost[tp]

    def _follow(self, path: Sequence[BrokerId | TopicPartition]) -> None:
        self._over[path[0]] -= 1  # type: ignore[index]
        self._under[path[-1]] -= 1  # type: ignore[index]
        for one, other in pairwise(path):
            if isinstance(other, TopicPartition):
                assert not isinstance(one, TopicPartition)
                if one in self._gained[other]:
                    self._gained[other].remove(one)
                else:
                    self._lost[other].append(one)
            else:
                assert isinstance(one, TopicPartition)
                if other in self._lost[one]:
                    self._lost[one].remove(other)
                else:
                    self._gained[one].append(other)


def _back(
    came: Mapping[BrokerId | TopicPartition, BrokerId | TopicPartition | None], end: BrokerId
) -> list[BrokerId | TopicPartition]:
    path: list[BrokerId | TopicPartition] = [end]
    while (before := came[path[-1]]) is not None:
        path.append(before)
    return path[::-1]


def _even_leaders(wanted: Assignment, brokers: set[BrokerId]) -> Assignment:
    """The same replicas in an order that gives each broker its share of preferred leaders, as far as that goes."""
    wanted = dict(wanted)
    led: dict[BrokerId, dict[BrokerId, list[TopicPartition]]] = {b: {} for b in brokers}
    """By leader and by who could lead instead."""
    count = Counter(dict.fromkeys(brokers, 0))
    for tp, replicas in wanted.items():
        count[replicas[0]] += 1
        for b in replicas[1:]:
            led[replicas[0]].setdefault(b, []).append(tp)
    while True:
        chain = next(
            filter(None, (_chain(led, wanted, count, b) for b in sorted(count, key=lambda b: -count[b]))), None
        )
        if chain is None:
            return wanted
        for leader, heir, tp in chain:
            replicas = wanted[tp]
            at = replicas.index(heir)
            wanted[tp] = (heir, *replicas[1:at], leader, *replicas[at + 1 :])
            for b in wanted[tp][1:]:
                led[heir].setdefault(b, []).append(tp)
        count[chain[0][0]] -= 1
        count[chain[-1][1]] += 1


def _chain(
    led: Mapping[BrokerId, Mapping[BrokerId, list[TopicPartition]]],
    wanted: Mapping[TopicPartition, Sequence[BrokerId]],
    count: Mapping[BrokerId, int],
    start: BrokerId,
) -> list[tuple[BrokerId, BrokerId, TopicPartition]] | None:
    """(leader, who leads instead, partition), each handing on, to a broker that leads at least two fewer."""
    came: dict[BrokerId, tuple[BrokerId, TopicPartition] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        leader = waiting.popleft()
        for heir, partitions in sorted(led[leader].items()):
            while partitions and (wanted[partitions[-1]][0] != leader or heir not in wanted[partitions[-1]]):
                partitions.pop()  # it is led by another by now
            if not partitions or heir in came:
                continue
            came[heir] = (leader, partitions[-1])
            if count[heir] <= count[start] - 2:
                chain: list[tuple[BrokerId, BrokerId, TopicPartition]] = []
                at = heir
                while (step := came[at]) is not None:
                    chain.append((step[0], at, step[1]))
                    at = step[0]
                return chain[::-1]
            waiting.append(heir)
    return None
