"""What running stock clients and Kafka's own tools against a cluster found missing (rows C-3 to C-8)."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from holdfast.model.types import BrokerId
from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, ask, create

pytestmark = pytest.mark.system
_PLAIN = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers for all tests of this module."""
    with Cluster(brokers=3, settings={"default.replication.factor": "1"}) as running:
        yield running


def topic_id(cluster: Cluster, topic: str) -> UUID:
    import kio.schema.metadata.v12.request as m

    asked: Any = m.MetadataRequestTopic(topic_id=None, name=topic)  # type: ignore[arg-type]
    found: UUID = ask(cluster, 1, "metadata", 12, "Metadata", topics=(asked,), **_PLAIN).topics[0].topic_id
    return found


def test_C_3_metadata_by_id_with_an_empty_name_beside_it(cluster: Cluster, topic: str) -> None:
    import kio.schema.metadata.v12.request as m

    create(cluster, topic, [[1, 2]])
    wanted = topic_id(cluster, topic)
    for name in (None, ""):
        asked: Any = m.MetadataRequestTopic(topic_id=wanted, name=name)  # type: ignore[arg-type]
        [found] = ask(cluster, 2, "metadata", 12, "Metadata", topics=(asked,), **_PLAIN).topics
        assert (int(found.error_code), found.name, found.topic_id) == (0, topic, wanted)


def test_C_4_the_quorum_tells_offsets_times_and_endpoints(cluster: Cluster, topic: str) -> None:
    import kio.schema.describe_quorum.v2.request as m

    create(cluster, topic, [[1, 2]])
    part: Any = m.TopicData(topic_name="__cluster_metadata", partitions=(m.PartitionData(partition_index=0),))

    def described(broker: int) -> Any:
        answer = ask(cluster, broker, "describe_quorum", 2, "DescribeQuorum", topics=(part,))
        assert {(int(n.node_id), n.listeners[0].host, int(n.listeners[0].port)) for n in answer.nodes} == {
            (i + 1, host, port) for i, (host, port) in enumerate(cluster.addresses())
        }
        return answer.topics[0].partitions[0]

    def level() -> bool:
        found = described(1)
        return all(v.log_end_offset == found.high_watermark for v in found.current_voters)

    wait_for(level, "every broker to have all decisions", timeout_s=TIMEOUT_S)
    for broker in (1, 2, 3):
        found = described(broker)
        assert found.leader_id == cluster.describe().controller_id
        assert found.high_watermark > 3
        times = [int(v.last_caught_up_timestamp) for v in found.current_voters]
        assert all(abs(time.time() * 1000 - t) < 60_000 for t in times), times


def test_C_6_a_transactional_producer_begins(cluster: Cluster) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", **QUIET})
    producer.init_transactions(TIMEOUT_S)


def test_C_7_a_topics_configuration_is_copied_key_by_key(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    told = admin.describe_configs([ConfigResource("TOPIC", create_plain(admin, topic))])
    [described] = [f.result(TIMEOUT_S) for f in told.values()]
    copied = {name: entry.value for name, entry in described.items()}
    assert copied.keys() >= {"preallocate", "compression.gzip.level", "remote.storage.enable", "min.compaction.lag.ms"}
    new = NewTopic(f"{topic}-copy", 1, 1, config=copied)
    admin.create_topics([new])[f"{topic}-copy"].result(TIMEOUT_S)
    for key, value in (("preallocate", "true"), ("remote.storage.enable", "true"), ("local.retention.ms", "5")):
        with pytest.raises(confluent_kafka.KafkaException, match=f"configuration {key}: Value must be"):
            admin.create_topics([NewTopic("never", 1, 1, config={key: value})])["never"].result(TIMEOUT_S)


def create_plain(admin: AdminClient, topic: str) -> str:
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    return topic


def test_C_8_access_lists_are_disabled(cluster: Cluster) -> None:
    import kio.schema.create_acls.v3.request as c
    import kio.schema.delete_acls.v3.request as d

    fields = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
              "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
    described = ask(cluster, 1, "describe_acls", 3, "DescribeAcls", **fields)
    assert (int(described.error_code), described.error_message) == (54, "No Authorizer is configured on the broker")
    one: Any = c.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3,  # type: ignore[arg-type]
    )  # fmt: skip
    created = ask(cluster, 1, "create_acls", 3, "CreateAcls", creations=(one, one))
    assert [int(r.error_code) for r in created.results] == [54, 54]
    deleted = ask(cluster, 1, "delete_acls", 3, "DeleteAcls", filters=(d.DeleteAclsFilter(**fields),))
    assert [int(r.error_code) for r in deleted.filter_results] == [54]


def test_C_8_partitions_in_pages_with_who_is_eligible(topic: str) -> None:
    """After its members die one by one the last leader is eligible: nobody else has everything."""
    import kio.schema.describe_topic_partitions.v0.request as m

    with Cluster(
        brokers=3, settings={"default.replication.factor": "1", "broker.session.timeout.ms": "2000"}
    ) as cluster:
        create(cluster, topic, [[1, 2], [2, 3], [3, 1]], min_insync_replicas="2")

        def pages(broker: BrokerId, limit: int) -> list[Any]:
            found, cursor = [], None
            while True:
                answer = ask(
                    cluster, broker, "describe_topic_partitions", 0, "DescribeTopicPartitions",
                    topics=(m.TopicRequest(name=topic),), response_partition_limit=limit, cursor=cursor,  # type: ignore[arg-type]
                )  # fmt: skip
                found += [p for t in answer.topics for p in t.partitions]
                if answer.next_cursor is None:
                    return found
                at = answer.next_cursor
                cursor = m.Cursor(topic_name=at.topic_name, partition_index=at.partition_index)

        for limit in (1, 2, 100):
            assert [int(p.partition_index) for p in pages(1, limit)] == [0, 1, 2]
        assert all(not p.eligible_leader_replicas for p in pages(1, 100))
        controller = cluster.describe().controller_id
        victim = next(b for b in (1, 2, 3) if b != controller)
        asked = next(b for b in (1, 2, 3) if b not in (controller, victim))
        cluster.kill(victim)
        hit = {p for p, replicas in enumerate(((1, 2), (2, 3), (3, 1))) if victim in replicas}
        wait_for(
            lambda: (
                {int(p.partition_index) for p in pages(asked, 100) if p.eligible_leader_replicas == (victim,)} == hit
            ),
            "the dead one to be eligible, as a broker that is not the controller tells",
            timeout_s=TIMEOUT_S,
        )


def test_C_8_producers_of_a_partition_and_no_transactions(cluster: Cluster, topic: str) -> None:
    import kio.schema.describe_producers.v0.request as m

    create(cluster, topic, [[1, 2]])
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **QUIET})
    for _ in range(3):
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    wanted = (m.TopicRequest(name=topic, partition_indexes=(0, 9)),)  # type: ignore[arg-type]

    def asked(broker: int) -> Any:
        return ask(cluster, broker, "describe_producers", 0, "DescribeProducers", topics=wanted).topics[0].partitions

    here, nowhere = asked(1)
    [entry] = here.active_producers
    assert (int(entry.last_sequence), int(entry.producer_epoch), int(nowhere.error_code)) == (2, 0, 3)
    assert abs(entry.last_timestamp - time.time() * 1000) < 60_000
    wait_for(
        lambda: [int(p.error_code) for p in asked(2)] == [0, 3], "the follower to have its log", timeout_s=TIMEOUT_S
    )
    wait_for(lambda: asked(2)[0] == here, "the follower to tell the same of its own", timeout_s=TIMEOUT_S)
    assert [int(p.error_code) for p in asked(3)] == [6, 3]
    listed = ask(
        cluster, 1, "list_transactions", 1, "ListTransactions",
        state_filters=("Nope", "Ongoing"), producer_id_filters=(), duration_filter=-1,
    )  # fmt: skip
    assert (listed.transaction_states, listed.unknown_state_filters) == ((), ("Nope",))


def test_C_8_what_nobody_has_set_is_empty(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1]])
    quotas = ask(cluster, 1, "describe_client_quotas", 1, "DescribeClientQuotas", components=(), strict=False)
    assert (int(quotas.error_code), quotas.entries) == (0, ())
    users = ask(cluster, 1, "describe_user_scram_credentials", 0, "DescribeUserScramCredentials", users=None)
    assert (int(users.error_code), users.results) == (0, ())
    named = ask(cluster, 1, "list_config_resources", 1, "ListConfigResources", resource_types=())
    found = {(r.resource_name, int(r.resource_type)) for r in named.config_resources}
    assert {(topic, 2), ("1", 4), ("3", 8)} <= found
    none = ask(cluster, 1, "list_config_resources", 0, "ListConfigResources")
    assert none.config_resources == ()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "topics", "list", "--bootstrap-server", cluster.bootstrap],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_max_connections_may_change_while_the_broker_runs(cluster: Cluster) -> None:
    set_for_broker(cluster, 2, "max.connections", "40")
    opened = [socket.create_connection(cluster.addresses()[1], timeout=5) for _ in range(60)]

    def refused() -> int:
        return sum(_is_closed(each) for each in opened)

    wait_for(lambda: refused() >= 20, "connections beyond the limit to be closed", timeout_s=TIMEOUT_S)
    for each in opened:
        each.close()
    set_for_broker(cluster, 2, "max.connections", None)


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def set_for_broker(cluster: Cluster, broker: int, key: str, value: str | None) -> None:
    import kio.schema.incremental_alter_configs.v1.request as m

    one: Any = m.AlterableConfig(name=key, config_operation=0 if value else 1, value=value)  # type: ignore[arg-type]
    resource: Any = m.AlterConfigsResource(resource_type=4, resource_name=str(broker), configs=(one,))  # type: ignore[arg-type]
    answer = ask(
        cluster, 1, "incremental_alter_configs", 1, "IncrementalAlterConfigs", resources=(resource,),
        validate_only=False,
    )  # fmt: skip
    assert [int(r.error_code) for r in answer.responses] == [0]
