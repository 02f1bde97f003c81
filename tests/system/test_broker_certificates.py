"""A broker whose certificate is no good, between live brokers that show each other theirs: as one that comes, and as
the controller that others come to; and how it is mended while it runs. What it can find out itself it does not start
with: so what ends does so while it runs, and what is of another authority is believed by itself alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import wait_for
from tests.certificates import LOCAL, Authority, Certificate, expired, foreign, misnamed
from tests.system.test_secured_brokers import TIMEOUT_S, SecuredBrokers, Writer, consumed

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

EXPIRED = "certificate has expired"
FOREIGN = "unable to get local issuer certificate"
MISNAMED = "IP address mismatch"
LASTS_S = 12
"""So long one lasts that ends while its broker runs."""
BAD: dict[str, Callable[[Authority, str], Certificate]] = {
    EXPIRED: lambda authority, name: authority.issue(
        name, ends=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=LASTS_S)
    ),
    FOREIGN: lambda _, name: foreign(name),
    MISNAMED: misnamed,
}


@dataclass
class Brokers(SecuredBrokers):
    """Each with a certificate of its own, that a test may choose; all ask for the other's."""

    shown: dict[int, Certificate] = field(default_factory=dict)
    trusted: dict[int, str] = field(default_factory=dict)
    """The truststore of one that does not have that of all."""
    has_ids: bool = True

    def properties(self, broker: int) -> dict[str, Any]:
        found = super().properties(broker)
        found |= {"min.insync.replicas": 1}
        if not self.has_ids:
            del found["node.id"]
        if broker in self.shown:
            self.shown[broker].write(self.folder / f"broker-{broker}.pem")
        if broker in self.trusted:
            found["ssl.truststore.location"] = self.truststore(broker)
            self.truststore(broker).write_text(self.trusted[broker])
        return found

    def truststore(self, broker: int) -> Path:
        return self.folder / f"trusted-{broker}.pem"

    def show(self, broker: int, made: Certificate) -> None:
        """At once, and from its next start on."""
        self.shown[broker] = made
        made.write(self.folder / f"broker-{broker}.pem")

    def trust(self, broker: int, *authorities: Authority) -> None:
        """At once, and from its next start on."""
        self.trusted[broker] = "".join(each.pem for each in authorities)
        self.truststore(broker).write_text(self.trusted[broker])

    def mend(self, broker: int) -> None:
        """A good one instead; for all names that the other one had, as a renewed one must be."""
        made = self.authority.issue(f"broker-{broker}", hosts=(*LOCAL, "elsewhere.example"))
        made.write(self.folder / f"broker-{broker}.pem")

    def alive(self, *asked: int) -> set[int]:
        """As the first of these says that answers; empty: none."""
        bootstrap = ",".join(f"localhost:{self.ports[broker][0]}" for broker in asked)
        try:
            return set(AdminClient(self.client() | {"bootstrap.servers": bootstrap}).list_topics(timeout=3).brokers)
        except confluent_kafka.KafkaException:
            return set()

    def wait_told(self, broker: int, text: str) -> None:
        wait_for(lambda: text in self.log(broker), f"broker {broker} to say: {text}", timeout_s=TIMEOUT_S)


@contextmanager
def started(brokers: Brokers, *which: int) -> Iterator[None]:
    """These, and those that a test starts besides, until the end."""
    try:
        for broker in which:
            brokers.start(broker)
        yield
    finally:
        for process in brokers.processes.values():
            process.kill()
        for process in brokers.processes.values():
            process.wait()


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path, "SSL", None)


@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize(("made", "found"), [(expired, "ended at "), (lambda _, name: foreign(name), FOREIGN)])
def test_one_that_others_would_not_believe_does_not_start(
    brokers: Brokers, made: Callable[[Authority, str], Certificate], found: str, has_id: bool
) -> None:
    """An operator reads listener, key and file, at once and not from the silence of a broker."""
    brokers.has_ids = has_id
    brokers.shown[1] = made(brokers.authority, "broker-1")
    with started(brokers, 1):
        assert brokers.processes[1].wait(TIMEOUT_S) == 1
    path = brokers.folder / "broker-1.pem"
    *_, last = brokers.log(1).splitlines()
    assert last.startswith(f"holdfast broker: Invalid value '{path}' of ssl.keystore.location for listener ")
    assert "CN=broker-1" in last and found in last and "expected one that" in last


@pytest.mark.parametrize("why", [FOREIGN, MISNAMED])
def test_one_that_comes_with_a_bad_certificate_is_refused_and_disturbs_nobody(brokers: Brokers, why: str) -> None:
    with started(brokers, 1, 2):
        wait_for(lambda: brokers.alive(1, 2) == {1, 2}, "two brokers", timeout_s=TIMEOUT_S)
        admin = AdminClient(brokers.client())
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(TIMEOUT_S)
        writer = Writer(brokers.client(), "t")
        controller = brokers.controller()
        brokers.shown[3] = BAD[why](brokers.authority, "broker-3")
        brokers.trusted[3] = brokers.authority.pem + brokers.shown[3].chain
        brokers.start(3)
        # Whoever listens asks who comes, and whoever connects asks whether it is the host that it meant.
        brokers.wait_told(controller, why if why is MISNAMED else f"the client's certificate is not taken: {why}")
        if why is FOREIGN:
            who = "; this broker comes as User:CN=broker-3 by ssl.keystore.location="
            brokers.wait_told(3, who)
        writer.go_on(2)
        assert brokers.alive(1, 2) == {1, 2}, "the bad one takes no part"
        brokers.mend(3)
        wait_for(lambda: brokers.alive(3) == {1, 2, 3}, "it to take part with a good one", timeout_s=TIMEOUT_S)
        writer.go_on(0.5)
        writer.end()
        assert consumed(brokers.client(), "t", len(writer.acknowledged)) == writer.acknowledged


@pytest.mark.parametrize("why", BAD)
def test_a_controller_with_a_bad_certificate_is_not_believed(brokers: Brokers, why: str) -> None:
    brokers.shown[1] = BAD[why](brokers.authority, "broker-1")
    brokers.trusted[1] = brokers.authority.pem + brokers.shown[1].chain
    with started(brokers, 1):
        brokers.wait_told(1, "broker 1 is the controller")
        if why is EXPIRED:
            ends = brokers.shown[1].certificate.not_valid_after_utc
            wait_for(lambda: dt.datetime.now(dt.UTC) > ends, "its certificate to end", timeout_s=TIMEOUT_S)
        brokers.start(2)
        brokers.wait_told(2, why)
        assert "registered as broker 2" not in brokers.log(2)
        brokers.mend(1)
        wait_for(lambda: brokers.alive(1, 2) == {1, 2}, "both, with a good one", timeout_s=TIMEOUT_S)


def test_another_authority_comes_in_three_steps_with_a_start_at_each(brokers: Brokers) -> None:
    """Brokers find each other at every step, those that run and one that is started again."""
    old, new = brokers.authority, Authority.make("New")
    mine = new.issue("client")
    settings = brokers.client() | {"ssl.ca.pem": old.pem + new.pem}
    for broker in (1, 2):
        brokers.trust(broker, old)
        brokers.show(broker, old.issue(f"broker-{broker}"))

    def both(words: str) -> None:
        def alive() -> bool:
            try:
                return set(AdminClient(settings).list_topics(timeout=3).brokers) == {1, 2}
            except confluent_kafka.KafkaException:
                return False

        wait_for(alive, f"both brokers with {words}", timeout_s=TIMEOUT_S)

    def told_again(broker: int, text: str) -> None:
        """Once more than when it was asked last."""
        wait_for(
            lambda: brokers.log(broker).count(text) > seen.get((broker, text), 0),
            f"broker {broker} to say once more: {text}", timeout_s=TIMEOUT_S,
        )  # fmt: skip
        seen[broker, text] = brokers.log(broker).count(text)

    def changed(words: str) -> None:
        for broker in (1, 2):
            told_again(broker, "listener BROKERS: the certificate of")
        both(words)
        brokers.processes[2].kill()
        brokers.processes[2].wait()
        brokers.start(2)
        told_again(2, "broker 2 serves")
        both(f"{words}, after a start")

    seen: dict[tuple[int, str], int] = {}
    with started(brokers, 1, 2):
        both("the old authority")
        told_again(2, "broker 2 serves")
        for broker in (1, 2):
            brokers.trust(broker, old, new)
        changed("both authorities")
        for broker in (1, 2):
            brokers.show(broker, new.issue(f"broker-{broker}"))
        changed("certificates of the new one")
        settings |= {"ssl.key.pem": mine.key_pem, "ssl.certificate.pem": mine.chain, "ssl.ca.pem": new.pem}
        for broker in (1, 2):
            brokers.trust(broker, new)
        changed("the new one alone")
        assert all("keeps its certificate" not in brokers.log(broker) for broker in (1, 2))
