"""``python -m benchmarks.disk_faults``: how long nobody can write when a disk dies, for each way a disk can die.

A round is a fresh cluster of three brokers whose log directories all can fail that way (testing/disks.py). One client
writes a record every few ms to one partition (acks=all, three replicas, min.insync.replicas=2, idempotent) and
retries every 10 to 50 ms; then the directory of its leader fails. Told are, in ms since the fault:

* ``resumed``: the first acknowledgement of a record that was sent after the fault;
* ``known``: until the controller tells clients that the replica is offline; where writes go on (open files often work
  on a directory that is gone) that is what the probe is for;
* ``idle``: the same for a directory that nobody writes to.

An idempotent librdkafka that has requests under way when it learns of the new leader waits for their answers and then,
sometimes, for its own timer of a second: that is its longest ``resumed``, rarer the quicker a broker answers. --plain
leaves that out.

Besides: acknowledged records that are not there at the end, deliveries that failed for good, and directories other
than the one that failed that were taken offline. None of these may be more than 0; the exit code says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from benchmarks.failover import LIMIT_S, Writer, lost
from holdfast.testing import FAULTS, Cluster, Disk, wait_for
from holdfast.testing.users import NOBODY

Row = dict[str, float]

PARTITIONS = 6
PROBE_MS = 1000
BUSY, IDLE = "busy", "idle"
KINDS = ("eio", "read-only", "full", "immutable", "mode-000", "replaced", "unmounted")
STALLS = ("frozen", "slow")
"""Not dead: what is told of them is how long writes paused; the disk recovers after ``STALL_S``."""
STALL_S = 3.0


def busy_round(name: str, probe_ms: int, idempotent: bool) -> Row:
    """One fault on the directory of the leader that is written to."""
    with start(name, probe_ms) as cluster:
        create(cluster, BUSY)
        leader = leader_of(cluster, BUSY)
        disk = cluster.disk_of(leader, BUSY, 0)
        settings = {"enable.idempotence": idempotent}
        with Writer(cluster.bootstrap, BUSY, 0, settings) as writer:
            time.sleep(0.5)
            since = time.perf_counter()
            disk.fail()
            failed = time.perf_counter()
            known = until_known(cluster, BUSY, leader, since) if disk.is_dead else float("nan")
            if name in STALLS:
                time.sleep(max(0.0, since + STALL_S - time.perf_counter()))
                disk.heal()
            wait_for(lambda: writer.resumed(since), "acks again", timeout_s=LIMIT_S)
        return {
            "resumed": (failed - since + writer.resumed_s(failed)) * 1000,
            "pause": writer.pause_s(since) * 1000,
            "known": known * 1000,
            "errors": writer.errors,
            "lost": lost(cluster.bootstrap, BUSY, 0, writer),
            "others": others_offline(cluster, disk),
        }


def idle_round(name: str, probe_ms: int) -> Row:
    """One fault on a directory that nobody writes to."""
    with start(name, probe_ms) as cluster:
        create(cluster, IDLE)
        leader = leader_of(cluster, IDLE)
        disk = cluster.disk_of(leader, IDLE, 0)
        time.sleep(0.3)
        since = time.perf_counter()
        disk.fail()
        known = until_known(cluster, IDLE, leader, since)
        return {"idle": known * 1000, "others": others_offline(cluster, disk)}


def start(name: str, probe_ms: int) -> Cluster:
    """All directories are disks of that kind; brokers run as nobody."""
    kind = FAULTS[name]
    disks: dict[tuple[int, int], type[Disk]] = {(broker, k): kind for broker in (1, 2, 3) for k in (1, 2)}
    return Cluster(disks=disks, user=NOBODY, settings={"log.dir.probe.interval.ms": str(probe_ms)})


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(LIMIT_S)
    cluster.wait_in_sync([topic])


def leader_of(cluster: Cluster, topic: str) -> int:
    leader = cluster.describe([topic]).partitions[topic, 0].leader
    assert leader is not None
    return leader


def until_known(cluster: Cluster, topic: str, broker: int, since: float) -> float:
    """Seconds until another broker's Metadata lists the replica as offline."""
    asked = next(b for b in (1, 2, 3) if b != broker)

    def known() -> bool:
        return broker in cluster.describe([topic], broker=asked).partitions[topic, 0].offline

    wait_for(known, f"the offline replica of broker {broker}", timeout_s=LIMIT_S, interval_s=0.005)
    return time.perf_counter() - since


def others_offline(cluster: Cluster, disk: Disk) -> int:
    """Directories that are offline though nothing is wrong with them; a dead broker counts with all of its own."""
    live = cluster.live()
    dirs = [dirs for broker in live for dirs in cluster.describe_log_dirs(broker).items()]
    return 2 * (cluster.brokers - len(live)) + sum(1 for path, seen in dirs if seen.error and path != str(disk.path))


def spread(rows: Sequence[Row], key: str) -> dict[str, float]:
    values = sorted(row[key] for row in rows if row.get(key) == row.get(key) and key in row)
    if not values:
        return {}
    p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
    return {"p50": statistics.median(values), "p99": p99, "max": values[-1]}


def line(name: str, rows: Sequence[Row]) -> str:
    """One row of a Markdown table; times in ms as p50 / p99 / max."""
    cells = []
    for key in ("resumed", "known", "idle"):
        numbers = spread(rows, key)
        cells.append(" / ".join(f"{value:.0f}" for value in numbers.values()) or "-")
    cells += [str(int(sum(row.get(key, 0) for row in rows))) for key in ("lost", "errors", "others")]
    return f"| {FAULTS[name].name} | " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disk_faults", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(FAULTS)}; default: all that kill")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--idle-rounds", type=int, help="rounds with an idle directory (default: a fifth of --rounds)")
    parser.add_argument("--probe-ms", type=int, default=PROBE_MS, help="log.dir.probe.interval.ms")
    parser.add_argument("--plain", action="store_true", help="a client that is not idempotent")
    parser.add_argument("--out", help="a file for all rounds, as JSON")
    args = parser.parse_args()
    idle_rounds = max(1, args.rounds // 5) if args.idle_rounds is None else args.idle_rounds
    about = machine.describe()
    print(json.dumps(about), f"probe interval {args.probe_ms} ms", flush=True)
    print("| disk | resumed p50/p99/max ms | known | idle, known | lost | client errors | other dirs offline |")
    print("|---|---|---|---|---|---|---|", flush=True)
    found: dict[str, list[Row]] = {}
    for name in args.kinds or KINDS:
        rows = found.setdefault(name, [])
        for _ in range(args.rounds):
            rows.append(busy_round(name, args.probe_ms, not args.plain))
        if FAULTS[name].is_dead:
            rows += [idle_round(name, args.probe_ms) for _ in range(idle_rounds)]
        print(line(name, rows), flush=True)
        if args.out:
            Path(args.out).write_text(json.dumps({"machine": about, "probe ms": args.probe_ms, "rounds": found}))
    wrong = sum(row.get(key, 0) for rows in found.values() for row in rows for key in ("lost", "errors", "others"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
