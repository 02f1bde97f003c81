"""Who asks for the salts of users does not find out which of them there are: three brokers that log in by SCRAM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from holdfast.protocol.scram import ScramClient
from holdfast.testing import wait_for
from tests.system.test_logins import Wire
from tests.system.test_secured_brokers import TIMEOUT_S, SecuredBrokers, running

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

MECHANISM = "SCRAM-SHA-512"
MADE, NOBODY, OWN = "alice", "nobody of this name", "broker"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[SecuredBrokers]:
    found = SecuredBrokers(tmp_path, "SASL_PLAINTEXT", MECHANISM)
    with running(found):
        yield found


def asked(brokers: SecuredBrokers, broker: int, user: str) -> tuple[str, ...]:
    """Salt and iterations, as this broker answers whoever asks first."""
    wire = Wire(brokers.ports[broker][0])
    with wire.sock:
        code, _ = wire.handshake(MECHANISM)
        assert code == 0
        code, message, challenge, _ = wire.token(ScramClient(MECHANISM, user, "a guess", "nonce").first())
        assert (code, message) == (0, None)
        return tuple(challenge.decode().split(",")[1:])


def everywhere(brokers: SecuredBrokers, user: str) -> list[tuple[str, ...]]:
    return [asked(brokers, broker, user) for broker in brokers.ports]


def test_salts_are_the_same_at_every_broker_and_after_restarts(brokers: SecuredBrokers) -> None:
    before_any = everywhere(brokers, NOBODY)
    credential = UserScramCredentialUpsertion(MADE, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"wonder")
    admin = AdminClient(brokers.client())
    for future in admin.alter_user_scram_credentials([credential]).values():
        future.result(TIMEOUT_S)
    # With the first user the salts get a secret to be made of, and its form.
    wait_for(
        lambda: len({*everywhere(brokers, NOBODY), *before_any}) == 2, "the secret everywhere", timeout_s=TIMEOUT_S
    )
    users = (MADE, NOBODY, OWN)
    told = {user: everywhere(brokers, user) for user in users}
    for user in users:
        assert len(set(told[user])) == 1, f"one answer for {user} at all brokers: {told[user]}"
    assert len({told[user][0] for user in users}) == 3, "and each user has a salt of its own"
    assert len({(len(salt), iterations) for salt, iterations in (told[user][0] for user in users)}) == 1, (
        "librdkafka's form"
    )

    for process in brokers.processes.values():
        process.terminate()
    for process in brokers.processes.values():
        process.wait(TIMEOUT_S)
    for broker in brokers.ports:
        brokers.start(broker)
    brokers.wait_alive()
    wait_for(
        lambda: {user: everywhere(brokers, user) for user in users} == told,
        "the same answers after a restart of all",
        timeout_s=TIMEOUT_S,
    )
