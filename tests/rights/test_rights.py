"""Every API, asked with every right and without, by logins over SASL_PLAINTEXT: docs/authorization.md is what they are
answered. With HOLDFAST_REWRITE the page, or the record of Apache Kafka's answers, is written instead."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import struct
from pathlib import Path

import pytest
from benchmarks.peers.kafka import fetch, missing_tool

from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey
from holdfast.protocol.framing import encode_request_raw
from holdfast.security.resources import Operation, Permission, ResourceKind
from holdfast.testing import free_port
from tests.rights.brokers import SecuredBrokers
from tests.rights.kafka import SecuredKafka
from tests.rights.page import PAGE, record, recorded, rows_of, static
from tests.rights.samples import BROKERS, KAFKAS, SENT_ON, Names, fetched_from, produced_to
from tests.rights.walk import ADMIN, Kind, Walk, asked_by, cases, codes_by, codes_of, entry, rows, walked
from tests.zookeeper.cluster_nodes import ClusterNodes

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

THEIRS = tuple(sample for sample in KAFKAS if sample.api in ApiKey.__members__)
OURS = (*THEIRS, *BROKERS)
USERS = [case.user for case in cases(OURS)]


def _on_zookeeper(nodes: ClusterNodes) -> dict[str, str]:
    return {"metadata.store": "zookeeper", "zookeeper.connect": nodes.server.connect + nodes.chroot}


@pytest.mark.parametrize("store", ["embedded", "zookeeper"], indirect=True)
def test_every_api_with_every_right_and_without(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    """What is refused has changed nothing."""
    on = _on_zookeeper(request.getfixturevalue("cluster_nodes")) if store == "zookeeper" else None
    with SecuredBrokers(tmp_path, USERS, 1, on) as brokers:
        walk = Walk(*brokers.address(1), Names(log_dir=str(brokers.log_dir(1))))
        done = asyncio.run(walked(walk, OURS))
    assert done.changed == []
    made = static(list(rows(done.outcomes, OURS)), recorded())
    if os.environ.get("HOLDFAST_REWRITE") and store == "embedded":
        PAGE.write_text(made)
    assert made == PAGE.read_text(), "with HOLDFAST_REWRITE the page is written anew"


def test_who_asks_a_broker_that_sends_it_on_is_judged_alike(tmp_path: Path) -> None:
    """By the controller, with the client's principal."""
    samples = tuple(sample for sample in OURS if sample.api in SENT_ON)
    with SecuredBrokers(tmp_path, [case.user for case in cases(samples)], 2) as brokers:
        controller = Walk(*brokers.address(1)).controller()
        asked = 3 - controller
        names = Names(log_dir=str(brokers.log_dir(asked)), broker=asked)
        done = asyncio.run(walked(Walk(*brokers.address(asked), names), samples, coordinates=False))
    assert done.changed == []
    expected = {row[0]: row for row in rows_of(PAGE.read_text())}
    assert list(rows(done.outcomes, samples)) == [expected[sample.title] for sample in samples]


def test_without_a_login_no_api_is_answered(tmp_path: Path) -> None:
    """Nothing of the request is read; the connection is closed."""
    with SecuredBrokers(tmp_path, (), 1) as brokers:
        for key, versions in sorted((SPOKEN | INTERNAL).items()):
            if key.name not in ("API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"):
                frame = encode_request_raw(key, versions.max, 1, "stranger", struct.pack(">i", 0))
                assert asyncio.run(_answer(*brokers.address(1), frame)) == b"", key.name


def test_what_may_not_be_described_cannot_be_told_from_what_does_not_exist(tmp_path: Path) -> None:
    """The whole answer is the same for who has no right."""
    with SecuredBrokers(tmp_path, [case.user for case in cases(THEIRS[:1])], 1) as brokers:
        asyncio.run(_looked_for(Walk(*brokers.address(1), Names(log_dir=str(brokers.log_dir(1))))))


async def _looked_for(walk: Walk) -> None:
    await walk.prepare(cases(THEIRS[:1]), coordinates=True)
    nobody = cases(THEIRS[:1])[0].user
    other = dataclasses.replace(walk.shared, topic="no-topic", group="no-group", transaction="no-transaction")
    for sample in THEIRS:
        if not sample.is_by_id:
            told = await walk.told(nobody, sample, walk.shared)
            assert told == await walk.told(nobody, sample, other), sample.title


def test_a_removed_entry_refuses_the_next_request_of_open_connections(tmp_path: Path) -> None:
    """On every broker, as soon as its removal is answered; a fetch session that holds the topic is over."""
    with SecuredBrokers(tmp_path, ("alice",), 3) as brokers:
        asyncio.run(_removed([Walk(*brokers.address(broker)) for broker in brokers.ids]))


async def _removed(walks: list[Walk]) -> None:
    first, rights = walks[0], [(Operation.READ, "t"), (Operation.WRITE, "t")]
    assignments = [{"partition_index": index, "broker_ids": [index + 1]} for index in range(len(walks))]
    topics = [{"name": "t", "num_partitions": -1, "replication_factor": -1, "assignments": assignments}]
    created = await first.ask(ADMIN, "CREATE_TOPICS", 7, {"topics": topics, "timeout": 30_000})
    assert codes_of(created) == [0, 0]
    entries = [
        entry((operation, ResourceKind.TOPIC, name), name, "alice", Permission.ALLOW) for operation, name in rights
    ]
    assert codes_of(await first.ask(ADMIN, "CREATE_ACLS", 3, {"creations": entries})) == [0, 0]
    opened = [await walk.opened("alice") for walk in walks]
    sessions = []
    for index, connection in enumerate(opened):
        assert await codes_by(connection, "PRODUCE", 9, produced_to("t", index)) == [0]
        answer = await asked_by(connection, "FETCH", 12, fetched_from("t", index))
        assert set(codes_of(answer)) == {0}
        sessions.append(answer.session_id)
    assert all(sessions)
    everything = {
        "resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    assert set(codes_of(await first.ask(ADMIN, "DELETE_ACLS", 3, {"filters": [everything]}))) == {0}
    for index, connection in enumerate(opened):
        assert await codes_by(connection, "PRODUCE", 9, produced_to("t", index)) == [29]
        held = {"session_id": sessions[index], "session_epoch": 1, "topics": ()}
        assert await codes_by(connection, "FETCH", 12, fetched_from("t", index) | held) == [70]
        answer = await asked_by(connection, "FETCH", 12, fetched_from("t", index))
        assert (answer.session_id, set(codes_of(answer)) - {0}) == (0, {29})
        connection.close()


async def _answer(host: str, port: int, frame: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(frame)
    try:
        async with asyncio.timeout(10.0):
            return await reader.read(1)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.long("its recorded answers are compared with ours in every run")
def test_apache_kafka_is_asked_the_same(tmp_path: Path) -> None:
    """Short: its recorded answers are compared with ours on the page."""
    assert missing_tool() is None, f"{missing_tool()} is not installed: Apache Kafka is fetched and run with it"
    port = free_port(2, beside=(500,))
    peer = SecuredKafka(fetch(), tmp_path, port, dict.fromkeys(case.user for case in cases(THEIRS)))
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        names = Names(log_dir=str(tmp_path / "broker-1/log-dir-1"))
        done = asyncio.run(walked(Walk("127.0.0.1", port, names), THEIRS))
    finally:
        peer.stop()
    assert done.changed == []
    made = list(rows(done.outcomes, THEIRS))
    if os.environ.get("HOLDFAST_REWRITE"):
        record(made)
    assert made == recorded()


def test_every_api_is_walked() -> None:
    """But those by which one logs in, and Envelope, which has a test of its own."""
    walked_through = {sample.api for sample in OURS}
    free = {"API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE", "ENVELOPE"}
    assert {key.name for key in SPOKEN.keys() | INTERNAL.keys()} - free == walked_through
    assert {case.kind for case in cases(OURS)} == set(Kind)
