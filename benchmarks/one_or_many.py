"""``python -m benchmarks.one_or_many``: a machine with N disks as one broker with N log directories, or as N brokers
with one each (KIP-112 says that the latter is worse; K112-102).

Both are measured in turn in the same run, with the same number of partitions, one replica each: writing and reading
1 KiB records (acks=1), the memory of all brokers together and what they use while idle, the TCP connections between
brokers, and how long a bounce takes: each broker in turn is stopped in a controlled way and started again, until
everything is led again. All directories are on one disk here, so that it shows what processes cost and not disks.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import psutil

from benchmarks import cases, machine
from benchmarks.system import Running
from holdfast.testing import Cluster, wait_for

LIMIT_S = 60.0


def main() -> int:
    """Run both, print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.one_or_many", description=__doc__.split("\n")[0])
    parser.add_argument("--disks", type=int, default=10)
    parser.add_argument("--megabytes", type=float, default=200.0, help="written and read in each round")
    parser.add_argument("--rounds", type=int, default=3, help="after one that is thrown away")
    options = parser.parse_args()
    n = options.disks
    shapes = {f"1 broker, {n} directories": (1, n), f"{n} brokers, 1 directory each": (n, 1)}
    found = {
        name: measure(brokers, dirs, n, options.megabytes, options.rounds) for name, (brokers, dirs) in shapes.items()
    }
    print(f"commit {machine.commit()}\n")
    print("| | " + " | ".join(found) + " |")
    print("|---|" + "--:|" * len(found))
    for key in next(iter(found.values())):
        print(f"| {key} | " + " | ".join(f"{numbers[key]:.3g}" for numbers in found.values()) + " |")
    return 0


def measure(brokers: int, dirs: int, partitions: int, megabytes: float, rounds: int) -> cases.Numbers:
    """One shape of the machine."""
    with Cluster(brokers=brokers, log_dirs=dirs, ready_timeout_s=120) as cluster:
        running = Running(cluster)
        load = cases.Load(acks="1", copies=1, partitions=partitions, size=1024)
        seen = cases.throughput(running, load, megabytes=megabytes, rounds=rounds)
        idle = cases.memory(running)
        topic = running.new_topic(partitions, 1)
        return {
            "produce MB/s": seen["produce MB/s"],
            "produce, broker CPU s/GB": seen["produce broker CPU s/GB"],
            "consume MB/s": seen["consume MB/s"],
            "consume, broker CPU s/GB": seen["consume broker CPU s/GB"],
            "memory of all brokers, MiB": sum(running.resident_mib()),
            "CPU while idle, % of a core": idle["idle CPU %"],
            "connections between brokers": between_brokers(cluster),
            "bounce of all, s": bounce(cluster, topic),
        }


def between_brokers(cluster: Cluster) -> float:
    """Connections of which both ends are brokers."""
    pids = set(cluster.live().values())
    ports = {port for _, port in (*cluster.addresses(), *cluster.addresses_of_brokers())}
    opened = (c for pid in pids for c in psutil.Process(pid).net_connections("tcp") if c.status == "ESTABLISHED")
    return sum(bool(c.raddr) and c.raddr.port in ports for c in opened)


def bounce(cluster: Cluster, topic: str) -> float:
    """Seconds."""
    began = time.perf_counter()
    for broker in range(1, cluster.brokers + 1):
        os.kill(cluster.pids()[broker], signal.SIGTERM)
        wait_for(lambda b=broker: b not in cluster.live(), f"the end of broker {broker}", timeout_s=LIMIT_S)
        cluster.revive()
        cluster.wait_in_sync([topic])
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
