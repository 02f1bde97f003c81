"""Keys of topics by a stock client: copied key by key, changed while a topic is in use, described from any broker."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from holdfast.records.batch import iter_headers
from holdfast.records.compression import Codec
from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, create

pytestmark = pytest.mark.system
VALUE = b"the same again " * 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two brokers for all tests of this module."""
    with Cluster(brokers=2, settings={"default.replication.factor": "1"}) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    [found] = admin.describe_configs([ConfigResource(kind, name)]).values()
    entries: dict[str, ConfigEntry] = found.result(TIMEOUT_S)
    return entries


def alter(
    admin: AdminClient,
    name: str,
    operation: str,
    key: str,
    value: str | None,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    validate_only: bool = False,
) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType[operation])
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    [done] = admin.incremental_alter_configs([resource], validate_only=validate_only).values()
    done.result(TIMEOUT_S)


def test_C_7_a_topic_is_made_with_every_key_that_another_one_tells(
    cluster: Cluster, admin: AdminClient, topic: str
) -> None:
    create(cluster, topic, [[1]])
    told = described(admin, ResourceType.TOPIC, topic)
    assert len(told) == 33
    copied = {name: str(entry.value or "") for name, entry in told.items()}
    admin.create_topics([NewTopic(f"{topic}-copy", 1, 1, config=copied)])[f"{topic}-copy"].result(TIMEOUT_S)
    copy = described(admin, ResourceType.TOPIC, f"{topic}-copy")
    assert {name: entry.value for name, entry in copy.items()} == {name: entry.value for name, entry in told.items()}
    assert {entry.source for entry in copy.values()} == {ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    for key, value in (("preallocate", "true"), ("remote.storage.enable", "true"), ("local.retention.ms", "5")):
        with pytest.raises(KafkaException, match=f"Invalid value {value} for configuration {key}: Value must be "):
            alter(admin, topic, "SET", key, value)


def test_operations_on_a_topic_and_on_brokers(cluster: Cluster, admin: AdminClient, topic: str) -> None:
    create(cluster, topic, [[1]])

    def now() -> tuple[str | None, ConfigSource]:
        entry = described(admin, ResourceType.TOPIC, topic)["cleanup.policy"]
        return entry.value, ConfigSource(entry.source)

    alter(admin, topic, "APPEND", "cleanup.policy", "compact")
    assert now() == ("delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    alter(admin, topic, "SUBTRACT", "cleanup.policy", "delete", validate_only=True)
    assert now()[0] == "delete,compact"
    alter(admin, topic, "SUBTRACT", "cleanup.policy", "delete")
    assert now()[0] == "compact"
    alter(admin, topic, "DELETE", "cleanup.policy", None)
    assert now() == ("delete", ConfigSource.DEFAULT_CONFIG)
    for broker in ("1", "2"):
        alter(admin, broker, "APPEND", "log.cleanup.policy", "compact", kind=ResourceType.BROKER)
        entry = described(admin, ResourceType.BROKER, broker)["log.cleanup.policy"]
        assert (entry.value, entry.source) == ("delete,compact", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        alter(admin, broker, "SUBTRACT", "log.cleanup.policy", "compact", kind=ResourceType.BROKER)
        assert described(admin, ResourceType.BROKER, broker)["log.cleanup.policy"].value == "delete"
        alter(admin, broker, "DELETE", "log.cleanup.policy", None, kind=ResourceType.BROKER)
    alter(admin, topic, "SET", "max.compaction.lag.ms", "500")
    with pytest.raises(KafkaException, match=r"min\.compaction\.lag\.ms \(501\) > max\.compaction\.lag\.ms \(500\)"):
        alter(admin, topic, "SET", "min.compaction.lag.ms", "501")


def test_compression_type_and_level_hold_for_what_comes_after_the_change(
    cluster: Cluster, admin: AdminClient, topic: str
) -> None:
    create(cluster, topic, [[1, 2]])
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    stored: list[tuple[Codec, int]] = []
    changes = (
        ("SET", "compression.type", "zstd"),
        ("SET", "compression.type", "lz4"),
        ("SET", "compression.lz4.level", "17"),
        ("SET", "compression.type", "producer"),
    )
    for operation, key, value in (None, None, None), *changes:
        if operation is not None:
            alter(admin, topic, operation, str(key), value)
        producer.produce(topic, VALUE, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    for broker in (1, 2):
        path = cluster.folder_of(broker, topic, 0) / f"{0:020d}.log"
        wait_for(lambda path=path: len(list(iter_headers(path.read_bytes()))) == 5, "five batches", timeout_s=TIMEOUT_S)
        stored = [(Codec.numbered(h.compression), h.size) for _, h in iter_headers(path.read_bytes())]
        assert [codec for codec, _ in stored] == [Codec.NONE, Codec.ZSTD, Codec.LZ4, Codec.LZ4, Codec.NONE]
        assert max(size for codec, size in stored if codec is not Codec.NONE) < len(VALUE) / 10
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, **QUIET})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read = [m.value() for m in consumer.consume(5, TIMEOUT_S)]
    consumer.close()
    assert read == [VALUE] * 5


def test_what_many_append_to_one_list_at_the_same_time_is_all_there(admin: AdminClient, cluster: Cluster) -> None:
    """Each is worked out from what the key has then, and must not overwrite what another one has just added."""
    create(cluster, "appended", [[1]])
    key, wanted = "leader.replication.throttled.replicas", {f"{n}:1" for n in range(40)}
    clients = [AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET}) for _ in range(8)]
    for client in clients:
        client.list_topics(timeout=TIMEOUT_S)
    pending = []
    for number, value in enumerate(sorted(wanted)):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.APPEND)
        resource = ConfigResource(ResourceType.TOPIC, "appended", incremental_configs=[entry])
        pending += clients[number % len(clients)].incremental_alter_configs([resource]).values()
    for each in pending:
        each.result(TIMEOUT_S)
    found = described(admin, ResourceType.TOPIC, "appended")[key].value
    assert set((found or "").split(",")) == wanted
