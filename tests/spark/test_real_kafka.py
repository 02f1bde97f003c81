"""The source and the sink against Apache Kafka with what our brokers do not have yet. Its jars come by Maven: without
them this fails.

TLS and SASL are shown in every run before a front of the tests (tests/unit/spark/test_security.py, test_sasl.py); what
that front lets in and refuses is here what Kafka does.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import kio.schema.alter_client_quotas.v0.request as quotas
import pyarrow as pa
import pytest
from benchmarks.peers.kafka import fetch
from kio.serial import entity_writer
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.client.blocking import BlockingClient
from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import AuthenticationError
from holdfast.client.views import CommittedOffset
from holdfast.model.types import TopicPartition
from holdfast.protocol.fetch_codec import FetchData, FetchPartitionData
from holdfast.spark.fetch_connection import FetchConnection
from holdfast.spark.options import parse_read, parse_write
from holdfast.spark.ranges import Range
from holdfast.spark.reader import read_ranges
from holdfast.spark.topics import Topics
from holdfast.spark.writer import TaskWriter
from holdfast.testing.ports import free_port
from tests.spark.real_kafka import PASSWORD, PORTS, SESSION_MS, SecureKafka
from tests.unit.spark.test_sasl import UNSECURED, jaas
from tests.unit.spark.test_security import SHOWN, TRUST

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long(
        "two nodes of Apache Kafka from Maven; every run has TLS and SASL before a front of the tests, and racks "
        "and aborted transactions by brokers of the tests (tests/unit/spark)"
    ),
]
OFFSETS = StructType([StructField("offset", LongType())])
RECORDS, BYTES = 6000, 1000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    port = free_port(PORTS, beside=(500,))
    peer = SecureKafka(jars=fetch(), data_dir=folder, brokers=2, log_dirs=1, port=port, settings=[])
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        add_users(peer)
        create(peer, "t", [[1, 2]])
        produce(peer, "t", RECORDS)
        yield peer
    finally:
        peer.stop()


def add_users(peer: SecureKafka) -> None:
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(60)


def create(peer: SecureKafka, topic: str, replicas: list[list[int]]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    for future in admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas)]).values():
        future.result(60)


def produce(peer: SecureKafka, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": peer.bootstrap, "acks": "all"})
    for n in range(records):
        producer.produce(topic, b"%0*d" % (BYTES, n), partition=0)
    assert producer.flush(60) == 0


def settings_of(peer: SecureKafka, listener: str, **settings: str) -> dict[str, str]:
    given = {"bootstrap.servers": peer.listener(listener), **{k.replace("__", "."): v for k, v in settings.items()}}
    return {f"kafka.{name}": text for name, text in given.items()}


def prefixed(settings: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": text for name, text in settings.items()}


def read(given: dict[str, str], topic: str = "t") -> list[int]:
    """Plans as a driver does, ships the options as Spark does, reads as a task does."""
    options = parse_read({"subscribe": topic} | given, streaming=True)
    topics = Topics(options)
    tps = topics.partitions()
    leaders, ids, ends = topics.leaders(tps), topics.topic_ids({}), topics.latest(tps)
    ranges = tuple(Range(tp=tp, start=0, end=ends[tp], leader=leaders[tp], topic_id=ids.get(topic)) for tp in tps)
    shipped = pickle.loads(pickle.dumps(options))
    return [n for batch in read_ranges(ranges, OFFSETS, shipped) for n in batch.column("offset").to_pylist()]


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(module, username="alice", password=password),
    }


WAYS = {
    "SSL": ("SSL", TRUST | SHOWN),
    "PLAIN": ("SASL_PLAINTEXT", login("PLAIN")),
    "SCRAM-SHA-256": ("SASL_PLAINTEXT", login("SCRAM-SHA-256")),
    "SCRAM-SHA-512": ("SASL_PLAINTEXT", login("SCRAM-SHA-512")),
    "OAUTHBEARER": ("SASL_PLAINTEXT", UNSECURED),
    "SCRAM over TLS": ("SASL_SSL", TRUST | login("SCRAM-SHA-512") | {"security.protocol": "SASL_SSL"}),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_source_sink_and_group_by_each_way_in(kafka: SecureKafka, way: str) -> None:
    listener, settings = WAYS[way]
    given = settings_of(kafka, listener) | prefixed(settings)
    assert read(given) == list(range(RECORDS))
    topic = f"written-{way.replace(' ', '-')}"
    create(kafka, topic, [[1, 2], [2, 1]])
    task = TaskWriter(parse_write(given | {"topic": topic}))
    task.add(pa.record_batch({"value": pa.array([b"%d" % n for n in range(1000)])}))
    assert task.finish() == 1000
    assert len(read(given, topic)) == 1000
    topics = Topics(parse_read({"subscribe": topic} | given, streaming=True))
    offsets = {tp: CommittedOffset(offset=5) for tp in topics.partitions()}
    topics.commit_offsets(f"group-{way}", offsets, timeout_s=30)
    with BlockingClient(kafka.bootstrap) as client:
        assert {tp: each.offset for tp, each in client.committed(f"group-{way}").items()} == dict.fromkeys(offsets, 5)


@pytest.mark.parametrize(
    ("listener", "settings", "words"),
    [
        ("SSL", TRUST, r"it does not take the client's certificate"),
        ("SSL", {"security.protocol": "SSL"}, r"its certificate is not trusted"),
        ("SASL_PLAINTEXT", login("PLAIN", "hush"), r"mechanism PLAIN: the login is refused"),
        ("SASL_PLAINTEXT", login("SCRAM-SHA-512", "hush"), r"mechanism SCRAM-SHA-512: the login is refused"),
        (
            "SASL_SSL",
            TRUST | login("PLAIN") | {"security.protocol": "SASL_SSL"},
            r"mechanism PLAIN: it is not enabled there, expected SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (
            "SASL_PLAINTEXT",
            UNSECURED
            | {
                "sasl.jaas.config": jaas(
                    "oauthbearer.OAuthBearerLoginModule",
                    unsecuredLoginStringClaim_sub="alice",
                    unsecuredLoginNumberClaim_exp="5",
                )
            },
            r"mechanism OAUTHBEARER: the login is refused|the token is refused",
        ),
        ("PLAINTEXT", login("PLAIN"), r"has no SASL"),
    ],
)
def test_who_is_not_let_in_is_told_at_once(
    kafka: SecureKafka, listener: str, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(AuthenticationError, match=words) as raised:
        read(settings_of(kafka, listener) | prefixed(settings))
    assert f":{kafka.listener(listener).rpartition(':')[2]}" in str(raised.value)
    assert "hush" not in str(raised.value)


def test_sessions_are_renewed_on_their_connections(kafka: SecureKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    plain_open = BrokerConnection.open

    async def open_and_note(self: BrokerConnection, timeout_s: float) -> None:
        opened.append(self.address)
        await plain_open(self, timeout_s)

    monkeypatch.setattr(BrokerConnection, "open", open_and_note)
    given = settings_of(kafka, "SASL_PLAINTEXT", client__id="renews", fetch__max__bytes="65536")
    topics = Topics(parse_read({"subscribe": "t"} | given | prefixed(login("SCRAM-SHA-256")), streaming=True))
    tp = TopicPartition("t", 0)

    limit_s = time.monotonic() + 3 * SESSION_MS / 1000
    while time.monotonic() < limit_s:
        assert topics.latest([tp]) == {tp: RECORDS}
    assert len(opened) == len(set(opened)), "each broker's was opened once, through three sessions"
    options = parse_read({"subscribe": "t"} | given | prefixed(login("SCRAM-SHA-256")), streaming=True)
    leader = topics.leader(tp)
    connection = FetchConnection(leader.host, leader.port, "c", 30, options.security)
    data = FetchData(-1, -1, 0, 1, 65536, 0, 0, -1, [("t", [FetchPartitionData(0, -1, 0, -1, -1, 65536)])])
    limit_s = time.monotonic() + 3 * SESSION_MS / 1000
    while time.monotonic() < limit_s:
        connection.send(data, {})
        assert len(connection.receive()["t", 0].records)
    connection.close()


def test_a_reader_with_a_rack_reads_the_follower_that_is_there(
    kafka: SecureKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: dict[str, int] = {}
    plain_receive = FetchConnection.receive

    def receive_and_note(self: FetchConnection) -> Any:
        answer = plain_receive(self)
        came[self.address] = came.get(self.address, 0) + sum(len(part.records) for part in answer.values())
        return answer

    monkeypatch.setattr(FetchConnection, "receive", receive_and_note)
    create(kafka, "far", [[1, 2]])
    produce(kafka, "far", 100)
    assert read(settings_of(kafka, "PLAINTEXT", client__rack="r2"), "far") == list(range(100))
    assert came[kafka.listener("PLAINTEXT", 1)] == 0 and came[kafka.listener("PLAINTEXT", 2)] >= 100 * BYTES
    came.clear()
    assert read(settings_of(kafka, "PLAINTEXT"), "far") == list(range(100))
    assert set(came) == {kafka.listener("PLAINTEXT", 1)}


def test_records_of_aborted_transactions_are_left_out(kafka: SecureKafka) -> None:
    from confluent_kafka import Producer

    create(kafka, "tx", [[1, 2]])
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx"})
    producer.init_transactions(60)
    wanted, offset = [], 0
    for number, ends in enumerate(("abort", "commit", "abort", "abort", "commit", "commit", "abort")):
        producer.begin_transaction()
        for _ in range(100 + number):
            producer.produce("tx", b"x", partition=0)
            wanted += [offset] if ends == "commit" else []
            offset += 1
        assert producer.flush(60) == 0
        if ends == "commit":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
        offset += 1  # the marker
    given = settings_of(kafka, "PLAINTEXT")
    assert read(given | {"kafka.isolation.level": "read_committed"}, "tx") == wanted
    assert len(read(given, "tx")) == sum(range(100, 107))
    producer.begin_transaction()
    producer.produce("tx", b"open", partition=0)
    assert producer.flush(60) == 0
    assert read(given | {"kafka.isolation.level": "read_committed"}, "tx") == wanted, "what is open is not read"
    producer.abort_transaction(60)


async def limit(peer: SecureKafka, client_id: str, rate: float) -> None:
    """Sets a quota of so many bytes a second for readers of that name."""
    entry = quotas.EntryData(
        entity=(quotas.EntityData(entity_type="client-id", entity_name=client_id),),
        ops=(quotas.OpData(key="consumer_byte_rate", value=rate, remove=False),),
    )
    body, request = BytesIO(), quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    entity_writer(quotas.AlterClientQuotasRequest)(body, request)
    connection = BrokerConnection("127.0.0.1", peer.port, "quotas")
    await connection.open(10)
    answer = await connection.request_raw(49, 0, body.getvalue(), timeout_s=30)
    connection.close()
    assert struct.unpack_from(">iih", answer)[1:] == (1, 0), "one entry, no error"


def test_a_quota_slows_the_reader_down_and_ends_nothing(kafka: SecureKafka) -> None:
    rate = 1_000_000.0
    asyncio.run(limit(kafka, "slow", rate))
    slow = settings_of(kafka, "PLAINTEXT", client__id="slow", fetch__max__bytes="500000")
    free = settings_of(kafka, "PLAINTEXT", client__id="free", fetch__max__bytes="500000")
    assert read(free)  # the first read of a process compiles
    took = {}
    for name, given in (("free", free), ("slow", slow)):
        began_s = time.monotonic()
        assert read(given) == list(range(RECORDS))
        took[name] = time.monotonic() - began_s
    assert took["slow"] > RECORDS * BYTES / rate - 3, "6 MB, of which two windows are free"
    assert took["slow"] > 2 * took["free"]
