"""SCRAM users: who can log in by which mechanism, each with a record. Texts and order of checks are Kafka's.

With the first user comes the secret that the salts of unknown users are made of. It is made in the same commit, once,
by whoever reigns, so that a cluster without users has nothing that an older broker cannot read; and for users that came
with a tree of Kafka's by the first look at what is due.
"""

from typing import Final

from holdfast.controller.events import Decision
from holdfast.controller.state import ControllerState
from holdfast.controller.user_events import AlterScramUsers, AlterScramUsersReply, ScramUpsertion
from holdfast.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    UserScramCredentialRecord,
)
from holdfast.model.errors import (
    DuplicateResourceError,
    HoldfastError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from holdfast.model.types import TimestampMs
from holdfast.security.scram_credential import LEAST_ITERATIONS, MOST_ITERATIONS, ScramCredential, ScramMechanism

MOST_NAME_BYTES: Final = 1024
"""Of a user's name: it is the name of a node in ZooKeeper, three times as long there at most."""
MOST_SALT_BYTES: Final = 1024
_NUMBERS: Final = frozenset(map(int, ScramMechanism))


def alter_scram_users(state: ControllerState, event: AlterScramUsers, now_ms: TimestampMs) -> Decision:
    """One result for each user. A user that is named twice keeps what it had."""
    results: dict[str, HoldfastError | None] = {}
    records: dict[str, MetadataRecord] = {}
    for name, mechanism in event.deletions:
        error = _twice(results, name) or _delete_error(state, name, mechanism)
        results[name] = results.get(name) or error
        if error is None:
            records[name] = RemoveUserScramCredentialRecord(name=name, mechanism=ScramMechanism(mechanism))
    for wanted in event.upsertions:
        error = _twice(results, wanted.name) or _upsert_error(wanted)
        results[wanted.name] = results.get(wanted.name) or error
        if error is None:
            records[wanted.name] = _credential(wanted)
    made = [record for name, record in records.items() if results[name] is None]
    if not state.image.users.secret and any(isinstance(record, UserScramCredentialRecord) for record in made):
        made.insert(0, ScramSecretRecord(secret=state.settings.scram_secret))
    return Decision(records=tuple(made), reply=AlterScramUsersReply(users=tuple(results.items())))


def lacks_secret(state: ControllerState) -> bool:
    """Whether there are users and no secret."""
    return bool(state.image.users.credentials) and not state.image.users.secret


def make_secret(state: ControllerState) -> tuple[MetadataRecord, ...]:
    """The secret, where it is lacking."""
    return (ScramSecretRecord(secret=state.settings.scram_secret),) if lacks_secret(state) else ()


def _twice(results: dict[str, HoldfastError | None], name: str) -> HoldfastError | None:
    if name not in results:
        return None
    return DuplicateResourceError("A user credential cannot be altered twice in the same request")


def _delete_error(state: ControllerState, name: str, mechanism: int) -> HoldfastError | None:
    error = _name_error(name, mechanism)
    if error is None and (name, ScramMechanism(mechanism)) not in state.image.users.credentials:
        error = ResourceNotFoundError("Attempt to delete a user credential that does not exist")
    return error


def _upsert_error(wanted: ScramUpsertion) -> HoldfastError | None:
    error = _name_error(wanted.name, wanted.mechanism)
    if error is not None:
        return error
    if wanted.iterations < LEAST_ITERATIONS:
        return UnacceptableCredentialError("Too few iterations")
    if wanted.iterations > MOST_ITERATIONS:
        return UnacceptableCredentialError("Too many iterations")
    if len(wanted.name.encode()) > MOST_NAME_BYTES:
        return UnacceptableCredentialError(f"Username must have at most {MOST_NAME_BYTES} bytes")
    if not wanted.salted_password or len(wanted.salt) > MOST_SALT_BYTES:
        return UnacceptableCredentialError(f"Expected a salted password, and a salt of at most {MOST_SALT_BYTES} bytes")
    return None


def _name_error(name: str, mechanism: int) -> HoldfastError | None:
    if not name:
        return UnacceptableCredentialError("Username must not be empty")
    if mechanism not in _NUMBERS:
        return UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    return None


def _credential(wanted: ScramUpsertion) -> UserScramCredentialRecord:
    mechanism = ScramMechanism(wanted.mechanism)
    credential = ScramCredential.of_salted(mechanism, wanted.salt, wanted.salted_password, wanted.iterations)
    return UserScramCredentialRecord(name=wanted.name, mechanism=mechanism, credential=credential)
