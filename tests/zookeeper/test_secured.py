"""Brokers that reach their ensemble by TLS and say who they are, with zookeeper.set.acl: what is whose then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from holdfast.java.zookeeper import ServerSettings
from holdfast.testing import free_port
from tests.zookeeper.brokers import Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.server import TICK_MS, ZooKeeperServer

pytestmark = pytest.mark.system

CERTIFICATES = Path(__file__).parent / "certificates"
NUMBERS = count(1)
TLS = {
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "zookeeper.ssl.keystore.location": str(CERTIFICATES / "client.pem"),
    "zookeeper.ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
}
DIGEST = {"zookeeper.auth.digest": "holdfast:hush"}
SASL = {
    "zookeeper.sasl.mechanism": "DIGEST-MD5",
    "zookeeper.sasl.username": "holdfast",
    "zookeeper.sasl.password": "hush",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Takes plain connections, encrypted ones that show a certificate, and SASL if a client wants it."""
    folder = tmp_path_factory.mktemp("zookeeper")
    jaas = folder / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_holdfast="hush"; };\n')
    more = (
        f"secureClientPort={free_port()}",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={CERTIFICATES / 'server.pem'}",
        f"ssl.trustStore.location={CERTIFICATES / 'authority.pem'}",
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    )
    settings = ServerSettings(
        folder=folder, host="127.0.0.1", client_port=free_port(), tick_ms=TICK_MS, more=more,
        java_options=(f"-Djava.security.auth.login.config={jaas}",),
    )  # fmt: skip
    with ZooKeeperServer(folder, settings=settings) as started:
        started.secure_port = int(more[0].partition("=")[2])  # type: ignore[attr-defined]
        yield started


@pytest.mark.parametrize("who", [TLS | DIGEST, SASL, DIGEST], ids=["TLS and digest", "SASL", "digest"])
def test_a_cluster_lives_by_it_and_strangers_neither_change_nor_read_what_is_secret(
    server: ZooKeeperServer, tmp_path: Path, who: dict[str, str]
) -> None:
    nodes = ClusterNodes(server, f"/secured-{next(NUMBERS)}")
    secure_port: int = server.secure_port  # type: ignore[attr-defined]
    place = f"localhost:{secure_port}" if "zookeeper.ssl.client.enable" in who else server.connect
    settings = {**who, "zookeeper.set.acl": "true", "zookeeper.connect": place + nodes.chroot}
    with closing(nodes), Brokers(tmp_path, nodes, count=2, settings=settings) as brokers:
        brokers.create("t", [[1, 2]])
        brokers.produce("t", 0, 20, 1)
        killed = brokers.controller
        brokers.kill(killed)
        brokers.wait_controller(killed)
        brokers.start(killed)
        brokers.wait_in_sync(["t"])
        assert brokers.consume("t", 0) == list(range(20))
        stranger = KazooClient(server.connect, timeout=10)
        stranger.start(30)
        try:
            said, _ = stranger.get(f"{nodes.chroot}/brokers/topics/t")
            assert json.loads(said)["partitions"] == {"0": [1, 2]}, "what is no secret is read by all, as with Kafka"
            for path in ("/brokers/topics/t", "/controller", "/config/topics/t", "/kafka-acl"):
                with pytest.raises(NoAuthError):
                    stranger.set(nodes.chroot + path, b"{}")
            for path in ("/config/users", "/config/brokers", "/holdfast/scram_secret"):
                if path == "/holdfast/scram_secret" and stranger.exists(nodes.chroot + path) is None:
                    continue  # it is made with the first user
                with pytest.raises(NoAuthError):
                    stranger.get(nodes.chroot + path)
            with pytest.raises(NoAuthError):
                stranger.create(f"{nodes.chroot}/config/users/mallory", b"{}")
        finally:
            stranger.stop()
            stranger.close()
        for broker in brokers.ids:
            assert "hush" not in brokers.log(broker, 1 << 20)
