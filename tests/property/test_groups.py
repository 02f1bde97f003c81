"""Groups under hypothesis: members come, beat, sync, leave and die, commits and broker failures in between.

Held after every step: at most one leader; generations only grow; a stable group's members have the assignment
that its leader gave them; a committed offset is the last one acknowledged; nobody is answered twice; and what
another coordinator reads from the log is what this one knows.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.groups.states import GroupState
from holdfast.model.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from holdfast.model.types import TopicPartition

_PATH = Path(__file__).parents[1] / "unit" / "groups" / "conftest.py"
_spec = importlib.util.spec_from_file_location("groups_world", _PATH)
assert _spec is not None and _spec.loader is not None
harness: Any = importlib.util.module_from_spec(_spec)
sys.modules["groups_world"] = harness
_spec.loader.exec_module(harness)

STRATEGIES = ({"range": b"r"}, {"range": b"R", "sticky": b"s"}, {"sticky": b"S", "range": b"r"})
PARTITIONS = [TopicPartition("t", i) for i in range(3)]


class Client:
    """One consumer: what it was told last."""

    def __init__(self, instance_id: str | None, strategies: dict[str, bytes]) -> None:
        self.instance_id = instance_id
        self.strategies = strategies
        self.member_id: str | None = None
        self.generation: int | None = None
        self.joining: Any = None
        self.syncing: Any = None


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = harness.World(initial_rebalance_delay_ms=1_000, max_size=4)
        self.clients: list[Client] = []
        self.instances = 0
        self.generation = 0
        self.acked: dict[TopicPartition, int] = {}
        self.offset = 0
        self.commits: list[tuple[TopicPartition, int, Any]] = []
        self.given: dict[tuple[int, str], bytes] = {}

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    @precondition(lambda self: len(self.clients) < 6)
    @rule(static=st.booleans(), strategies=st.sampled_from(STRATEGIES))
    def appear(self, static: bool, strategies: dict[str, bytes]) -> None:
        self.instances += 1
        self.clients.append(Client(f"i{self.instances}" if static else None, strategies))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5), version=st.sampled_from((3, 9)))
    def join(self, number: int, version: int) -> None:
        client = self.pick(number)
        client.joining = self.world.join(
            client.member_id,
            instance_id=client.instance_id,
            strategies=client.strategies,
            version=version,
            session_timeout_ms=8_000,
            rebalance_timeout_ms=12_000,
        )
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def restart(self, number: int) -> None:
        client = self.pick(number)
        client.member_id = client.generation = client.joining = client.syncing = None

    @precondition(lambda self: any(c.generation is not None for c in self.clients))
    @rule(number=st.integers(0, 5))
    def sync(self, number: int) -> None:
        self.sync_one([c for c in self.clients if c.generation is not None][number % self.joined])

    @property
    def joined(self) -> int:
        return sum(c.generation is not None for c in self.clients)

    def sync_one(self, client: Client) -> None:
        assert client.generation is not None
        group = self.world.group()
        members = () if group is None else tuple(group.members)
        assignments = {m: f"{client.generation}:{m}".encode() for m in members}
        client.syncing = self.world.sync(
            client.member_id, client.generation, assignments, instance_id=client.instance_id
        )
        self.hear()

    @precondition(lambda self: self.clients)
    @rule()
    def settle(self) -> None:
        """Everybody does what a good client does."""
        for client in self.clients:
            if client.joining is None:
                self.join(self.clients.index(client), 9)
            if client.generation is None and client.joining is None and client.member_id is not None:
                self.join(self.clients.index(client), 9)
        self.pass_time(3_000)
        for client in self.clients:
            if client.generation is not None:
                self.sync_one(client)

    @precondition(lambda self: self.joined)
    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        client = [c for c in self.clients if c.generation is not None][number % self.joined]
        self.world.leave(client.member_id, instance_id=client.instance_id)
        self.clients.remove(client)
        self.hear()

    @precondition(lambda self: self.joined)
    @rule()
    def beat(self) -> None:
        for client in self.clients:
            if client.generation is not None:
                self.world.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)

    @rule(duration_ms=st.sampled_from((10, 500, 1_000, 4_000, 9_000, 13_000)))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_ms(duration_ms)
        self.hear()

    @rule(tp=st.sampled_from(PARTITIONS), number=st.integers(0, 5), simple=st.booleans())
    def commit(self, tp: TopicPartition, number: int, simple: bool) -> None:
        self.offset += 1
        who: dict[str, Any] = {}
        if self.joined and not simple:
            client = [c for c in self.clients if c.generation is not None][number % self.joined]
            who = {
                "member_id": client.member_id,
                "instance_id": client.instance_id,
                "generation": client.generation,
            }
        self.commits.append((tp, self.offset, self.world.commit(self.offset, tp=tp, **who)))
        self.hear()

    @rule()
    def hold_writes(self) -> None:
        self.world.log.hold()

    @rule()
    def release_writes(self) -> None:
        self.world.log.complete()
        self.hear()

    @precondition(lambda self: self.world.log.held)
    @rule(kept=st.booleans())
    def fail_a_write(self, kept: bool) -> None:
        log = self.world.log
        log.fail_with = NotEnoughReplicasAfterAppendError() if kept else NotEnoughReplicasError()
        log.keep_failed = kept
        log.complete(1)
        log.fail_with = None
        self.hear(failed=kept)

    @rule()
    def fail_over(self) -> None:
        """Another broker takes over; writes under way did not reach it."""
        self.world.log.fail_with, self.world.log.keep_failed = NotEnoughReplicasError(), False
        self.world.coordinator.on_resigned(self.world.partition("g"))
        self.world.log.complete()
        self.world.log.fail_with = None
        self.hear()
        assert not any(c.joining is not None or c.syncing is not None for c in self.clients)
        self.world = self.world.again(initial_rebalance_delay_ms=1_000, max_size=4)
        group = self.world.group()
        self.generation = 0 if group is None else group.generation

    @rule()
    def delete_group(self) -> None:
        answers: list[Any] = []
        self.world.log.complete()
        self.hear()
        self.world.coordinator.delete_group("g", self.world.now_ms, answers.append)
        if answers == [None]:
            self.acked.clear()
            self.generation = 0
            assert self.world.group() is None

    def hear(self, *, failed: bool = False) -> None:
        """Everybody reads what has come for it."""
        for client in self.clients:
            if client.joining is not None and client.joining.came:
                result, client.joining = client.joining.value, None
                client.member_id = result.member_id or None
                client.generation = result.generation
                assert (result.error is None) == (result.generation is not None)
                if result.members:
                    assert result.leader == result.member_id
            if client.syncing is not None and client.syncing.came:
                result, client.syncing = client.syncing.value, None
                if result.error is None and result.assignment:
                    assert client.generation is not None
                    self.given[client.generation, str(client.member_id)] = result.assignment
        for tp, offset, answer in [c for c in self.commits if c[2].came]:
            self.commits.remove((tp, offset, answer))
            # Without enough replicas it is in the log all the same, and what is in the log counts.
            if answer.value[tp] is None or failed:
                self.acked[tp] = offset

    @invariant()
    def one_leader(self) -> None:
        group = self.world.group()
        if group is None:
            return
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group.generation >= self.generation
        self.generation = group.generation
        assert len(group.members) <= 4 or group.state is GroupState.PREPARING_REBALANCE
        for member in group.members.values():
            assert member.join_reply is None or member.sync_reply is None
        if group.state in (GroupState.STABLE, GroupState.EMPTY):
            assert all(m.join_reply is None or m.instance_id is not None for m in group.members.values())

    @invariant()
    def stable_members_are_assigned(self) -> None:
        group = self.world.group()
        if group is not None and group.state is GroupState.STABLE:
            assert group.members
            assert group.protocol_name in ("range", "sticky")
            for member in group.members.values():
                if not member.is_static:
                    assert member.assignment == f"{group.generation}:{member.member_id}".encode()

    @invariant()
    def commits_count(self) -> None:
        for tp in PARTITIONS:
            assert self.world.committed(tp) == self.acked.get(tp)

    @invariant()
    def the_log_says_the_same(self) -> None:
        group = self.world.group()
        if self.world.log.held or group is None:
            return
        loaded = self.world.again().group()
        assert loaded is None or loaded.offsets == group.offsets
        if group.state is GroupState.STABLE:
            assert loaded.state is GroupState.STABLE
            assert (loaded.generation, loaded.leader) == (group.generation, group.leader)
            assert (loaded.protocol_type, loaded.protocol_name) == (group.protocol_type, group.protocol_name)
            assert loaded.static_members == group.static_members
            assert {m: v.assignment for m, v in loaded.members.items()} == {
                m: v.assignment for m, v in group.members.items()
            }


Groups.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
