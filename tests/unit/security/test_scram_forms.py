"""The form of a challenge tells nothing of who is a user: nobody is answered in the forms that users have."""

from __future__ import annotations

import base64
import os
import re
from collections import Counter

import pytest

from holdfast.broker.sasl_listeners import sasl_listeners
from holdfast.broker.user_view import UserView
from holdfast.client.users import SALT_BYTES
from holdfast.metadata.codec_news import encode_news
from holdfast.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from holdfast.model.config import BrokerConfig
from holdfast.protocol.interbroker import TYPE_INCREMENTAL
from holdfast.protocol.scram import ScramClient
from holdfast.security.sasl_mechanism import Challenge
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from holdfast.security.scram_forms import DEFAULT, CredentialForm, SaltText

SHA_256, SHA_512 = ScramMechanism
NAMES = [f"name-{number}" for number in range(2000)]
OWN = "broker"
CONFIG = {
    "node.id": "1",
    "log.dirs": "/nowhere",
    "listeners": "SASL_PLAINTEXT://localhost:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{OWN}" password="secret";'
    ),
}


class News:
    """What is looked at of an UpdateMetadata."""

    def __init__(
        self, records: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord], type: int = TYPE_INCREMENTAL
    ) -> None:
        self.scram_users, self.type = encode_news(records), type


class Told:
    """A broker that is told of users, and asked by those who log in."""

    def __init__(self) -> None:
        self.users = UserView("c")
        listeners = sasl_listeners(BrokerConfig.parse(CONFIG), self.users, os.urandom)
        self.mechanisms = listeners["SASL_PLAINTEXT"].mechanisms

    def make(self, user: str, salt: bytes, iterations: int = 4096, mechanism: ScramMechanism = SHA_512) -> None:
        credential = ScramCredential.of_salted(mechanism, salt, b"salted", iterations)
        self.users.update(News([UserScramCredentialRecord(name=user, mechanism=mechanism, credential=credential)]))

    def shown(self, user: str, mechanism: ScramMechanism = SHA_512) -> CredentialForm:
        client = ScramClient(mechanism.sasl_name, user, "a guess", "nonce")
        step = self.mechanisms[mechanism.sasl_name]().answer(client.first(), 0)
        assert isinstance(step, Challenge)
        _, salt, iterations = (field.partition(b"=")[2] for field in step.token.split(b","))
        return CredentialForm.of(ScramCredential(base64.b64decode(salt), b"", b"", int(iterations)))


def kafkas(length: int) -> bytes:
    """As Kafka's ScramFormatter makes one: a number below 2^130 in base 36."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    while True:
        number, text = int.from_bytes(os.urandom(17)) % (1 << 130), ""
        while number:
            number, digit = divmod(number, 36)
            text = digits[digit] + text
        if len(text) == length:
            return text.encode()


def test_without_users_it_is_what_our_own_command_makes() -> None:
    told = Told()
    assert {told.shown(name) for name in NAMES[:50]} == {DEFAULT}
    told.make("alice", os.urandom(SALT_BYTES))
    assert told.shown("alice") == told.shown(OWN) == DEFAULT
    assert {told.shown(name) for name in NAMES[:50]} == {DEFAULT}, "the first user changes nothing"


@pytest.mark.parametrize("length", [24, 25, 26])
def test_a_cluster_of_kafkas_users(length: int) -> None:
    told = Told()
    told.make("alice", kafkas(length), 8192)
    found = {told.shown(name) for name in NAMES[:200]}
    assert found == {told.shown("alice"), told.shown(OWN)} == {(length, SaltText.DIGITS_AND_LETTERS, 8192)}
    assert told.shown("alice", SHA_256) == DEFAULT, "no user has that mechanism"


@pytest.mark.parametrize("length", [24, 25, 26])
def test_a_salt_as_kafkas_is_a_number_that_kafka_could_have_made(length: int) -> None:
    form = CredentialForm(length, SaltText.DIGITS_AND_LETTERS, 4096)
    made = [form.salt(name.encode(), b"key") for name in NAMES]
    assert len(set(made)) == len(made)
    for salt in made:
        assert re.fullmatch(b"[1-9a-z][0-9a-z]*", salt) and len(salt) == length
        assert int(salt, 36) < 1 << 130
    assert {int(salt[:1], 36) for salt in made} == ({1} if length == 26 else set(range(1, 36)))


@pytest.mark.parametrize(
    "salt", [b"", b"a", b"7f", b"\0" * 24, bytes(range(192, 256)), b"5fce" * 16, b"z" * 40, b"x" * 1024]
)
def test_every_form_gives_salts_of_its_own_form(salt: bytes) -> None:
    form = CredentialForm.of(ScramCredential(salt, b"", b"", 5000))
    if len(salt) > 8:
        made = [form.salt(name.encode(), b"key") for name in NAMES[:50]]
        assert {CredentialForm.of(ScramCredential(each, b"", b"", 5000)) for each in made} == {form}
        assert len(set(made)) == 50
    assert len(form.salt(b"name", b"key")) == len(salt)


def test_forms_are_as_frequent_among_nobody_as_among_users() -> None:
    told = Told()
    for number in range(60):
        told.make(f"ours-{number}", os.urandom(SALT_BYTES))
    for number in range(30):
        told.make(f"kafkas-{number}", kafkas(25), 4096 if number % 2 else 16384)
    for number in range(10):
        told.make(f"librdkafkas-{number}", os.urandom(64), 10_000)
    counted = Counter(told.shown(name) for name in NAMES)
    assert set(counted) == set(told.users.forms[SHA_512]._counts)
    for form, count in told.users.forms[SHA_512]._counts.items():
        assert counted[form] == pytest.approx(len(NAMES) * count / 100, rel=0.3)
    assert Counter(told.shown(name) for name in NAMES) == counted, "asked again"


def test_a_name_keeps_its_form_as_far_as_users_keep_theirs() -> None:
    told, other = Told(), Told()
    for number in range(50):
        told.make(f"ours-{number}", os.urandom(SALT_BYTES))
        other.make(f"ours-{49 - number}", os.urandom(SALT_BYTES))
    told.make("kafkas", kafkas(25))
    other.make("kafkas", kafkas(25))
    before = [told.shown(name) for name in NAMES]
    assert before == [other.shown(name) for name in NAMES], "the same at all brokers, told in another order"
    told.make("ours-7", os.urandom(SALT_BYTES))
    assert before == [told.shown(name) for name in NAMES], "another password"
    told.make("kafkas-2", kafkas(26))
    after = [told.shown(name) for name in NAMES]
    assert 0 < sum(a != b for a, b in zip(before, after, strict=True)) < len(NAMES) / 20
    told.users.update(News([RemoveUserScramCredentialRecord(name="kafkas-2", mechanism=SHA_512)]))
    assert before == [told.shown(name) for name in NAMES]
