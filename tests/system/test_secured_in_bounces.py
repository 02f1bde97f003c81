"""A live cluster goes from PLAINTEXT to SASL_SSL in Kafka's three rolling bounces, and no write is lost."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic

from holdfast.cli.up_certificates import ensure_certificates
from holdfast.cli.up_users import clients_rights
from holdfast.client.acls import create_acls
from holdfast.client.admin import AdminClient
from holdfast.client.users import set_password
from holdfast.testing import free_port
from holdfast.testing.view import ClusterView, ask
from tests.system.bounces import TIMEOUT_S, Bounced
from tests.system.steady import PARTITIONS, SteadyLoad

pytestmark = [
    pytest.mark.system,
    pytest.mark.long("tests/system/test_secure.py shows that one that was plaintext is secured by a stop and a start"),
]
PASSWORD = "a password"
BROKERS = "User:CN=broker,O=holdfast"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,BROKERS:SSL",
    "listener.name.brokers.ssl.client.auth": "required",
}


class Secured(Bounced):
    """Brokers of this software, whose listeners are changed one broker after the other."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder)
        self._more = free_port(6)
        self.tls: ssl.SSLContext | None = None
        """Once nobody is told anything without one."""
        ensure_certificates(folder, (), ("admin",), datetime.datetime.now(datetime.UTC))

    def clients(self, broker: int) -> int:
        return self._more + broker - 1

    def brokers(self, broker: int) -> int:
        return self._more + broker + 2

    @property
    def secured(self) -> str:
        """For clients with passwords."""
        return ",".join(f"127.0.0.1:{self.clients(broker)}" for broker in self.ids)

    def bounce(self, broker: int, listeners: str, **settings: str) -> None:
        places = {
            "PLAINTEXT": self.port(broker),
            "CLIENTS": self.clients(broker),
            "BROKERS": self.brokers(broker),
        }
        told = ",".join(f"{name}://127.0.0.1:{places[name]}" for name in listeners.split())
        stores = {
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.location": str(self.folder / "ca.pem"),
        }
        self.stop(broker)
        self.start(broker, listeners=told, **AUTHORIZER, **stores, **settings)
        self.wait_serves(broker)

    def view(self, broker: int, topics: list[str]) -> ClusterView | None:
        if self.tls is None:
            return super().view(broker, topics)
        try:
            return ask("127.0.0.1", self.brokers(broker), topics, tls=self.tls)
        except OSError:
            return None


async def make_user(bootstrap: str) -> None:
    """By the listener of which everybody is super user still."""
    async with AdminClient(bootstrap) as client:
        assert await create_acls(client, clients_rights()) == [None] * len(clients_rights())
        await set_password(client, "client", "SCRAM-SHA-512", PASSWORD)


def login(cluster: Secured) -> Mapping[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "client",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(cluster.folder / "ca.pem"),
    }


def test_SEC_20_three_rolling_bounces_under_load_lose_nothing(tmp_path: Path, topic: str) -> None:
    cluster = Secured(tmp_path)
    try:
        for broker in cluster.ids:
            cluster.start(broker)
        cluster.wait_serves(*cluster.ids)
        cluster.wait_whole()
        names = [f"{topic}-{which}" for which in ("old", "new", "last")]
        admin = ConfluentAdmin({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in names]).values():
            made.result(TIMEOUT_S)
        cluster.wait_whole(*names)
        both = f"User:ANONYMOUS;{BROKERS}"
        with SteadyLoad(cluster.bootstrap, names[0]) as old:
            for broker in cluster.ids:  # 1: listeners for both
                old.goes_on()
                cluster.bounce(broker, "PLAINTEXT CLIENTS BROKERS", **{"super.users": both})
                cluster.wait_whole(*names)
            asyncio.run(make_user(cluster.bootstrap))
            with SteadyLoad(cluster.secured, names[1], client=login(cluster)) as new:
                for broker in cluster.ids:  # 2: brokers use their own
                    old.goes_on()
                    new.goes_on()
                    given = {"super.users": both, "inter.broker.listener.name": "BROKERS"}
                    cluster.bounce(broker, "PLAINTEXT CLIENTS BROKERS", **given)
                    cluster.wait_whole(*names)
                old.goes_on()
                new.goes_on()
        with SteadyLoad(cluster.secured, names[2], client=login(cluster)) as new:
            cluster.tls = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            cluster.tls.load_cert_chain(tmp_path / "broker.pem")
            for broker in cluster.ids:  # 3: nobody gets in without a login
                new.goes_on()
                given = {"super.users": BROKERS, "inter.broker.listener.name": "BROKERS"}
                cluster.bounce(broker, "CLIENTS BROKERS", **given)
                cluster.wait_whole(*names)
            new.goes_on()
        strangers = ConfluentAdmin({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            strangers.list_topics(timeout=2)
    finally:
        cluster.end()
