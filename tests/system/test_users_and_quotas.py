"""SCRAM users and quotas on real brokers, both stores: made, told, kept over restarts, and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from holdfast.client.admin import AdminClient
from holdfast.client.quotas import alter_quotas, describe_quotas
from holdfast.client.users import delete_user, describe_users, set_password
from holdfast.model.errors import InvalidRequestError, ResourceNotFoundError, UnacceptableCredentialError
from holdfast.testing.cluster import Cluster

pytestmark = [pytest.mark.system, pytest.mark.either_store]

T = TypeVar("T")
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
BOTH = {"user": "alice", "client-id": None}


def asked(cluster: Cluster, what: Callable[[AdminClient], Awaitable[T]], broker: int | None = None) -> T:
    async def run() -> T:
        addresses = cluster.addresses() if broker is None else [cluster.addresses()[broker - 1]]
        async with AdminClient([f"{host}:{port}" for host, port in addresses]) as client:
            return await what(client)

    return asyncio.run(run())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        yield cluster


def test_users_are_made_told_kept_and_removed(cluster: Cluster) -> None:
    asked(cluster, lambda c: set_password(c, "alice", SHA_512, "one"))
    asked(cluster, lambda c: set_password(c, "alice", SHA_256, "two", iterations=8192))
    asked(cluster, lambda c: set_password(c, "a/b", SHA_512, "three"))
    with pytest.raises(UnacceptableCredentialError, match="Too few iterations"):
        asked(cluster, lambda c: set_password(c, "bob", SHA_512, "four", iterations=1))
    everybody = {"alice": {SHA_256: 8192, SHA_512: 4096}, "a/b": {SHA_512: 4096}}
    for broker in (1, 2):
        assert asked(cluster, describe_users, broker) == everybody, "brokers know when the answer comes"
    assert asked(cluster, lambda c: describe_users(c, ["a/b", "nobody", "a/b"])) == {"a/b": {SHA_512: 4096}}

    for broker in (1, 2):
        cluster.kill(broker)
    cluster.revive()
    for broker in (1, 2):
        assert asked(cluster, describe_users, broker) == everybody, "and after a restart"

    asked(cluster, lambda c: delete_user(c, "alice", [SHA_256]))
    asked(cluster, lambda c: delete_user(c, "a/b", [SHA_512]))
    with pytest.raises(ResourceNotFoundError, match="Attempt to delete a user credential that does not exist"):
        asked(cluster, lambda c: delete_user(c, "a/b", [SHA_512]))
    for broker in (1, 2):
        assert asked(cluster, describe_users, broker) == {"alice": {SHA_512: 4096}}


def test_quotas_are_set_told_kept_and_removed(cluster: Cluster) -> None:
    asked(cluster, lambda c: alter_quotas(c, BOTH, {"producer_byte_rate": 1e6, "request_percentage": 0.5}))
    asked(cluster, lambda c: alter_quotas(c, {"ip": "10.0.0.1"}, {"connection_creation_rate": 5}))
    asked(cluster, lambda c: alter_quotas(c, {"user": None}, {"consumer_byte_rate": 1}, validate_only=True))
    with pytest.raises(InvalidRequestError, match="not-an-ip is not a valid IP or resolvable host"):
        asked(cluster, lambda c: alter_quotas(c, {"ip": "not-an-ip"}, {"connection_creation_rate": 5}))
    everything = [(BOTH, {"producer_byte_rate": 1e6, "request_percentage": 0.5}),
                  ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0})]  # fmt: skip
    for broker in (1, 2):
        assert asked(cluster, describe_quotas, broker) == everything
    assert asked(cluster, lambda c: describe_quotas(c, BOTH)) == everything[:1]
    assert asked(cluster, lambda c: describe_quotas(c, {"user": "alice"})) == []

    for broker in (1, 2):
        cluster.kill(broker)
    cluster.revive()
    for broker in (1, 2):
        assert asked(cluster, describe_quotas, broker) == everything

    asked(cluster, lambda c: alter_quotas(c, BOTH, {"producer_byte_rate": None, "request_percentage": None}))
    for broker in (1, 2):
        assert asked(cluster, describe_quotas, broker) == everything[1:]


def test_partitions_that_come_and_go_have_a_quota_whichever_broker_is_asked(cluster: Cluster) -> None:
    """KIP-599: 89 from the versions on that know it, and a time to wait; counted on the controller for who asked."""
    from kio.schema.create_topics.v7 import request as newer

    def entity(m: Any, name: str, partitions: int) -> Any:
        topic = m.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
        return m.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=30), validate_only=False)

    async def ask(client: AdminClient, entity: Any) -> tuple[int, int]:
        answer = await client.ask_any(entity)
        return int(answer.topics[0].error_code.value), int(answer.throttle_time.total_seconds() * 1000)

    asked(cluster, lambda c: alter_quotas(c, {"user": "ANONYMOUS"}, {"controller_mutation_rate": 1}))
    assert asked(cluster, lambda c: ask(c, entity(newer, "a", 5)), 1) == (0, 0), "11 at once, by the window"
    code, throttle_ms = asked(cluster, lambda c: ask(c, entity(newer, "b", 12)), 2)
    assert code == 0
    assert 4_000 <= throttle_ms <= 6_000
    for broker in (1, 2):
        code, throttle_ms = asked(cluster, lambda c: ask(c, entity(newer, "c", 1)), broker)
        assert code == 89
        assert 0 < throttle_ms <= 6_000


def test_every_request_under_a_tiny_quota_is_told_to_wait(cluster: Cluster) -> None:
    from kio.schema.list_groups.v4.request import ListGroupsRequest

    async def many(client: AdminClient) -> int:
        for _ in range(50):
            answer = await client.ask_any(ListGroupsRequest())
            if answer.throttle_time:
                return int(answer.throttle_time.total_seconds() * 1000)
        return 0

    asked(cluster, lambda c: alter_quotas(c, {"user": None}, {"request_percentage": 0.001}))
    assert 0 < asked(cluster, many, 1) <= 1000
