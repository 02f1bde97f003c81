"""A broker under measurement: a cluster that some ``up`` command started, and questions about its
processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, wire
from holdfast.testing import Cluster, HostCluster, wait_for

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One of the systems that are compared: its name and the command that starts a cluster of it."""

    name: str
    up: tuple[str, ...]

    def cluster(self, data_dir: Path, brokers: int) -> Cluster:
        return Cluster(brokers=brokers, log_dirs=2, data_dir=data_dir, up=self.up, ready_timeout_s=120)


HOLDFAST = Kind(name="holdfast", up=(sys.executable, "-m", "holdfast.cli.main", "up"))
KAFKA = Kind(name="kafka 4.3.0", up=(sys.executable, str(ROOT / "benchmarks/peers/kafka.py")))


class Running:
    """A started cluster, with names for topics that no earlier case has used."""

    def __init__(self, cluster: Cluster | HostCluster, *, has_quorum: bool = True) -> None:
        """``has_quorum``: brokers answer DescribeQuorum; otherwise Metadata names the active controller."""
        self.cluster = cluster
        self._has_quorum = has_quorum
        self._topics = 0

    def new_topic(self, partitions: int, copies: int) -> str:
        """Creates a topic and waits until all its replicas are in sync."""
        self._topics += 1
        name = f"bench-{time.time_ns() // 1_000_000}-{self._topics}"
        with wire.Connection(self.cluster.addresses()[0]) as connection:
            connection.create_topic(name, partitions, copies, min_insync_replicas=str(min(2, copies)))
        self.cluster.wait_in_sync([name])
        return name

    def leader(self, topic: str, partition: int = 0) -> tuple[int, tuple[str, int]]:
        """Broker id and address; waits while there is none."""

        def found() -> tuple[int, tuple[str, int]] | None:
            view = self.cluster.describe([topic])
            seen = view.partitions.get((topic, partition))
            if seen is None or seen.leader is None or seen.leader not in view.brokers:
                return None
            return seen.leader, view.brokers[seen.leader]

        answer = wait_for(found, f"a leader of {topic}-{partition}")
        assert answer is not None
        return answer

    def active_controller(self) -> int:
        """Its broker id; waits while there is none."""

        def found() -> int | None:
            if not self._has_quorum:
                return self.cluster.describe([]).controller_id
            for address in self.cluster.addresses():
                try:
                    with wire.Connection(address) as connection:
                        return connection.active_controller()
                except (wire.Refused, OSError):
                    continue
            return None

        answer = wait_for(found, "an active controller")
        assert answer is not None
        return answer

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.cluster.live().values())

    def resident_mib(self) -> list[float]:
        return machine.resident_mib(self.cluster.live().values())

    def load(self, what: str, topic: str, partitions: int, size: int, count: int, acks: str) -> dict[str, float]:
        """Runs one load process; adds what the brokers and everybody else spent meanwhile."""
        brokers, everybody = self.cpu_seconds(), machine.busy_seconds()
        command = [sys.executable, "-m", "benchmarks.load", what, "--bootstrap", self.cluster.bootstrap]
        command += ["--topic", topic, "--partitions", str(partitions), "--size", str(size)]
        command += ["--count", str(count), "--acks", acks]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{what} of {topic} failed: {done.stderr[-800:]}")
        result: dict[str, float] = json.loads(done.stdout)
        if result["errors"]:
            raise RuntimeError(f"{what} of {topic}: {result['errors']:.0f} records failed")
        spent = self.cpu_seconds() - brokers
        result["broker_cpu_s"] = spent
        result["other_cpu_s"] = machine.busy_seconds() - everybody - spent - result["client_cpu_s"]
        return result
