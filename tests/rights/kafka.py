"""Apache Kafka 4.3.0 with an authorizer and logins, one node: asked the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers.kafka import Peer

from tests.rights.walk import ADMIN, jaas

CONTROLLER_OFFSET = 500


class SecuredKafka(Peer):
    """Clients and brokers by SASL_PLAINTEXT; the controller's own listener is open."""

    def __init__(self, jars: Path, folder: Path, port: int, users: Iterable[str]) -> None:
        settings = [
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            f"super.users=User:{ADMIN};User:ANONYMOUS",
            "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN", "sasl.mechanism.inter.broker.protocol=PLAIN",
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas(users)}",
            "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1",
            "group.initial.rebalance.delay.ms=0",
        ]  # fmt: skip
        super().__init__(jars=jars, data_dir=folder, brokers=1, log_dirs=1, port=port, settings=settings)

    def _java(self, main: str, *arguments: str, heap: list[str]) -> list[str]:
        return super()._java(main, *arguments, heap=["-Xmx512M", "-XX:TieredStopAtLevel=1"])

    def _quorum_keys(self, node: int) -> dict[str, object]:
        keys = super()._quorum_keys(node)
        return keys | {"listeners": str(keys["listeners"]).replace("PLAINTEXT://", "SASL_PLAINTEXT://", 1)}
