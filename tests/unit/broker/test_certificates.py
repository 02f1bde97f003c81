"""Certificates of a broker's listeners: what it starts with, what is in force after files have changed, and what is
shown to others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.broker.certificates import Certificates
from holdfast.broker.platform import Platform, WorkThread
from holdfast.client.outgoing import Outgoing
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError
from tests.certificates import LOCAL, Authority, Certificate, expired, foreign
from tests.unit.broker.conftest import until

AUTHORITY = Authority.make()


class Host:
    """A broker with CLIENTS and INTERNAL, which have the same files unless ``own`` has some for INTERNAL."""

    def __init__(self, folder: Path, shown: Certificate, own: Certificate | None = None) -> None:
        self.keystore, self.own, self.truststore = (folder / f"{name}.pem" for name in ("keys", "own", "trust"))
        shown.write(self.keystore)
        AUTHORITY.write(self.truststore)
        keys = {
            "node.id": "1",
            "log.dirs": str(folder),
            "listeners": "CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENTS:SSL,INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.location": str(self.truststore),
            "listener.name.internal.ssl.client.auth": "required",
        }
        if own is not None:
            keys["listener.name.internal.ssl.keystore.location"] = own.write(self.own)
        self.config = BrokerConfig.parse(keys)
        self.outgoing = Outgoing.of(self.config)
        self.platform = Platform.real()
        self.loop = asyncio.get_running_loop()
        self.threads: list[WorkThread] = []
        self.certificates = Certificates(self)

    def thread(self, name: str) -> WorkThread:
        self.threads.append(self.platform.thread(name, self.loop))
        return self.threads[-1]

    def end_thread(self, thread: WorkThread) -> None:
        thread.close()

    def shown(self, listener: str) -> str:
        found = self.certificates.of(listener)
        assert found is not None and found.in_force.tls.settings.certificates is not None
        return found.in_force.tls.settings.certificates

    def shown_to_others(self) -> str | None:
        tls = self.outgoing.settings(self.config.listening.told_to_brokers).tls
        assert tls is not None
        return tls.certificates


@contextmanager
def running(folder: Path, shown: Certificate, own: Certificate | None = None) -> Iterator[Host]:
    host = Host(folder, shown, own)
    try:
        host.certificates.open(host.config.listening)
        yield host
    finally:
        host.certificates.close()


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_broker_does_not_start_with_what_others_would_not_believe(tmp_path: Path) -> None:
    good = AUTHORITY.issue("broker")

    async def check(shown: Certificate, own: Certificate | None, words: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError) as caught, running(tmp_path, shown, own):
            pytest.fail("it has started")
        for each in words:
            assert each in caught.value.message

    over, strange = expired(AUTHORITY, "broker"), foreign("broker")
    ended = f"{over.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    for listener, shown, own in (("CLIENTS", over, good), ("INTERNAL", good, over)):
        asyncio.run(check(shown, own, (f"for listener {listener}", ended, "expected one that is valid now")))
    key, path = "listener.name.internal.ssl.keystore.location", tmp_path / "own.pem"
    asyncio.run(check(good, strange, (f"'{path}' of {key} for listener INTERNAL", "CN=Another authority", "trust.pem")))

    async def start() -> None:
        with running(tmp_path, strange, good) as host:  # clients may believe others than brokers do
            assert host.certificates.ends().keys() == {"CLIENTS", "INTERNAL"}

    asyncio.run(start())


@pytest.mark.parametrize("kind", ["ended", "of another authority", "forgotten"])
def test_files_that_would_take_a_broker_from_its_cluster_change_nothing(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On both listeners that have them; and when they are good again, they are in force."""
    caplog.set_level(logging.INFO, "holdfast.broker.certificates")

    async def check() -> None:
        with running(tmp_path, AUTHORITY.issue("broker")) as host:
            before = host.shown("INTERNAL")
            if kind == "forgotten":
                Authority.make("New").write(host.truststore)
            else:
                made = expired(AUTHORITY, "broker") if kind == "ended" else foreign("broker")
                made.write(host.keystore)
            await until(lambda: len(refusals(caplog)) == 2)
            assert host.shown("CLIENTS") == host.shown("INTERNAL") == host.shown_to_others() == before
            with pytest.raises(ConfigError, match=r"of ssl\.(key|trust)store\.location for listener"):
                await host.certificates.check(host.config)
            renewed = AUTHORITY.issue("broker")
            renewed.write(host.keystore)
            AUTHORITY.write(host.truststore)
            await until(lambda: host.shown("CLIENTS") == host.shown("INTERNAL") == renewed.chain)
            assert host.shown_to_others() == renewed.chain
            await host.certificates.check(host.config)

    asyncio.run(check())
    assert all(line.startswith("listener ") and "keeps its certificate: " in line for line in refusals(caplog))


def test_what_a_listener_does_not_take_is_shown_to_no_other_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when another listener is renewed meanwhile."""
    own = AUTHORITY.issue("broker")

    async def check() -> None:
        with running(tmp_path, AUTHORITY.issue("broker"), own) as host:
            foreign("broker").write(host.own)
            await until(lambda: len(refusals(caplog)) == 1)
            renewed = AUTHORITY.issue("broker", hosts=(*LOCAL, "another"))
            renewed.write(host.keystore)
            await until(lambda: host.shown("CLIENTS") == renewed.chain)
            assert host.shown("INTERNAL") == host.shown_to_others() == own.chain

    asyncio.run(check())


def test_when_the_first_of_a_chain_ends_is_known(tmp_path: Path) -> None:
    async def check() -> None:
        between = AUTHORITY.below("between")
        with running(tmp_path, between.issue("broker", days=40), AUTHORITY.issue("broker", days=1)) as host:
            found = host.certificates.ends()
            assert found["CLIENTS"] == between.certificate.not_valid_after_utc.timestamp()
            assert 0 < found["INTERNAL"] - host.platform.wall_s() <= 86_400

    asyncio.run(check())
