"""The users of ``holdfast up --secure``: passwords where there are none yet, and what the client may do.

    admin    in super.users: everything
    client   reads and writes every topic, makes them, has groups and transactions; neither users, rights, quotas, nor
             brokers are its own

Only what is missing is made: a password that was changed, or a right that was taken away, stays so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.cli.up_secure import BROKER_FILE, CA_CERTIFICATE, CLIENT, MECHANISM
from holdfast.client.acls import create_acls
from holdfast.client.admin import AdminClient
from holdfast.client.security_options import parse_security
from holdfast.client.users import describe_users, set_password
from holdfast.security.acls import WILDCARD, AclBinding, AclEntry, ResourcePattern
from holdfast.security.principal import Principal
from holdfast.security.resources import CLUSTER_NAME, Operation, Permission, ResourceKind

RIGHTS: Final[Mapping[ResourcePattern, Sequence[Operation]]] = {
    ResourcePattern(ResourceKind.TOPIC, WILDCARD): (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
    ),
    ResourcePattern(ResourceKind.GROUP, WILDCARD): (Operation.READ, Operation.DESCRIBE, Operation.DELETE),
    ResourcePattern(ResourceKind.TRANSACTIONAL_ID, WILDCARD): (Operation.WRITE, Operation.DESCRIBE),
    ResourcePattern(ResourceKind.CLUSTER, CLUSTER_NAME): (Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE),
}  # fmt: skip
"""Of the user client, from the first start on."""


def clients_rights() -> list[AclBinding]:
    """As entries, from every host."""
    principal = str(Principal.user(CLIENT))
    return [
        AclBinding(resource, AclEntry(principal, WILDCARD, operation, Permission.ALLOW))
        for resource, operations in RIGHTS.items()
        for operation in operations
    ]


async def ensure_users(brokers: Sequence[str], folder: Path, passwords: Mapping[str, str]) -> list[str]:
    """As one of the brokers, at ``brokers``; the users that were made. HoldfastError."""
    security = parse_security(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(folder / BROKER_FILE),
            "ssl.truststore.location": str(folder / CA_CERTIFICATE),
        }
    )
    async with AdminClient(brokers, client_id="holdfast-up", security=security) as client:
        there = await describe_users(client, None)
        made = [user for user in passwords if user not in there]
        if CLIENT in made:
            for error in await create_acls(client, clients_rights()):
                if error is not None:
                    raise error
        for user in made:
            await set_password(client, user, MECHANISM, passwords[user])
        return made
