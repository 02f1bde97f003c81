"""Access control lists on real brokers, both stores: who is asked for, told and refused.

On PLAINTEXT everybody is User:ANONYMOUS: as a super user it makes and sees entries, and as nobody it may do nothing,
until its file says so. Brokers go by their own listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from holdfast.client.acls import RemovedAcls, create_acls, delete_acls, describe_acls
from holdfast.client.admin import AdminClient
from holdfast.model.errors import InvalidRequestError, SecurityDisabledError
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from holdfast.testing.cluster import Cluster

pytestmark = [pytest.mark.system, pytest.mark.either_store]

T = TypeVar("T")
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}


def asked(cluster: Cluster, what: Callable[[AdminClient], Awaitable[T]], broker: int | None = None) -> T:
    async def run() -> T:
        addresses = cluster.addresses() if broker is None else [cluster.addresses()[broker - 1]]
        async with AdminClient([f"{host}:{port}" for host, port in addresses]) as client:
            return await what(client)

    return asyncio.run(run())


def acl(name: str, operation: Operation, **more: str) -> AclBinding:
    pattern = PatternKind[more.get("pattern", "LITERAL")]
    entry = AclEntry(more.get("who", "User:alice"), "*", operation, Permission[more.get("permission", "ALLOW")])
    return AclBinding(ResourcePattern(ResourceKind.TOPIC, name, pattern), entry)


READ, PREFIX, SLASH = (
    acl("t", Operation.READ),
    acl("team-", Operation.ALL, pattern="PREFIXED", permission="DENY"),
    AclBinding(
        ResourcePattern(ResourceKind.GROUP, "a/b"), AclEntry("User:a b", "1.2.3.4", Operation.READ, Permission.ALLOW)
    ),
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, settings=SUPER) as cluster:
        yield cluster


def test_entries_are_made_told_kept_and_removed(cluster: Cluster) -> None:
    made = asked(cluster, lambda c: create_acls(c, [READ, PREFIX, SLASH, READ]))
    assert made == [None] * 4
    bad = asked(cluster, lambda c: create_acls(c, [acl("", Operation.READ), acl("u", Operation.WRITE)]))
    assert isinstance(bad[0], InvalidRequestError) and bad[0].message == "Invalid empty resource name"
    assert bad[1] is None
    everything = sorted([READ, PREFIX, SLASH, acl("u", Operation.WRITE)])
    for broker in (1, 2):
        assert asked(cluster, describe_acls, broker) == everything, "brokers know when the answer comes"
    wanted = AclFilter(kind=ResourceKind.TOPIC, name="team-7", pattern=PatternKind.MATCH)
    assert asked(cluster, lambda c: describe_acls(c, wanted)) == [PREFIX]

    for broker in (1, 2):
        cluster.kill(broker)
    cluster.revive()
    for broker in (1, 2):
        assert asked(cluster, describe_acls, broker) == everything, "and after a restart"

    removed = asked(cluster, lambda c: delete_acls(c, [wanted, AclFilter(name="t"), AclFilter(name="none")]))
    assert removed == [RemovedAcls((PREFIX,), None), RemovedAcls((READ,), None), RemovedAcls((), None)]
    for broker in (1, 2):
        assert asked(cluster, describe_acls, broker) == sorted([SLASH, acl("u", Operation.WRITE)])


def test_without_an_authorizer_there_are_none() -> None:
    with Cluster(brokers=1) as cluster:
        with pytest.raises(SecurityDisabledError, match="No Authorizer is configured"):
            asked(cluster, describe_acls)
        assert [type(e) for e in asked(cluster, lambda c: create_acls(c, [READ]))] == [SecurityDisabledError]
