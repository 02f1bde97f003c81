"""An entry that comes or goes counts for the next request on connections that are open, on every broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.client.acls import create_acls, delete_acls
from holdfast.client.admin import AdminClient
from holdfast.client.sasl import SaslSettings
from holdfast.client.security import SecuritySettings
from holdfast.client.views import NewTopic
from holdfast.model.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError
from holdfast.model.listeners import SecurityProtocol
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.resources import Operation, Permission, ResourceKind
from tests.rights.brokers import SecuredBrokers
from tests.rights.walk import ADMIN, PASSWORD

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

ALICE, BROKERS = "alice", (1, 2, 3)
BATCH = encode_batch([Record(0, 1, None, b"v")])
T = TopicPartition("t", 0)
WITHIN_S = 1.0


def acl(operation: Operation, who: str = "User:alice", permission: Permission = Permission.ALLOW) -> AclBinding:
    return AclBinding(ResourcePattern(ResourceKind.TOPIC, "t"), AclEntry(who, "*", operation, permission))


def client(brokers: SecuredBrokers, user: str) -> AdminClient:
    sasl = SaslSettings(mechanism="PLAIN", user=user, password=PASSWORD)
    addresses = (brokers.address(broker) for broker in brokers.ids)
    security = SecuritySettings(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=sasl)
    return AdminClient([f"{host}:{port}" for host, port in addresses], security=security)


async def codes(client: AdminClient) -> list[int]:
    """What each broker answers to who asks for the topic, on the connection that there is."""
    from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name="t"),),  # type: ignore[arg-type]
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    answers = await asyncio.gather(*(client.ask_broker(broker, request) for broker in BROKERS))
    return [int(answer.topics[0].error_code) for answer in answers]


async def story(admin: AdminClient, alice: AdminClient) -> None:
    await admin.create_topic(NewTopic(name="t", partitions=1, replication_factor=3))
    assert await codes(alice) == [29] * 3, "nobody has allowed it"
    await create_acls(admin, [acl(Operation.WRITE), acl(Operation.READ)])
    assert await codes(alice) == [0] * 3
    await alice.produce("t", 0, BATCH)
    assert (await alice.fetch_raw(T, 0)).records

    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    await delete_acls(admin, [AclFilter(operation=Operation.WRITE)])
    with pytest.raises(TopicAuthorizationFailedError):
        await alice.produce("t", 0, BATCH, retry=False)
    assert loop.time() - begin_s < WITHIN_S
    assert await codes(alice) == [0] * 3, "reading implies describing"

    begin_s = loop.time()
    await create_acls(admin, [acl(Operation.ALL, "User:*", Permission.DENY)])
    assert await codes(alice) == [29] * 3
    with pytest.raises(TopicAuthorizationFailedError):
        await alice.fetch_raw(T, 0)
    assert loop.time() - begin_s < WITHIN_S
    assert await codes(admin) == [0] * 3, "a super user is not asked"
    for _ in range(20):
        with pytest.raises(TopicAuthorizationFailedError):
            await alice.produce("t", 0, BATCH, retry=False)
    refused = await create_acls(alice, [acl(Operation.WRITE)])
    assert [type(error) for error in refused] == [ClusterAuthorizationFailedError]
    await delete_acls(admin, [AclFilter(permission=Permission.DENY)])
    assert await codes(alice) == [0] * 3


def lines(logs: Iterable[str], *parts: str) -> list[str]:
    return [line for log in logs for line in log.splitlines() if all(part in line for part in parts)]


def test_an_entry_counts_for_the_next_request_of_open_connections(tmp_path: Path) -> None:
    async def run(brokers: SecuredBrokers) -> None:
        async with client(brokers, ADMIN) as admin, client(brokers, ALICE) as alice:
            await story(admin, alice)

    with SecuredBrokers(tmp_path, [ALICE], len(BROKERS)) as brokers:
        asyncio.run(run(brokers))
        logs = [(tmp_path / f"{broker}.log").read_text() for broker in brokers.ids]
    denied = lines(logs, "Principal = User:alice is Denied operation = WRITE from host = 127.0.0.1 on resource = ")
    assert lines(denied, "Topic:LITERAL:t for request = Produce with resourceRefCount = 1 based on rule DefaultDeny")
    assert lines(denied, "based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, ", "=DENY))")
    assert lines(
        logs, "User:alice is Denied operation = ALTER", "Cluster:LITERAL:kafka-cluster for request = CreateAcls"
    )
    assert not lines(logs, "User:admin is Denied")
