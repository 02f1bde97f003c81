"""Random events against the controller: what must hold of every image, whatever happens in whatever order.

The ISR is a subset of the replicas; the leader is in it and alive; epochs never go back, and no two leaders share
one; a replay of the log's bytes gives the image; a snapshot gives it too; brokers that are told what changed know what
the full state says.

A ledger beside it knows which replicas have everything that was committed (``whole``): who leads is one of them, unless
somebody allowed an unclean election or no such replica is left (H-07, H-26).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.controller import broadcast, events
from holdfast.controller.controller import Controller
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import PartitionChangeRecord, RecoveryState
from holdfast.metadata.store import Candidate, InMemoryStore, SharedMemory
from holdfast.model.errors import HoldfastError
from holdfast.model.fates import LogEnd, ReplicaFate, ReplicaFates
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition

BROKERS = st.integers(1, 4)
TOPICS = st.sampled_from(("a", "b", "c"))
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 3))
FATES = tuple(ReplicaFate)
SETTINGS = ControllerSettings(session_timeout_ms=9_000, rebalance_interval_ms=30_000)

Known = dict[tuple[UUID, int], tuple[int, int, tuple[int, ...]]]


class ControllerMachine(RuleBasedStateMachine):
    """A cluster of up to four brokers and three topic names."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = SharedMemory()
        self.now_ms = 0
        self.incarnation = 0
        self.leaders: dict[tuple[UUID, int, int], int | None] = {}
        self.epochs: dict[tuple[UUID, int], tuple[int, int]] = {}
        self.known: dict[int, Known] = {}
        self.whole: dict[tuple[UUID, int], set[int]] = {}
        self.unclean_allowed = False

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.reign()
        for broker in (1, 2, 3):
            self.a_broker_starts_and_lives(broker)
        self.handle(events.CreateTopics(topics=(events.TopicToCreate(name="a", partitions=3, replication_factor=3),)))

    def reign(self) -> None:
        self.store = InMemoryStore(self.shared)
        self.claim = self.store.claim(Candidate(broker_id=1, host="h", port=1))
        loaded = self.store.load(self.claim)
        image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
        self.controller = Controller(image, SETTINGS, self.rng)
        self.controller.begin(self.now_ms)
        self.heard_of: set[int] = set()
        self.came_in: dict[tuple[UUID, int], set[int]] = {}
        """Who has come into an ISR in this reign."""
        self.known = {}
        for broker in image.brokers:
            self.tell_all(broker)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def handle(self, event: Any) -> Any:
        before = self.image
        decision = self.controller.handle(event, self.now_ms)
        assert self.image is before, "handle must not change the image"
        if decision.records:
            base = self.store.commit(decision.records, self.claim.epoch)
            assert base == self.image.next_offset
            delta = self.controller.replay(decision.records, base)
            for record in decision.records:
                if isinstance(record, PartitionChangeRecord) and record.recovery_state is RecoveryState.RECOVERING:
                    self.somebody_recovers(record)
            self.leaders_commit()
            plan = broadcast.plan(self.image, delta, offline=self.controller.offline_replicas())
            for broker, requests in broadcast.build_requests(self.image, plan, 1, self.claim.epoch).items():
                self.told(broker, requests)
            for broker in delta.changed_brokers:
                registered, old = self.image.brokers.get(broker), before.brokers.get(broker)
                if registered is None:
                    self.known.pop(broker, None)
                elif old is None or old.epoch != registered.epoch:
                    self.tell_all(broker)
        for broker in decision.resend_to:
            self.tell_all(broker)
        return decision.reply

    def leaders_commit(self) -> None:
        """Every leader that may commit does so at once, so that nobody has everything by chance."""
        for topic in self.image.sorted_topics():
            min_isr = int(self.image.topic_configs(topic.name).get("min.insync.replicas", "1"))
            for number, p in topic.numbered():
                if p.leader is not None and not p.elr and len(p.isr) >= min(min_isr, len(p.replicas)):
                    self.whole[topic.topic_id, number] = set(p.isr)

    def somebody_recovers(self, record: PartitionChangeRecord) -> None:
        """What the leader has is all there is from now on."""
        key = (record.topic_id, record.partition)
        configs = self.image.topic_configs(self.image.topic_names[record.topic_id])
        allowed = self.unclean_allowed or configs.get("unclean.leader.election.enable") == "true"
        assert allowed or not self.whole[key], f"{self.whole[key]} have everything"
        assert isinstance(record.leader, int)
        self.whole[key] = {record.leader}

    def tell_all(self, broker: int) -> None:
        self.known[broker] = {}
        self.told(
            broker,
            broadcast.full_state_requests(self.image, broker, self.controller.offline_replicas(), 1, self.claim.epoch),
        )

    def told(self, broker: int, requests: Sequence[Any]) -> None:
        """What a broker that believes all it is told knows of its own replicas."""
        known = self.known.setdefault(broker, {})
        for request in requests:
            kind = type(request).__name__
            for topic in request.topic_states if kind != "UpdateMetadataRequest" else ():
                for p in topic.partition_states:
                    key = (topic.topic_id, p.partition_index)
                    if kind == "StopReplicaRequest":
                        known.pop(key, None)
                    else:
                        old = known.get(key)
                        assert old is None or p.leader_epoch >= old[1]
                        known[key] = (p.leader, p.leader_epoch, p.isr)

    # -- what happens ------------------------------------------------------------------------------------------

    @rule(broker=BROKERS)
    def a_broker_starts(self, broker: int) -> None:
        self.incarnation += 1
        reply = self.handle(
            events.BrokerRegister(
                broker_id=broker,
                incarnation_id=UUID(int=self.incarnation),
                endpoints=Endpoints.one(f"h{broker}", broker),
            )
        )
        assert reply.broker_epoch == self.image.brokers[broker].epoch == self.image.offset

    @rule(broker=BROKERS)
    def a_broker_starts_and_lives(self, broker: int) -> None:
        self.a_broker_starts(broker)
        self.a_broker_heartbeats(broker, "")
        assert self.image.brokers[broker].may_lead

    @rule(broker=BROKERS, rest=st.sampled_from(FATES), others=st.dictionaries(PARTITIONS, st.sampled_from(FATES)))
    def a_broker_comes_back(self, broker: int, rest: ReplicaFate, others: dict[TopicPartition, ReplicaFate]) -> None:
        self.incarnation += 1
        fates = ReplicaFates(rest=rest, others=others)
        for topic in self.image.sorted_topics():
            for number, _ in topic.numbered():
                if fates.of(TopicPartition(topic.name, number)) in (ReplicaFate.DAMAGED, ReplicaFate.LOST):
                    self.whole[topic.topic_id, number].discard(broker)
        self.handle(
            events.BrokerRegister(
                broker_id=broker,
                incarnation_id=UUID(int=self.incarnation),
                endpoints=Endpoints.one(f"h{broker}", broker),
                fates=fates,
            )
        )
        self.a_broker_heartbeats(broker, "")

    def live(self) -> set[int]:
        return {broker.id for broker in self.image.brokers.values() if broker.may_lead}

    @rule(brokers=st.sets(BROKERS, min_size=1), longest=BROKERS)
    def brokers_tell_how_far_their_logs_go(self, brokers: set[int], longest: int) -> None:
        for broker in sorted(brokers):
            before = {
                TopicPartition(topic.name, number): p
                for topic in self.image.sorted_topics()
                for number, p in topic.numbered()
                if p.leader is None and broker in p.replicas
            }
            end = LogEnd(1 if broker == longest else 0, 7)
            told = tuple((where, p.leader_epoch, end) for where, p in before.items())
            self.handle(events.ReplicaEnds(broker_id=broker, ends=told))
            for where, p in before.items():
                after = self.image.partition(*where)
                assert after is not None
                unclean = self.image.topic_configs(where.topic).get("unclean.leader.election.enable") == "true"
                if after.leader is not None and not (unclean or p.isr or p.elr):
                    assert set(p.last_known_elr) <= self.live(), "one that is not back was not waited for"

    @rule(topic=TOPICS, value=st.sampled_from(("1", "2", "3", None)))
    def min_insync_replicas_is_configured(self, topic: str, value: str | None) -> None:
        change = events.ConfigChange(resource_type=2, resource_name=topic, values=(("min.insync.replicas", value),))
        self.handle(events.AlterConfigs(changes=(change,)))

    @rule(broker=BROKERS, kind=st.sampled_from(("", "", "", "fence", "shutdown", "disk")))
    def a_broker_heartbeats(self, broker: int, kind: str) -> None:
        registered = self.image.brokers.get(broker)
        reply = self.handle(
            events.BrokerHeartbeat(
                broker_id=broker,
                broker_epoch=0 if registered is None else registered.epoch,
                want_fence=kind == "fence",
                want_shutdown=kind == "shutdown",
                offline_dirs=(UUID(int=5),) if kind == "disk" else (),
            )
        )
        assert isinstance(reply, HoldfastError) == (registered is None)
        if registered is not None:
            self.heard_of.add(broker)
            assert reply.is_fenced == self.image.brokers[broker].fenced

    @rule(broker=BROKERS, refused=st.booleans())
    def a_connection_closes(self, broker: int, refused: bool) -> None:
        registered = self.image.brokers.get(broker)
        if registered is not None:
            self.handle(events.BrokerConnectionLost(broker_id=broker, broker_epoch=registered.epoch, refused=refused))
            assert not refused or self.image.brokers[broker].fenced

    @rule(broker=BROKERS, topic=TOPICS, numbers=st.sets(st.integers(0, 3), min_size=1))
    def replicas_go_offline(self, broker: int, topic: str, numbers: set[int]) -> None:
        lost = tuple(TopicPartition(topic, number) for number in sorted(numbers))
        self.handle(events.ReplicasOffline(broker_id=broker, partitions=lost))
        for where in lost:
            p = self.image.partition(*where)
            assert p is None or p.leader != broker

    @rule(broker=BROKERS)
    def a_broker_is_forgotten(self, broker: int) -> None:
        """One that was stopped; a live one is refused and stays (K1066-16)."""
        registered = self.image.brokers.get(broker)
        self.handle(events.UnregisterBroker(broker_id=broker))
        assert (broker in self.image.brokers) == (registered is not None and not registered.fenced)

    @rule(
        topic=TOPICS,
        n=st.integers(1, 4),
        rf=st.integers(1, 4),
        unclean=st.booleans(),
        validate_only=st.booleans(),
    )
    def a_topic_is_created(self, topic: str, n: int, rf: int, unclean: bool, validate_only: bool) -> None:
        configs = (("unclean.leader.election.enable", "true"),) if unclean else ()
        new = events.TopicToCreate(name=topic, partitions=n, replication_factor=rf, configs=configs)
        before = self.image
        reply = self.handle(events.CreateTopics(topics=(new,), validate_only=validate_only))
        created = reply.topics[0].error is None and not validate_only
        assert created == (topic in self.image.topics and topic not in before.topics)

    @rule(topic=TOPICS, n=st.integers(1, 6))
    def a_topic_grows(self, topic: str, n: int) -> None:
        self.handle(events.CreatePartitions(topics=(events.MorePartitions(name=topic, count=n),)))

    @rule(topic=TOPICS)
    def a_topic_is_deleted(self, topic: str) -> None:
        self.handle(events.DeleteTopics(topics=((topic, None),)))
        assert topic not in self.image.topics

    @rule(topic=TOPICS, number=st.integers(0, 3), members=st.sets(BROKERS, min_size=1), stale=st.booleans())
    def a_leader_proposes_an_isr(self, topic: str, number: int, members: set[int], stale: bool) -> None:
        image, p = self.image.topics.get(topic), self.image.partition(topic, number)
        if image is None or p is None or p.leader is None:
            return
        leader = self.image.brokers[p.leader]
        isr = tuple(b for b in p.replicas if b in members or b == p.leader)
        reply = self.handle(
            events.AlterPartition(
                broker_id=leader.id,
                broker_epoch=leader.epoch,
                partitions=(
                    events.AlterPartitionState(
                        topic_id=image.topic_id,
                        partition=number,
                        leader_epoch=p.leader_epoch,
                        partition_epoch=p.partition_epoch - stale,
                        isr=tuple((member, None) for member in isr),
                    ),
                ),
            )
        )
        result = reply.partitions[0]
        after = self.image.partition(topic, number)
        assert after is not None
        if result.error is None:
            assert not stale
            assert after.isr == result.isr == isr
            assert after.partition_epoch == result.partition_epoch
            self.whole[image.topic_id, number].update(set(isr) - set(p.isr))  # they have caught up
            self.came_in.setdefault((image.topic_id, number), set()).update(set(isr) - set(p.isr))
        else:
            assert after == p

    @rule(unclean=st.booleans())
    def leaders_are_elected(self, unclean: bool) -> None:
        self.unclean_allowed = unclean
        self.handle(events.ElectLeaders(unclean=unclean))
        self.unclean_allowed = False

    @rule(topic=TOPICS, value=st.sampled_from(("true", "false", None)))
    def unclean_election_is_configured(self, topic: str, value: str | None) -> None:
        change = events.ConfigChange(
            resource_type=2, resource_name=topic, values=(("unclean.leader.election.enable", value),)
        )
        self.handle(events.AlterConfigs(changes=(change,)))

    @rule(ms=st.integers(1, 12_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        for _ in range(20):
            due = self.controller.due(self.now_ms)
            if not due:
                break
            for event in due:
                self.handle(event)
        else:
            raise AssertionError("what is due never ends")
        deadline_ms = self.controller.next_deadline_ms()
        assert deadline_ms is not None
        assert deadline_ms > self.now_ms

    @rule()
    def the_controller_changes(self) -> None:
        self.reign()

    # -- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def partitions_are_sound(self) -> None:
        if not hasattr(self, "store"):
            return
        for topic in self.image.sorted_topics():
            assert self.image.topic_names[topic.topic_id] == topic.name
            for number, p in topic.numbered():
                assert len({*p.isr, *p.elr}) == len(p.isr) + len(p.elr)
                assert {*p.isr, *p.elr, *p.last_known_elr} <= set(p.replicas)
                whole = self.whole.setdefault((topic.topic_id, number), set(p.isr))
                assert {*p.isr, *p.elr} <= whole
                if p.leader is not None:
                    assert p.leader in p.isr
                    assert self.image.brokers[p.leader].may_lead
                    offline = self.controller.offline_replicas()
                    assert not offline.holds(p.leader, topic.topic_id, number)
                    live = {m for m in p.isr if m in self.image.brokers and self.image.brokers[m].may_lead}
                    on_disk = {m for m in live if not offline.holds(m, topic.topic_id, number)}
                    # Else whether the others left may be open until the next sign of life of one of them.
                    if self.heard_of & on_disk - self.came_in.get((topic.topic_id, number), set()):
                        assert all(self.image.brokers[member].may_lead for member in p.isr)
                key = (topic.topic_id, number)
                epochs = (p.leader_epoch, p.partition_epoch)
                old = self.epochs.get(key, (0, 0))
                assert epochs[0] >= old[0]
                assert epochs[1] >= old[1]
                self.epochs[key] = epochs
                assert self.leaders.setdefault((*key, p.leader_epoch), p.leader) == p.leader

    @invariant()
    def a_replay_of_the_bytes_gives_the_image(self) -> None:
        if not hasattr(self, "store"):
            return
        log = [decode_record(encode_record(record)) for record in self.shared.log]
        again, _ = ClusterImage.empty("c").apply(log, 0)
        assert again == self.image
        snapshot = list(self.image.to_records())
        restored, _ = ClusterImage.empty("c").apply(snapshot, self.image.next_offset - len(snapshot))
        assert restored == self.image

    @invariant()
    def brokers_know_their_replicas(self) -> None:
        if not hasattr(self, "store"):
            return
        for broker, known in self.known.items():
            expected = {
                (topic.topic_id, number): (-1 if p.leader is None else p.leader, p.leader_epoch, p.isr)
                for topic in self.image.sorted_topics()
                for number, p in topic.numbered()
                if broker in p.replicas
            }
            assert known == expected


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
