"""``python -m benchmarks.failover_hosts``: how long nobody can write when a broker is killed, or its host goes silent.

Two clusters of three brokers: on the embedded store on this machine, and on three hosts (namespaces of this machine)
with an ensemble of three ZooKeeper servers. In each round the leader of a partition (acks=all, three replicas,
min.insync.replicas=2) is lost, and two clients are timed:

    new       connects anew for every try, to brokers that were not lost, until a write is acknowledged
    steady    stock librdkafka, a record every 2 ms: the longest silence between two acknowledgements

``kill`` is kill -9 of the broker, on both stores. ``power`` is its host's link down and then everything in it killed:
nobody is told, so it may take the session, a tick of the ensemble and half a second. Where the leader of the ensemble
was on it too, the ensemble's own election comes before that, and is measured: until a server that is left leads.
Every acknowledged record of the steady client must be there in the end.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import failover, machine, wire
from benchmarks.system import ROOT, Running
from holdfast.testing import Cluster, HostCluster, wait_for
from holdfast.testing.host_cluster import SESSION_MS
from holdfast.testing.view import ask
from holdfast.testing.zookeeper import TICK_MS

SLACK_S = 0.5
TRY_S = 0.005
CONNECT_S = 1.0
WRITE_MS = 60_000
LIMIT_S = 120.0
SILENT = {"socket.timeout.ms": 3000, "request.timeout.ms": 2000, "socket.connection.setup.timeout.ms": 2000}
"""Of the steady client where a host goes silent: how long it waits for an answer is its own matter."""
PLACES = ((True, False), (False, False), (True, True), (False, True))
"""Of the host that is powered off: has it the controller, has it the leader of the ensemble."""
STORES = ("embedded", "zookeeper")
KILLS = {False: "kill -9 of a leader", True: "kill -9 of a leader that is the controller"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Seconds. ``election_s``: 0 where the ensemble had none; ``lost``: acknowledged records that are not there."""

    case: str
    store: str
    new_s: float
    steady_s: float
    lost: int
    election_s: float = 0.0
    allowed_s: float | None = None


class NewClient(threading.Thread):
    """Writes one record by connections that are all made from now on; ``acked`` is the moment of its ack."""

    def __init__(self, addresses: Sequence[tuple[str, int]], topic: str, partition: int) -> None:
        super().__init__(daemon=True)
        self.acked: float | None = None
        self._addresses, self._topic, self._partition = list(addresses), topic, partition
        self._limit = time.perf_counter() + LIMIT_S

    def run(self) -> None:
        tries = 0
        while time.perf_counter() < self._limit:
            tries += 1
            try:
                if self._written(self._addresses[tries % len(self._addresses)]):
                    self.acked = time.perf_counter()
                    return
            except (OSError, wire.Refused):
                pass
            time.sleep(TRY_S)

    def _written(self, address: tuple[str, int]) -> bool:
        view = ask(*address, [self._topic], timeout_s=CONNECT_S)
        leader = view.partitions[self._topic, self._partition].leader
        at = None if leader is None else view.brokers.get(leader)
        if at not in self._addresses:
            return False
        with wire.Connection(at, timeout_s=LIMIT_S) as connection:
            frame = wire.produce_frame(self._topic, self._partition, b"new", -1, WRITE_MS)
            return wire.produce_result(connection.call(frame))[0] == 0


class Elected(threading.Thread):
    """When one of the servers that are left was first seen to lead."""

    def __init__(self, cluster: HostCluster, gone: int) -> None:
        super().__init__(daemon=True)
        self.at: float | None = None
        self._servers = [server for number, server in cluster.ensemble.servers.items() if number != gone]
        self._limit = time.perf_counter() + LIMIT_S

    def run(self) -> None:
        while self.at is None and time.perf_counter() < self._limit:
            if any(server.mode == "leader" for server in self._servers):
                self.at = time.perf_counter()
            time.sleep(TRY_S)


def timed(
    running: Running,
    topic: str,
    partition: int,
    leader: int,
    lose: Callable[[], None],
    settings: dict[str, str | int | bool] | None = None,
) -> tuple[float, float, float, failover.Writer]:
    """The moment of the loss, then the seconds of the new and of the steady client."""
    cluster = running.cluster
    left = [address for broker, address in enumerate(cluster.addresses(), 1) if broker != leader]
    with failover.Writer(cluster.bootstrap, topic, partition, settings) as writer:
        time.sleep(1)
        since = time.perf_counter()
        lose()
        client = NewClient(left, topic, partition)
        client.start()
        client.join()
        if client.acked is None:
            raise TimeoutError(f"no write to {topic}-{partition} was acknowledged within {LIMIT_S:g} s")
        wait_for(lambda: writer.resumed(since), "acks again", timeout_s=LIMIT_S)
    return since, client.acked - since, writer.pause_s(since), writer


def restore(running: Running, topic: str, partition: int, writer: failover.Writer) -> int:
    """All runs again; how many acknowledged records are not there."""
    running.cluster.revive(timeout_s=LIMIT_S)
    running.cluster.wait_in_sync([topic], timeout_s=LIMIT_S)
    return failover.lost(running.cluster.bootstrap, topic, partition, writer)


def kill(running: Running, store: str, topic: str, *, is_controller: bool) -> Round:
    """One round of kill -9."""
    partition, leader = failover.victim(running, topic, is_controller)
    pid = running.cluster.pids()[leader]
    _, new_s, steady_s, writer = timed(running, topic, partition, leader, lambda: os.kill(pid, signal.SIGKILL))
    wait_for(lambda: leader not in running.cluster.live(), f"the end of broker {leader}", timeout_s=LIMIT_S)
    lost = restore(running, topic, partition, writer)
    return Round(case=KILLS[is_controller], store=store, new_s=new_s, steady_s=steady_s, lost=lost)


def power(running: Running, topic: str, *, is_controller: bool, leads_ensemble: bool) -> Round:
    """One round of a host that is powered off."""
    cluster = running.cluster
    assert isinstance(cluster, HostCluster), "only hosts have power"
    partition, leader = placed(running, cluster, topic, is_controller, leads_ensemble)
    elected = Elected(cluster, leader)

    def lose() -> None:
        cluster.hosts.network.link_down(leader)
        elected.start()
        cluster.power_off(leader)

    since, new_s, steady_s, writer = timed(running, topic, partition, leader, lose, dict(SILENT))
    elected.join()
    if elected.at is None:
        raise TimeoutError(f"the ensemble has no leader after {LIMIT_S:g} s")
    election_s = elected.at - since if leads_ensemble else 0.0
    lost = restore(running, topic, partition, writer)
    allowed_s = (cluster.session_ms + cluster.tick_ms) / 1000 + SLACK_S + election_s
    on_it = ["a leader", *["the controller"] * is_controller, *["the ensemble's leader"] * leads_ensemble]
    return Round(
        case=f"power off of a host with {', '.join(on_it)}", store="zookeeper", new_s=new_s, steady_s=steady_s,
        lost=lost, election_s=election_s, allowed_s=allowed_s,
    )  # fmt: skip


def placed(
    running: Running, cluster: HostCluster, topic: str, is_controller: bool, leads_ensemble: bool
) -> tuple[int, int]:
    """A partition and its leader, on a host as it is asked for: servers lead elsewhere after they were killed."""

    turns = itertools.cycle((True, True, False))  # two of three servers lead in turn, the third one hardly ever

    def found() -> tuple[int, int] | None:
        failover.victim(running, topic, is_controller)  # leaderships are back
        of_ensemble = cluster.ensemble.leader()
        for partition, leader in failover.leaders(running, topic, is_controller):
            if (leader == of_ensemble) == leads_ensemble:
                return partition, leader
        if next(turns):
            cluster.ensemble.servers[of_ensemble].kill()
        else:
            cluster.kill(running.active_controller())
        cluster.revive()
        cluster.wait_in_sync([topic])
        return None

    answer = wait_for(found, "a host with what is asked for", timeout_s=10 * LIMIT_S)
    assert answer is not None
    return answer


def on_embedded(rounds: int, data_dir: str | None) -> list[Round]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=data_dir) as folder,
        Cluster(data_dir=folder, ready_timeout_s=LIMIT_S) as cluster,
    ):
        return kills(Running(cluster), "embedded", rounds)


def on_hosts(rounds: int, powers: int, session_ms: int, tick_ms: int) -> list[Round]:
    settings = {"zookeeper.session.timeout.ms": str(session_ms)}
    with HostCluster(settings=settings, tick_ms=tick_ms) as cluster:
        running = Running(cluster)
        found = kills(running, "zookeeper", rounds)
        topic = running.new_topic(failover.PARTITIONS, 3)
        for is_controller, leads_ensemble in PLACES:
            for _ in range(powers):
                found.append(power(running, topic, is_controller=is_controller, leads_ensemble=leads_ensemble))
                say(found[-1])
        return found


def kills(running: Running, store: str, rounds: int) -> list[Round]:
    found = []
    topic = running.new_topic(failover.PARTITIONS, 3)
    for is_controller in KILLS:
        for _ in range(rounds):
            found.append(kill(running, store, topic, is_controller=is_controller))
            say(found[-1])
    return found


def say(one: Round) -> None:
    print(
        f"{one.store}, {one.case}: new {one.new_s:.3f} s, steady {one.steady_s:.3f} s"
        + (f", election {one.election_s:.3f} s" if one.election_s else ""),
        file=sys.stderr,
    )


def quantiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99, longest, in ms."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return statistics.median(ordered) * 1000, p99 * 1000, ordered[-1] * 1000


def show(rounds: Sequence[Round], console: Console) -> None:
    """One table, in milliseconds."""
    table = Table(
        "case", "store", "runs", "new p50", "p99", "max", "steady p50", "p99", "max", "election", "over", "lost"
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for case, store in dict.fromkeys((one.case, one.store) for one in rounds):
        mine = [one for one in rounds if (one.case, one.store) == (case, store)]
        figures = (*quantiles([one.new_s for one in mine]), *quantiles([one.steady_s for one in mine]))
        elections = [one.election_s * 1000 for one in mine if one.election_s]
        election = f"{min(elections):,.0f} to {max(elections):,.0f}" if elections else ""
        limited = [one for one in mine if one.allowed_s is not None]
        over = f"{sum(one.new_s > (one.allowed_s or 0.0) for one in limited)}" if limited else ""
        lost = f"{sum(one.lost for one in mine)}"
        table.add_row(case, store, str(len(mine)), *(f"{each:,.0f}" for each in figures), election, over, lost)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover_hosts", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=50, help="kills of each kind on each store (default: 50)")
    parser.add_argument("--powers", type=int, default=13, help="hosts powered off, of each kind (default: 13)")
    parser.add_argument("--only", choices=STORES, help="one of the stores")
    parser.add_argument(
        "--session-ms", type=int, default=SESSION_MS, help=f"zookeeper.session.timeout.ms ({SESSION_MS})"
    )
    parser.add_argument("--tick-ms", type=int, default=TICK_MS, help=f"tickTime of the ensemble (default: {TICK_MS})")
    parser.add_argument("--data-dir", help="where brokers of this machine keep their data (default: a temporary one)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-results", help="directory for the JSON report")
    args = parser.parse_args()
    rounds: list[Round] = []
    if args.only != "zookeeper":
        rounds += on_embedded(args.rounds, args.data_dir)
    if args.only != "embedded":
        rounds += on_hosts(args.rounds, args.powers, args.session_ms, args.tick_ms)
    document: dict[str, Any] = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "zookeeper.session.timeout.ms": args.session_ms,
        "tickTime": args.tick_ms,
        "rounds": [asdict(one) for one in rounds],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"failover-hosts-{datetime.datetime.now():%Y%m%d-%H%M%S}-{document['commit']}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 160)
    show(rounds, console)
    console.print(
        f"milliseconds; zookeeper.session.timeout.ms={args.session_ms}, tickTime={args.tick_ms}: over are runs of more"
        f" than {args.session_ms + args.tick_ms + SLACK_S * 1000:,.0f} ms and the election",
        soft_wrap=True,
    )
    print(f"written to {path}")
    return int(any(one.lost for one in rounds))


if __name__ == "__main__":
    sys.exit(main())
