"""Apache Kafka from Maven with what our brokers do not have yet: TLS, SASL, racks, transactions."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.kafka import Peer

CERTIFICATES = Path(__file__).parents[1] / "zookeeper/certificates"
PASSWORD = "pass=word, of alice"
LISTENERS = {"PLAINTEXT": 0, "SSL": 10, "SASL_PLAINTEXT": 20, "SASL_SSL": 30}
"""Listener -> how far its ports are above the first one."""
PORTS = 40
SESSION_MS = 1500
_MODULES = {
    "plain": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";',
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";',
}


class SecureKafka(Peer):
    """Each node has a listener of each kind; that of SSL wants the client's certificate, that of SASL_SSL takes SCRAM
    alone. Node ``n`` is in rack ``r<n>``."""

    def listener(self, name: str, node: int = 1) -> str:
        host = "127.0.0.1" if name == "PLAINTEXT" else "localhost"
        return f"{host}:{self.port + LISTENERS[name] + node - 1}"

    def _java(self, main: str, *arguments: str, heap: list[str]) -> list[str]:
        return super()._java(main, *arguments, heap=["-Xmx384M"])

    def _quorum_keys(self, node: int) -> dict[str, object]:
        keys = super()._quorum_keys(node)
        controller = str(keys["listeners"]).rpartition(",")[2]
        plain = ",".join(f"{name}://{self.listener(name, node)}" for name in LISTENERS)
        sasl = {
            f"listener.name.{name}.{mechanism}.sasl.jaas.config": line
            for name in ("sasl_plaintext", "sasl_ssl")
            for mechanism, line in _MODULES.items()
        }
        return (
            keys
            | sasl
            | {
                "listeners": f"{plain},{controller}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT," + ",".join(f"{n}:{n}" for n in LISTENERS),
                "inter.broker.listener.name": "PLAINTEXT",
                "broker.rack": f"r{node}",
                "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": CERTIFICATES / "server.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": CERTIFICATES / "authority.pem",
                "listener.name.ssl.ssl.client.auth": "required",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "connections.max.reauth.ms": SESSION_MS,
                "group.initial.rebalance.delay.ms": 0,
                "quota.window.num": 2,
                "transaction.state.log.num.partitions": 1,
                "offsets.topic.num.partitions": 1,
            }
        )
