"""The users of ``holdfast up --secure``: passwords where there are none yet, and what the client may do.

    admin    in super.users: everything
    client   reads and writes every topic, makes them, has groups and transactions; neither users, rights, quotas, nor
             brokers are its own

Only what is missing is made: a password that was changed, or a right that was taken away, stays so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.cli.up_secure import BROKER_FILE, CA_CERTIFICATE, CLIENT, MECHANISM
from holdfast.client.acls import create_acls, describe_acls
from holdfast.client.admin import AdminClient
from holdfast.client.security_options import parse_security
from holdfast.client.users import describe_users, set_password
from holdfast.model.errors import RequestTimedOutError
from holdfast.security.acls import WILDCARD, AclBinding, AclEntry, ResourcePattern
from holdfast.security.principal import Principal
from holdfast.security.resources import CLUSTER_NAME, Operation, Permission, ResourceKind

CLIENT_ID: Final = "holdfast-up"
KNOWN_WITHIN_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.005
RIGHTS: Final[Mapping[ResourcePattern, Sequence[Operation]]] = {
    ResourcePattern(ResourceKind.TOPIC, WILDCARD): (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
    ),
    ResourcePattern(ResourceKind.GROUP, WILDCARD): (Operation.READ, Operation.DESCRIBE, Operation.DELETE),
    ResourcePattern(ResourceKind.TRANSACTIONAL_ID, WILDCARD): (Operation.WRITE, Operation.DESCRIBE),
    ResourcePattern(ResourceKind.CLUSTER, CLUSTER_NAME): (Operation.IDEMPOTENT_WRITE,),
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
    """As one of the brokers, at ``brokers``; the users that were made. All brokers know of them, and of what the client
    may do, when it returns. HoldfastError."""
    security = parse_security(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(folder / BROKER_FILE),
            "ssl.truststore.location": str(folder / CA_CERTIFICATE),
        }
    )
    async with AdminClient(brokers, client_id=CLIENT_ID, security=security) as client:
        there = await describe_users(client)
        made = [user for user in passwords if user not in there]
        rights = clients_rights() if CLIENT in made else []
        for error in await create_acls(client, rights) if rights else []:
            if error is not None:
                raise error
        for user in made:
            await set_password(client, user, MECHANISM, passwords[user])
    for address in brokers if made else ():
        async with AdminClient([address], client_id=CLIENT_ID, security=security) as client:
            await _until_known(client, made, rights)
    return made


async def _until_known(client: AdminClient, users: Sequence[str], rights: Sequence[AclBinding]) -> None:
    """A broker hears of them from the controller. RequestTimedOutError: it does not."""
    limit_s = asyncio.get_running_loop().time() + KNOWN_WITHIN_S
    while not (set(users) <= set(await describe_users(client)) and set(rights) <= set(await describe_acls(client))):
        if asyncio.get_running_loop().time() > limit_s:
            raise RequestTimedOutError(f"a broker does not know of users {', '.join(users)} after {KNOWN_WITHIN_S:g} s")
        await asyncio.sleep(LOOK_AGAIN_S)
