"""A consumer group under faults: members that join, commit and come and go, and the judge of what they are told.

The members are Holdfast's own client (client/group_member.py) on the simulated network; coordinators are those of the
simulated brokers, loading of ``__consumer_offsets`` included. They fetch no records: what they commit are numbers.

The judge holds a partition's committed offset for one register: what is read was committed, and nothing that was
acknowledged before the reading began came after it. A commit without an acknowledgement may land at any time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.client.admin import AdminClient
from holdfast.client.group_member import NOT_IN_GROUP, ConsumerGroupMember
from holdfast.client.group_translate import offset_commit_request, raise_commit_errors
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import NotCoordinatorError, RebalanceInProgressError
from holdfast.model.types import TopicPartition
from tests.simulation.watch import Violation

GROUP = "readers"
SESSION_MS, REBALANCE_MS = 6_000, 10_000
COMMIT_S = 5.0
AWAY_S = (1.0, 15.0)
SERVED_S = 90.0
"""Virtual seconds after the last fault in which every member has its share and can commit."""


@dataclass(slots=True)
class Commit:
    """One commit of one partition. Without ``acked_s`` nobody knows whether it was taken, or will be."""

    offset: int
    sent_s: float
    acked_s: float | None = None


@dataclass(slots=True)
class Register:
    """The commits of one partition, in the order in which they were sent."""

    name: str
    commits: list[Commit] = field(default_factory=list)

    def read(self, offset: int | None, asked_s: float) -> None:
        """Somebody asked at ``asked_s`` and was told ``offset``; None: there is none."""
        old = [c for c in self.commits if c.acked_s is not None and c.acked_s < asked_s]
        if offset is None:
            if old:
                raise Violation(f"{self.name}: committed {old[-1].offset}, and the group has no offset")
            return
        last_sent_s = max((c.sent_s for c in old), default=0.0)
        found = [c for c in self.commits if c.offset == offset]
        if not found:
            raise Violation(f"{self.name}: the group is at {offset}, which nobody has committed")
        if all(c.acked_s is not None and c.acked_s < last_sent_s for c in found):
            newer = max(old, key=lambda c: c.sent_s)
            raise Violation(f"{self.name}: the group is back at {offset}, after {newer.offset} was committed")


class GroupJudge:
    """What members were told, and what it says of the group."""

    def __init__(self) -> None:
        self.registers: dict[TopicPartition, Register] = {}
        self._owners: dict[tuple[int, TopicPartition], str] = {}

    def register(self, tp: TopicPartition) -> Register:
        return self.registers.setdefault(tp, Register(f"{GROUP}, {tp}"))

    def owns(self, generation: int, member: str, assignment: Sequence[TopicPartition]) -> None:
        """A member was told its share."""
        for tp in assignment:
            owner = self._owners.setdefault((generation, tp), member)
            if owner != member:
                raise Violation(f"{tp} belongs to {owner} and to {member} in generation {generation}")

    def found(self, tps: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int], asked_s: float) -> None:
        """A member asked where to begin."""
        for tp in tps:
            self.register(tp).read(offsets.get(tp), asked_s)


class SimMember(ConsumerGroupMember):
    """A member that can go without a word, and that commits just once."""

    @property
    def who(self) -> tuple[int, str]:
        """Generation and member id."""
        return self._generation, self._member_id

    async def commit_once(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A second try of an old commit could come after a newer one: there is none."""
        request = offset_commit_request(self.group_id, *self.who, offsets)
        try:
            raise_commit_errors(await self._ask(request, timeout_s=COMMIT_S))
        except NotCoordinatorError:
            self._coordinator = None
            raise
        except (RebalanceInProgressError, *NOT_IN_GROUP):
            self.needs_join = True
            raise

    async def vanish(self) -> None:
        """As after kill -9."""
        await self._stop_heart()
        self._client.close()


class GroupLoad:
    """The members of one group, in one process. ``topics`` are read by all of them."""

    def __init__(self, bootstrap: str, topics: Sequence[str], rng: random.Random, clock: Callable[[], float]) -> None:
        self.judge = GroupJudge()
        self.stopping = False
        """Nobody leaves any more: the group shall settle."""
        self._bootstrap = bootstrap
        self.topics = topics
        self._rng = rng
        self._clock = clock
        self._served: dict[str, dict[TopicPartition, float]] = {}
        """Member -> its partitions -> when the last commit was acknowledged."""

    def member(self, name: str) -> SimMember:
        return SimMember(
            self._bootstrap, GROUP, self.topics, client_id=name,
            session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
        )  # fmt: skip

    async def run(self, name: str) -> None:
        """One member: joins, commits, leaves now and then, or is gone without a word, and comes back."""
        rng = random.Random(self._rng.getrandbits(64))
        while True:
            member = self.member(name)
            until_s = self._clock() + rng.uniform(10.0, 60.0)
            self._served.pop(name, None)
            while self.stopping or self._clock() < until_s:
                try:
                    await self._serve(member, name, rng, until_s)
                except HoldfastError:
                    await asyncio.sleep(0.2)
            self._served.pop(name, None)
            if rng.random() < 0.5:
                await member.leave()
            else:
                await member.vanish()
            await asyncio.sleep(rng.uniform(*AWAY_S))

    async def _serve(self, member: SimMember, name: str, rng: random.Random, until_s: float) -> None:
        """From a join until the next one is due."""
        if member.needs_join:
            self._served.pop(name, None)
            await member.join()
            self.judge.owns(*member.who, member.assignment)
        asked_s = self._clock()
        at = dict(await member.committed())
        self.judge.found(member.assignment, at, asked_s)
        served = self._served[name] = dict.fromkeys(member.assignment, 0.0)
        while not member.needs_join and (self.stopping or self._clock() < until_s):
            await asyncio.sleep(rng.uniform(0.1, 3.0))
            if not served or member.needs_join:
                continue
            tp = rng.choice(list(served))
            at[tp] = at.get(tp, 0) + rng.randint(1, 5)
            await self._commit(member, tp, at[tp])
            served[tp] = self._clock()

    async def _commit(self, member: SimMember, tp: TopicPartition, offset: int) -> None:
        commit = Commit(offset, self._clock())
        self.judge.register(tp).commits.append(commit)
        await member.commit_once({tp: offset})
        commit.acked_s = self._clock()

    # -- the end -----------------------------------------------------------------------------------------------

    async def settle(self, members: int, tps: Sequence[TopicPartition]) -> None:
        """Every partition has one owner that commits, soon; and nothing committed is gone."""
        healed_s = self._clock()
        while (why := self._why_not_served(members, tps, healed_s)) is not None:
            if self._clock() > healed_s + SERVED_S:
                raise Violation(f"{SERVED_S:.0f} s after the last fault: {why}")
            await asyncio.sleep(0.5)
        client = AdminClient(self._bootstrap, client_id="onlooker", timeout_s=30.0)
        asked_s = self._clock()
        self.judge.found(tps, {tp: at.offset for tp, at in (await client.committed(GROUP, tps)).items()}, asked_s)
        client.close()

    def _why_not_served(self, members: int, tps: Sequence[TopicPartition], since_s: float) -> str | None:
        if len(self._served) < members:
            return f"only {sorted(self._served)} are in the group {GROUP}"
        shares = [tp for share in self._served.values() for tp in share]
        if sorted(shares) != sorted(tps):
            return f"the group {GROUP} reads {sorted(shares)} and not {sorted(tps)}"
        idle = [tp for share in self._served.values() for tp, last_s in share.items() if last_s < since_s]
        return f"no offset of {idle} could be committed" if idle else None
