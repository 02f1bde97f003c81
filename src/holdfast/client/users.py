"""Users of a cluster that log in by SCRAM (APIs 50 and 51): what there is, one more password, one less.

Functions over an AdminClient, with plain values. A password never leaves: what is sent is what PBKDF2 makes of it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.client.admin import AdminClient
from holdfast.client.refused import raise_for
from holdfast.model.errors import ResourceNotFoundError
from holdfast.protocol.error_codes import code_of
from holdfast.security.scram_credential import LEAST_ITERATIONS, MECHANISMS, SALT_BYTES, ScramMechanism

_NOT_FOUND: Final = code_of(ResourceNotFoundError)


async def describe_users(client: AdminClient, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
    """Iterations by mechanism, of all users or of those that are named; who is no user is left out. Raises the
    broker's error: ClusterAuthorizationFailedError to who may not Describe the cluster."""
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest, UserName

    users = None if names is None else tuple(UserName(name=name) for name in dict.fromkeys(names))
    if users == ():
        return {}

    async def once() -> dict[str, dict[str, int]]:
        answer = await client.ask_any(DescribeUserScramCredentialsRequest(users=users))
        raise_for(answer.error_code.value, answer.error_message, "users")
        found = {}
        for result in answer.results:
            if result.error_code.value != _NOT_FOUND:
                raise_for(result.error_code.value, result.error_message, f"user {result.user}")
                found[result.user] = {_name(info.mechanism): int(info.iterations) for info in result.credential_infos}
        return found

    return await client.retrying(once)


async def set_password(
    client: AdminClient, user: str, mechanism: str, password: str, *, iterations: int = LEAST_ITERATIONS
) -> None:
    """The user can log in with ``mechanism`` (SCRAM-SHA-256 or SCRAM-SHA-512) and this password, and with no other.
    Raises the broker's error: UnacceptableCredentialError for too few or too many iterations."""
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from kio.static.primitive import i8, i32

    made = MECHANISMS[mechanism]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(made.hash_name, password.encode(), salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=i8(made), iterations=i32(iterations), salt=salt, salted_password=salted
    )
    answer = await client.ask_controller(AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))
    for result in answer.results:
        raise_for(result.error_code.value, result.error_message, f"user {result.user}")


async def delete_user(client: AdminClient, user: str, mechanisms: Sequence[str]) -> None:
    """The user can log in with these mechanisms no more. ResourceNotFoundError: it could not. Each is a request of its
    own, as a request may name a user once; not retried, as an answer may be lost although it was done."""
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )
    from kio.static.primitive import i8

    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=user, mechanism=i8(MECHANISMS[mechanism]))
        answer = await client.ask_controller(AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=()))
        for result in answer.results:
            raise_for(result.error_code.value, result.error_message, f"user {result.user}")


def _name(mechanism: int) -> str:
    try:
        return ScramMechanism(mechanism).sasl_name
    except ValueError:
        return f"UNKNOWN({mechanism})"
