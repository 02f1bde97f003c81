"""The two forgeries that were found here, by a user that has every right but ClusterAction: on live brokers that have
one listener for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.connection import BrokerConnection
from holdfast.security.resources import Operation, Permission, ResourceKind
from tests.rights.brokers import SecuredBrokers
from tests.rights.samples import fetched_from, produced_to
from tests.rights.walk import ADMIN, Walk, asked_by, codes_by, codes_of, entry

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

FORGER = "forger"
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, REQUEST_TIMED_OUT = 29, 31, 7
CLUSTER = (Operation.ALTER, Operation.CREATE, Operation.DESCRIBE, Operation.ALTER_CONFIGS)
SLOW = {"replica.lag.time.max.ms": "120000", "broker.session.timeout.ms": "60000", "min.insync.replicas": "2"}


async def granted(walk: Walk, *more: Operation) -> None:
    """All but the right of brokers; and more of the cluster."""
    entries = [entry((Operation.ALL, ResourceKind.TOPIC, ""), "*", FORGER, Permission.ALLOW)] + [
        entry((operation, ResourceKind.CLUSTER, ""), "kafka-cluster", FORGER, Permission.ALLOW)
        for operation in (*CLUSTER, *more)
    ]
    assert set(codes_of(await walk.ask(ADMIN, "CREATE_ACLS", 3, {"creations": entries}))) == {0}


async def created(walk: Walk, name: str, replicas: Sequence[Sequence[int]]) -> None:
    assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas)]
    topics = [{"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}]
    answer = await walk.ask(ADMIN, "CREATE_TOPICS", 7, {"topics": topics, "timeout": 30_000})
    assert codes_of(answer) == [0, 0]


def test_forged_orders_of_a_later_controller_stop_no_cluster(tmp_path: Path) -> None:
    """One to each broker made every order of the real controller stale: no topic that came later had a leader."""
    with SecuredBrokers(tmp_path, (FORGER,), 3) as brokers:
        asyncio.run(_ordered([Walk(*brokers.address(broker)) for broker in brokers.ids]))


async def _ordered(walks: list[Walk]) -> None:
    await granted(walks[0])
    for walk in walks:
        usurper = {"controller_id": 9, "controller_epoch": 2**31 - 1, "broker_epoch": 2**62}
        for api, version in (("LEADER_AND_ISR", 7), ("STOP_REPLICA", 4), ("UPDATE_METADATA", 8)):
            answer = await walk.ask(FORGER, api, version, usurper)
            assert int(answer.error_code) == CLUSTER_AUTHORIZATION_FAILED
    await created(walks[0], "later", [[1], [2], [3]])
    for index, walk in enumerate(walks):
        assert codes_of(await walk.ask(ADMIN, "PRODUCE", 9, produced_to("later", index))) == [0]


@pytest.mark.parametrize("is_broker", [False, True])
def test_forged_fetches_of_replicas_acknowledge_nothing(tmp_path: Path, is_broker: bool) -> None:
    """CVE-2018-1288. One disk has the record, both followers are stopped; nobody but brokers may say that they have it.
    One that may ClusterAction is believed."""
    with SecuredBrokers(tmp_path, (FORGER,), 3, settings=SLOW) as brokers:
        leader = Walk(*brokers.address(1)).controller()  # it lives on, and nobody is elected meanwhile
        asyncio.run(_fetched(brokers, leader, is_broker))


async def _fetched(brokers: SecuredBrokers, leader: int, is_broker: bool) -> None:
    walk, followers = Walk(*brokers.address(leader)), [broker for broker in brokers.ids if broker != leader]
    await granted(walk, *([Operation.CLUSTER_ACTION] if is_broker else []))
    await created(walk, "t", [[leader, *followers]])
    admin, forger = await walk.opened(ADMIN), await walk.opened(FORGER)
    everybody: dict[str, Any] = produced_to("t", 0) | {"acks": -1}
    assert codes_of(await walk.ask(ADMIN, "PRODUCE", 9, everybody | {"timeout": 30_000})) == [0]
    for broker in followers:
        brokers.pause(broker)
    producing = asyncio.ensure_future(codes_by(admin, "PRODUCE", 9, everybody | {"timeout": 2000}))
    while not producing.done():
        for broker in followers:
            told = await _forged(forger, broker)
            assert is_broker or told == {TOPIC_AUTHORIZATION_FAILED}
    assert producing.result() == [0 if is_broker else REQUEST_TIMED_OUT]
    for connection in (admin, forger):
        connection.close()


async def _forged(connection: BrokerConnection, broker: int) -> set[int]:
    """ "I have all before offset 2", in a replica's name: what is answered."""
    values = fetched_from("t", 0) | {"replica_id": broker, "session_epoch": -1, "max_wait": 10}
    values["topics"][0]["partitions"][0]["fetch_offset"] = 2
    return set(codes_of(await asked_by(connection, "FETCH", 12, values))) - {0}
