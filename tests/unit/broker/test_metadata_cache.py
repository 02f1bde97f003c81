"""What a broker believes of the cluster after each UpdateMetadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from holdfast.broker.entity import build
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import request_type
from holdfast.protocol.interbroker import DEFAULT_BROKER, DELETED_LEADER, TYPE_FULL, TYPE_INCREMENTAL

FIRST, SECOND = UUID(int=1), UUID(int=2)
ALL = (1, 2, 3)


def partition(
    index: int, leader: int, *, replicas: tuple[int, ...] = ALL, offline: tuple[int, ...] = ()
) -> dict[str, Any]:
    return {
        "partition_index": index, "leader": leader, "leader_epoch": 4, "isr": replicas, "replicas": replicas,
        "offline_replicas": offline,
    }  # fmt: skip


def topic(name: str, *partitions: dict[str, Any], topic_id: UUID = FIRST) -> dict[str, Any]:
    return {"topic_name": name, "topic_id": topic_id, "partition_states": partitions}


def update(
    cache: MetadataCache, *topics: dict[str, Any], brokers: tuple[int, ...] = ALL, full: bool = False, **more: Any
) -> set[str]:
    return cache.update(
        build(
            request_type(6, 8),
            {
                "controller_id": 1,
                "controller_epoch": 7,
                "type": TYPE_FULL if full else TYPE_INCREMENTAL,
                "topic_states": topics,
                "live_brokers": [
                    {"id": b, "rack": f"r{b}", "endpoints": [{"port": 9000 + b, "host": f"h{b}"}]} for b in brokers
                ],
            }
            | more,
        )
    )


def test_leaders_replicas_and_brokers() -> None:
    cache = MetadataCache()
    update(cache, topic("t", partition(0, 2, offline=(3,)), partition(1, -1)), cluster_id="c")
    assert (cache.cluster_id, cache.controller_id, cache.controller_epoch, cache.updates) == ("c", 1, 7, 1)
    assert cache.brokers[2] == LiveBroker(2, Endpoints.one("h2", 9002), "r2")
    info = cache.partition(TopicPartition("t", 0))
    assert info is not None
    assert (info.leader, info.leader_epoch, info.isr, info.offline) == (2, 4, ALL, (3,))
    leaderless = cache.partition(TopicPartition("t", 1))
    assert leaderless is not None and leaderless.leader is None
    assert cache.partition(TopicPartition("t", 2)) is cache.partition(TopicPartition("u", 0)) is None
    assert (cache.resolve(FIRST), cache.resolve("any"), cache.resolve(SECOND)) == ("t", "any", None)
    update(cache)
    assert cache.cluster_id == "c", "only told when it is news"


def test_an_update_changes_what_it_names_and_a_full_one_forgets_the_rest() -> None:
    cache = MetadataCache()
    update(cache, topic("t", partition(0, 1), partition(1, 2)), topic("u", partition(0, 3), topic_id=SECOND))
    update(cache, topic("t", partition(1, 3)))
    assert {i: p.leader for i, p in cache.topics["t"].items()} == {0: 1, 1: 3}
    update(cache, topic("t", partition(0, 1), partition(1, 3)), full=True)
    assert cache.topics.keys() == {"t"}
    assert cache.resolve(SECOND) is None


def test_a_deleted_topic_goes_with_its_id_and_configuration() -> None:
    cache = MetadataCache()
    configs = [{"topic": "t", "configs": [{"key": "retention.ms", "value": "1"}]}]
    update(cache, topic("t", partition(0, 1), partition(1, 1)), topic_configs=configs)
    update(cache, topic("t", partition(0, DELETED_LEADER)))
    assert cache.topics["t"].keys() == {1}
    update(cache, topic("t", partition(1, DELETED_LEADER)))
    assert not cache.topics and not cache.topic_ids and not cache.topic_names and not cache.topic_configs


def test_a_topic_made_again_under_its_name_is_another() -> None:
    cache = MetadataCache()
    update(cache, topic("t", partition(0, 1), partition(1, 1)))
    update(cache, topic("t", partition(0, 2), topic_id=SECOND))
    assert cache.topics["t"].keys() == {0}
    assert (cache.topic_ids["t"], cache.resolve(FIRST), cache.resolve(SECOND)) == (SECOND, None, "t")
    update(cache, topic("t", partition(0, DELETED_LEADER), topic_id=FIRST))
    assert "t" in cache.topics, "the end of the first one comes late"


def test_a_topics_id_is_learnt_before_its_metadata() -> None:
    cache = MetadataCache()
    cache.learn("t", FIRST)
    cache.learn("u", None)
    assert (cache.resolve(FIRST), cache.topic_ids, cache.topics) == ("t", {"t": FIRST}, {})
    update(cache, topic("t", partition(0, 1)))
    cache.learn("t", SECOND)
    assert (cache.resolve(SECOND), cache.topic_ids["t"]) == ("t", FIRST)


def test_configurations_that_changed_are_told() -> None:
    cache = MetadataCache()
    told = [{"topic": "t", "configs": [{"key": "retention.ms", "value": "1"}]}, {"topic": "u", "configs": []}]
    assert update(cache, topic_configs=told) == {"t"}
    assert update(cache, topic_configs=told) == set()
    assert cache.topic_configs == {"t": {"retention.ms": "1"}, "u": {}}
    told[0]["configs"] = []
    assert update(cache, topic_configs=told) == {"t"}
    pair = [{"key": "log.retention.ms", "value": "2"}]
    update(cache, broker_configs=[{"broker": DEFAULT_BROKER, "configs": pair}, {"broker": 2, "configs": []}])
    assert cache.broker_configs == {None: {"log.retention.ms": "2"}, 2: {}}


def test_nobody_is_sent_to_a_suspect_and_a_departed_broker_keeps_its_address_for_a_while() -> None:
    cache = MetadataCache()
    update(cache, topic("t", partition(0, 2)))
    cache.suspects.add(2)
    assert cache.leads(1) and not cache.leads(2) and not cache.leads(9) and not cache.leads(None)
    update(cache, topic("t", partition(0, 1)), brokers=(1, 3))
    assert not cache.suspects, "the controller has decided"
    assert {b: d.endpoints.for_brokers.port for b, d in cache.departed.items()} == {2: 9002}
    update(cache, brokers=ALL)
    assert not cache.departed
    assert cache.leads(2)


def test_who_answers_is_listed_where_the_controller_counts_nobody_as_alive() -> None:
    """librdkafka that was told of no broker left all of them and read nothing any more."""
    cache = MetadataCache()
    cache.me = me = LiveBroker(2, Endpoints.one("h2", 9002), "r2")
    update(cache, topic("t", partition(0, -1)), brokers=(), full=True)
    assert cache.listed() == cache.listed(with_departed=True) == [me]
    update(cache, brokers=(1, 3))
    assert [each.id for each in cache.listed()] == [1, 3]
    update(cache, brokers=(1,))
    assert [each.id for each in cache.listed(with_departed=True)] == [1, 3]


def test_a_suspicion_outlives_an_update_that_still_counts_the_broker_as_alive() -> None:
    cache = MetadataCache()
    update(cache)
    cache.suspects.add(3)
    update(cache, topic("t", partition(0, 3)))
    assert cache.suspects == {3}


def test_who_waits_for_an_update_is_woken_once() -> None:
    cache = MetadataCache()
    woken = []
    cache.on_next_update(lambda: woken.append(1))
    update(cache)
    update(cache)
    assert woken == [1]
