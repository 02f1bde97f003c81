"""What brokers are told: by the codec's own bytes, shared parts, work that grows with the change only."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.metadata_cache import MetadataCache
from holdfast.controller import broadcast, events
from holdfast.controller.controller import Controller
from holdfast.controller.feature_events import FeatureUpdate, UpdateFeatures, UpgradeType
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.metadata.records import NoOpRecord, PartitionChangeRecord, RecoveryState
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import InvalidRequestError
from holdfast.model.features import TRANSACTION_VERSION
from holdfast.model.listeners import Endpoints
from holdfast.protocol.framing import decode_request, encode_body
from holdfast.protocol.interbroker import DELETED_LEADER, TYPE_FULL


class Cluster:
    def __init__(self, brokers: int = 3) -> None:
        self.controller = Controller(ClusterImage.empty("c"), ControllerSettings(), random.Random(7))
        for broker in range(1, brokers + 1):
            reply, _ = self.ask(
                events.BrokerRegister(
                    broker_id=broker,
                    incarnation_id=UUID(int=broker),
                    endpoints=Endpoints.one(f"host-{broker}", 9000 + broker),
                    rack=f"rack-{broker}",
                )
            )
            self.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=reply.broker_epoch))

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def ask(self, event: Any) -> tuple[Any, ClusterDelta]:
        decision = self.controller.handle(event, 0)
        return decision.reply, self.controller.replay(decision.records, self.image.next_offset)

    def create(self, name: str, *assignments: tuple[int, ...], **configs: str) -> ClusterDelta:
        topic = events.TopicToCreate(
            name=name, assignments=tuple(enumerate(assignments)), configs=tuple(configs.items())
        )
        reply, delta = self.ask(events.CreateTopics(topics=(topic,)))
        assert reply.topics[0].error is None
        return delta

    def told(self, delta: ClusterDelta) -> dict[int, list[Any]]:
        plan = broadcast.plan(self.image, delta, offline=self.controller.offline_replicas())
        return broadcast.build_requests(self.image, plan, 1, 5)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def through_bytes(request: Any) -> Any:
    return decode_request(int(request.__api_key__), int(request.__version__), encode_body(request))


def test_requests_are_what_the_codec_reads(cluster: Cluster) -> None:
    epoch = cluster.image.brokers[3].epoch
    deltas = [
        cluster.create("t", (1, 2), (2, 3), **{"retention.ms": "5"}),
        cluster.ask(events.AlterConfigs(changes=(events.ConfigChange(
            resource_type=4, resource_name="2", values=(("log.retention.ms", "7"),)),)))[1],
        cluster.ask(events.BrokerConnectionLost(broker_id=3, broker_epoch=epoch, refused=True))[1],
    ]  # fmt: skip
    requests = [request for delta in deltas for told in cluster.told(delta).values() for request in told]
    requests += broadcast.full_state_requests(cluster.image, 2, {}, 1, 5)
    requests += [r for told in cluster.told(cluster.ask(events.DeleteTopics(topics=(("t", None),)))[1]).values()
                 for r in told]  # fmt: skip
    assert {type(request).__name__ for request in requests} == {
        "LeaderAndIsrRequest", "StopReplicaRequest", "UpdateMetadataRequest",
    }  # fmt: skip
    for request in requests:
        assert through_bytes(request) == request


def test_every_broker_is_told_which_features_are_in_force(cluster: Cluster) -> None:
    told = cluster.told(cluster.create("t", (1, 2)))[3]
    assert [[(f.name, f.level) for f in r.features] for r in told] == [[(TRANSACTION_VERSION, 2)]] * len(told)
    update = FeatureUpdate(name=TRANSACTION_VERSION, level=1, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    _, delta = cluster.ask(UpdateFeatures(updates=(update,)))
    cache = MetadataCache()
    for broker in (1, 2, 3):
        [request] = cluster.told(delta)[broker]
        cache.update(through_bytes(request))
        assert (cache.features, cache.offset) == ({TRANSACTION_VERSION: 1}, cluster.image.offset)
    _, delta = cluster.ask(UpdateFeatures(updates=(update,)))
    assert delta.empty, "nothing is new"
    *_, full = broadcast.full_state_requests(cluster.image, 2, {}, 1, 5)
    assert [(f.name, f.level) for f in full.features] == [(TRANSACTION_VERSION, 1)]


@pytest.mark.parametrize("name", ["²", "٣", "007", "-1", "2147483648", "9" * 40, "x"])
def test_a_brokers_configuration_is_taken_only_for_a_broker_id_as_it_is_written(cluster: Cluster, name: str) -> None:
    """What is in the log is told to every broker: one that is no number on the wire would end each reign anew."""
    change = events.ConfigChange(resource_type=4, resource_name=name, values=(("log.retention.ms", "7"),))
    reply, delta = cluster.ask(events.AlterConfigs(changes=(change,)))
    assert isinstance(reply.resources[0].error, InvalidRequestError)
    assert delta.empty


def test_K112_10_a_replica_is_new_once(cluster: Cluster) -> None:
    told = cluster.told(cluster.create("t", (1, 2)))
    states = [p for request in told[2] if hasattr(request, "live_leaders") for t in request.topic_states
              for p in t.partition_states]  # fmt: skip
    assert [p.is_new for p in states] == [True]
    topic = cluster.image.topics["t"]
    delta = cluster.controller.replay(
        [PartitionChangeRecord(partition=0, topic_id=topic.topic_id, isr=(1,))], cluster.image.next_offset
    )
    again = [r for r in cluster.told(delta)[2] if hasattr(r, "live_leaders")]
    assert not again[0].topic_states[0].partition_states[0].is_new
    assert 3 in cluster.told(delta)
    assert not any(hasattr(r, "live_leaders") for r in cluster.told(delta)[3])


def test_requests_are_fenced_by_epochs(cluster: Cluster) -> None:
    for broker, requests in cluster.told(cluster.create("t", (1, 2))).items():
        for request in requests:
            assert request.broker_epoch == cluster.image.brokers[broker].epoch
            assert (request.controller_id, request.controller_epoch) == (1, 5)


def test_leaders_addresses_are_told(cluster: Cluster) -> None:
    request = next(r for r in cluster.told(cluster.create("t", (2, 1)))[1] if hasattr(r, "live_leaders"))
    assert [(b.broker_id, b.host_name, b.port) for b in request.live_leaders] == [(2, "host-2", 9002)]


def test_equal_parts_are_made_once(cluster: Cluster) -> None:
    told = cluster.told(cluster.create("t", (1, 2, 3), (2, 3, 1)))
    topics = {broker: next(r for r in told[broker] if hasattr(r, "live_leaders")).topic_states[0] for broker in told}
    assert topics[1] is topics[2] is topics[3]
    metadata = [told[broker][-1].topic_states for broker in told]
    assert metadata[0] is metadata[1] is metadata[2]


def test_a_change_of_one_partition_costs_one_partition(cluster: Cluster) -> None:
    cluster.ask(events.CreateTopics(topics=(events.TopicToCreate(name="t", partitions=500, replication_factor=3),)))
    topic = cluster.image.topics["t"]
    p = topic.partitions[250]
    assert p.leader is not None
    state = events.AlterPartitionState(
        topic_id=topic.topic_id, partition=250, leader_epoch=0, partition_epoch=0, isr=((p.leader, None),)
    )
    leader = cluster.image.brokers[p.leader]
    _, delta = cluster.ask(events.AlterPartition(broker_id=leader.id, broker_epoch=leader.epoch, partitions=(state,)))
    told = cluster.told(delta)
    assert set(told) == {1, 2, 3}
    for requests in told.values():
        assert [sum(len(t.partition_states) for t in r.topic_states) for r in requests] == [1, 1]


def test_nothing_changed_nothing_told(cluster: Cluster) -> None:
    delta = cluster.controller.replay([NoOpRecord()], cluster.image.next_offset)
    assert cluster.told(delta) == {}


def test_a_deleted_topic_is_stopped_and_told_by_its_id(cluster: Cluster) -> None:
    cluster.create("t", (1, 2))
    old = cluster.image.topics["t"].topic_id
    _, delta = cluster.ask(events.DeleteTopics(topics=(("t", None),)))
    told = cluster.told(delta)
    stop, update = told[1]
    assert stop.topic_states[0].topic_id == old
    assert [(p.leader_epoch, p.delete_partition) for p in stop.topic_states[0].partition_states] == [(-2, True)]
    assert [p.leader for p in update.topic_states[0].partition_states] == [DELETED_LEADER]
    assert len(told[3]) == 1  # it had no replica, and hears that the topic is gone


def test_a_plan_by_a_later_image_leaves_out_what_is_gone(cluster: Cluster) -> None:
    created = cluster.create("t", (1, 2))
    cluster.ask(events.DeleteTopics(topics=(("t", None),)))
    for requests in cluster.told(created).values():
        assert [r.topic_states for r in requests] == [()]


def test_replicas_that_leave_a_partition_are_stopped(cluster: Cluster) -> None:
    cluster.create("t", (1, 2))
    topic = cluster.image.topics["t"]
    delta = cluster.controller.replay(
        [PartitionChangeRecord(partition=0, topic_id=topic.topic_id, replicas=(1, 3), isr=(1,), leader=1)],
        cluster.image.next_offset,
    )
    told = cluster.told(delta)
    stop = told[2][0]
    assert [(p.partition_index, p.leader_epoch) for p in stop.topic_states[0].partition_states] == [(0, 1)]
    new = next(r for r in told[3] if hasattr(r, "live_leaders"))
    assert new.topic_states[0].partition_states[0].is_new


def test_an_unregistered_broker_is_told_nothing_and_its_replicas_are_offline(cluster: Cluster) -> None:
    cluster.create("t", (1, 3))
    _, died = cluster.ask(
        events.BrokerConnectionLost(broker_id=3, broker_epoch=cluster.image.brokers[3].epoch, refused=True)
    )
    reply, delta = cluster.ask(events.UnregisterBroker(broker_id=3))
    assert reply is None
    assert set(cluster.told(delta)) == {1, 2}
    told = cluster.told(died)
    update = told[2][-1]
    assert [b.id for b in update.live_brokers] == [1, 2]
    assert update.topic_states[0].partition_states[0].offline_replicas == (3,)


def test_K112_61_the_full_state_names_all_and_what_may_be_new(cluster: Cluster) -> None:
    cluster.create("t", (1, 2), (2, 1), (3, 1))
    topic = cluster.image.topics["t"]
    cluster.controller.replay(
        [
            PartitionChangeRecord(partition=1, topic_id=topic.topic_id, isr=(2,)),
            PartitionChangeRecord(
                partition=2, topic_id=topic.topic_id, adding=(1,), isr=(3,), recovery_state=RecoveryState.RECOVERING
            ),
        ],
        cluster.image.next_offset,
    )
    ahead, roles, update = broadcast.full_state_requests(cluster.image, 1, {3: {(topic.topic_id, 2)}}, 1, 5)
    assert ahead.topic_states == ()
    assert [b.id for b in ahead.live_brokers] == [1, 2, 3]
    assert (roles.type, update.type) == (TYPE_FULL, TYPE_FULL)
    states = roles.topic_states[0].partition_states
    # Nothing that happened to a partition is a sign that its replica was made (H-20); being older than the start of its
    # broker is: what is not there was there before, or is on a directory that cannot be read.
    assert [(p.partition_index, p.is_new) for p in states] == [(0, True), (1, True), (2, True)]
    assert states[2].leader_recovery_state == 1
    assert [p.offline_replicas for p in update.topic_states[0].partition_states] == [(), (), (3,)]
    again = ClusterImage.empty("c").apply(cluster.image.to_records(), 0)[0]  # a snapshot knows it too
    assert again.topics["t"] == cluster.image.topics["t"]
    cluster.ask(
        events.BrokerRegister(broker_id=1, incarnation_id=UUID(int=77), endpoints=Endpoints.one("host-1", 9001))
    )
    states = broadcast.full_state_requests(cluster.image, 1, {}, 1, 5)[1].topic_states[0].partition_states
    assert [(p.partition_index, p.is_new) for p in states] == [(0, False), (1, False), (2, True)]


def test_K112_61_the_full_states_of_one_image_are_made_once_and_are_each_brokers_own(cluster: Cluster) -> None:
    cluster.create("t", (1, 2), (2, 3), (3, 1))
    states = broadcast.FullStates(cluster.image, {}, 1, 5)
    for broker in (1, 2, 3):
        assert states.requests(broker) == broadcast.full_state_requests(cluster.image, broker, {}, 1, 5)
    numbers = [[p.partition_index for p in states.requests(n)[1].topic_states[0].partition_states] for n in (1, 2, 3)]
    assert numbers == [[0, 2], [0, 1], [1, 2]]
    assert [states.requests(n)[2].broker_epoch for n in (1, 2, 3)] == [
        cluster.image.brokers[n].epoch for n in (1, 2, 3)
    ]


def test_settings_come_from_the_configuration() -> None:
    config = BrokerConfig.parse({"node.id": "1", "num.partitions": "4", "broker.session.timeout.ms": "5000"})
    settings = ControllerSettings.of(config)
    assert settings.num_partitions == 4
    assert settings.session_timeout_ms == 5000
    assert settings.rebalance_interval_ms == 300_000
    assert not settings.unclean_election
