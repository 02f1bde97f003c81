"""How long nobody can write when a leader is killed: with TLS and logins on every listener, beside plaintext.

    python -m benchmarks.failover_secured [--rounds 50] [--login SCRAM-SHA-512|PLAIN|certificate]

Two clusters of three brokers run beside each other, one of them made by `up --secure`: clients log in with
SCRAM-SHA-512, whose keys librdkafka computes anew for each connection (6 ms), with PLAIN, or by a certificate; brokers
with their certificate. Each round kills a leader (kill -9) of the one and then of the other, so that both have the same
machine; the pause is as benchmarks/failover.py has it. In the end every acknowledged record must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from typing import Final

from benchmarks.failover import LIMIT_S, PARTITIONS, Writer, lost
from holdfast.client.admin import AdminClient
from holdfast.client.elections import elect_leaders
from holdfast.client.security_options import parse_security
from holdfast.testing import Cluster, wait_for

TOPIC: Final = "failover"
AT_MOST: Final = 1.5
"""What p50 with logins may be of that without."""
SETTINGS: Final = {"min.insync.replicas": "2"}
SCRAM, PLAIN, CERTIFICATE = LOGINS = ("SCRAM-SHA-512", "PLAIN", "certificate")
PASSWORD: Final = "a password that is sent through TLS"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
PLAIN_TOO: Final = {
    "listener.name.sasl_ssl.sasl.enabled.mechanisms": f"{SCRAM},{PLAIN}",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_client="{PASSWORD}";',
}


class Side:
    """One of the two clusters, and its pauses in seconds."""

    def __init__(self, name: str, cluster: Cluster, login: str) -> None:
        """``login``: the client's, where it has to."""
        self.name, self.cluster = name, cluster
        self._client = cluster.properties("librdkafka-mtls" if login == CERTIFICATE else "librdkafka")
        if cluster.secure and login == PLAIN:
            self._client |= {"sasl.mechanisms": PLAIN, "sasl.password": PASSWORD}
        self.pauses: list[float] = []
        self.errors, self.lost = 0, 0

    def round(self) -> None:
        """A leader that is not the controller dies, and comes back."""
        partition, leader = self._victim()
        bootstrap = self._client["bootstrap.servers"]
        with Writer(bootstrap, TOPIC, partition, self._client) as writer:
            time.sleep(1)
            since = time.perf_counter()
            os.kill(self.cluster.pids()[leader], signal.SIGKILL)
            wait_for(lambda: writer.resumed(since), "acks again", timeout_s=LIMIT_S)
        self.pauses.append(writer.pause_s(since))
        self.errors += writer.errors
        wait_for(lambda: leader not in self.cluster.live(), f"the end of broker {leader}", timeout_s=LIMIT_S)
        self.cluster.revive(timeout_s=LIMIT_S)
        self.cluster.wait_in_sync([TOPIC], timeout_s=LIMIT_S)
        self.lost += lost(bootstrap, TOPIC, partition, writer, self._client)

    def _victim(self) -> tuple[int, int]:
        asyncio.run(self._elect())

        def found() -> tuple[int, int] | None:
            view = self.cluster.describe([TOPIC])
            led = {p: seen.leader for (_, p), seen in sorted(view.partitions.items())}
            return next(((p, n) for p, n in led.items() if n not in (None, view.controller_id)), None)  # type: ignore[misc]

        victim = wait_for(found, "a leader to kill", timeout_s=LIMIT_S)
        assert victim is not None
        return victim

    async def _elect(self) -> None:
        security = parse_security(self.cluster.properties("admin"))
        async with AdminClient(self.cluster.bootstrap, security=security) as client:
            await elect_leaders(client, None, unclean=False)

    def numbers(self) -> dict[str, float]:
        """Milliseconds."""
        ordered = sorted(self.pauses)
        return {
            "p50": round(1000 * statistics.median(ordered), 1),
            "p90": round(1000 * ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 1),
            "max": round(1000 * ordered[-1], 1),
            "rounds": len(ordered),
            "errors": self.errors,
            "acked but lost": self.lost,
        }


def main() -> int:
    """0: at most ``AT_MOST`` times the pause, and nothing lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--login", choices=LOGINS, default=SCRAM, help="how clients log in (SCRAM-SHA-512)")
    options = parser.parse_args()
    rounds, login = options.rounds, options.login
    more = PLAIN_TOO if login == PLAIN else {}
    with (
        Cluster(brokers=3, log_dirs=1, settings=SETTINGS) as plain,
        Cluster(brokers=3, log_dirs=1, settings={**SETTINGS, **more}, secure=True) as secured,
    ):
        sides = Side("plaintext", plain, login), Side("secured", secured, login)
        for side in sides:
            side.cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            side.cluster.wait_in_sync([TOPIC])
        for number in range(rounds):
            for side in sides:
                side.round()
                print(f"round {number + 1}: {side.name} {1000 * side.pauses[-1]:.1f} ms", file=sys.stderr, flush=True)
    found = {side.name: side.numbers() for side in sides}
    ratio = found["secured"]["p50"] / found["plaintext"]["p50"]
    print(json.dumps({**found, "p50 secured / plaintext": round(ratio, 2), "limit": AT_MOST}))
    return int(ratio > AT_MOST or any(side.lost for side in sides))


if __name__ == "__main__":
    sys.exit(main())
