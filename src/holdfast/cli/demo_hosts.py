"""``holdfast demo --hosts``: three hosts with a broker and a ZooKeeper server each; one loses its power half way.

    half acked: the controller's host is powered off --> its session ends --> others take over --> power on, servers
    and broker started --> every replica in sync again

Owns the hosts' loss and what is measured of it. Producer, Spark and the new client are on this machine, which reaches
every host. A host without power says nothing, so a session is what its loss costs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.demo_ledger import make_producer
from holdfast.cli.demo_report import LostHost
from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.testing import HostCluster
from holdfast.testing.disks import MIB

if TYPE_CHECKING:
    from holdfast.cli.demo_ledger import Ledger

DISK_BYTES = 256 * MIB
PROBE = "written-by-a-new-client"
"""A topic of its own, as what is in the other one is counted."""
LIMIT_S = 110.0
FIRST_TRY_S, LONGEST_TRY_S, GROWTH = 0.3, 5.0, 1.05
"""Of a new client: a machine that is busy gets more time at the end."""
ACKS_BEFORE_POWER = 20_000
SLACK_S = 0.5
"""What an election of controller and leaders may take, once a session is over."""
PATIENCE: Final = {"socket.timeout.ms": 3000, "request.timeout.ms": 2000, "socket.connection.setup.timeout.ms": 2000}
"""Of the producer: one that stock settings leave waiting for a minute for who says nothing asks elsewhere in time."""


def host_cluster() -> HostCluster:
    """To be entered. HostsUnavailable, then also DiskFaultUnavailable, JavaNotFoundError, ZooKeeperUnavailableError."""
    return HostCluster(disk_bytes=DISK_BYTES)


class NewClient(threading.Thread):
    """A stock client that connects now and writes one record, and another one if that has no answer soon: what one has
    found out it looks at again once a second. ``acked_s`` is the moment of the acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="demo-new-client", daemon=True)
        self.acked_s: float | None = None
        self.error: str | None = None
        self._brokers = bootstrap

    def run(self) -> None:
        limit_s, try_s = time.monotonic() + LIMIT_S, FIRST_TRY_S
        while self.acked_s is None and time.monotonic() < limit_s:
            producer = make_producer(self._brokers, PATIENCE)
            producer.produce(PROBE, b"here", partition=0, on_delivery=self._report)
            producer.flush(try_s)
            producer.purge()
            producer.flush(try_s)
            try_s = min(LONGEST_TRY_S, try_s * GROWTH)

    def _report(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acked_s = self.acked_s or time.monotonic()
        else:
            self.error = str(error)


class HostLoss:
    """One host's loss of power, and its return."""

    def __init__(self, cluster: HostCluster, topic: str, say: Callable[[str], None]) -> None:
        self.cluster, self.topic, self.say = cluster, topic, say

    def happen(
        self, ledger: Ledger, rows: int, wait_until: Callable[[Callable[[], Any]], None], is_in_sync: Callable[[], bool]
    ) -> LostHost:
        """The controller's host loses its power now. ``wait_until`` waits while the load goes on."""
        cluster = self.cluster
        view, servers_leader = cluster.describe([self.topic]), cluster.ensemble.leader()
        victim = view.controller_id
        assert victim is not None, "the topic is in sync when the load begins"
        led = sorted(partition for (_, partition), seen in view.partitions.items() if seen.leader == victim)
        others = [broker for broker in view.brokers if broker != victim]
        self._create_probe(victim, others)
        what = "the controller" + (" and the leader of the ensemble" if servers_leader == victim else "")
        off_s = time.monotonic()
        cluster.power_off(victim)
        self.say(f"[red]host-{victim} loses its power[/red]: {what} on it, leader of partitions {led}")
        client = NewClient(",".join(f"{host}:{port}" for host, port in map(view.brokers.__getitem__, others)))
        client.start()
        wait_until(lambda: not client.is_alive())
        if client.acked_s is None:
            raise TimeoutError(f"a new client's write was not acknowledged: {client.error or f'after {LIMIT_S:g} s'}")
        taken_s = client.acked_s - off_s
        acked = ledger.acked
        wait_until(lambda: ledger.acked >= min(acked + ACKS_BEFORE_POWER, rows))
        resumed = ledger.first_acks_s(dict.fromkeys(led, off_s + taken_s))
        successor = cluster.describe([]).controller_id
        self.say(f"broker {successor} is the controller; host-{victim} has power again, its server and broker start")
        on_s = time.monotonic()
        cluster.revive()
        wait_until(is_in_sync)
        back_s = time.monotonic() - on_s
        self.say(f"every replica is in sync again, {back_s:.1f} s after that")
        return LostHost(
            host=victim,
            led=tuple(led),
            next_controller=successor,
            led_ensemble=servers_leader == victim,
            session_s=cluster.session_ms / 1000,
            tick_s=cluster.tick_ms / 1000,
            slack_s=SLACK_S,
            new_client_s=taken_s,
            resumed_s=max(resumed.values(), default=off_s + taken_s) - off_s,
            back_in_sync_s=back_s,
        )

    def _create_probe(self, victim: int, others: list[int]) -> None:
        with BlockingClient(self.cluster.bootstrap, client_id="holdfast-demo") as client:
            configs = {"min.insync.replicas": "2"}
            client.create_topic(NewTopic(name=PROBE, assignments={0: (victim, *others)}, configs=configs))
        self.cluster.wait_in_sync([PROBE])
