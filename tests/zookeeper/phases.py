"""What Apache Kafka 3.9.1 was put through on ZooKeeper, phase by phase (tests/golden/znodes), done with our brokers.

Each phase does what its ``what`` says and returns when all is quiet. Writes are taken from the server's transaction
log; ``by_hand`` is the session of this program, which plays the tools.
"""

from __future__ import annotations

import asyncio
import datetime
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

from holdfast.client.blocking import BlockingClient
from holdfast.client.connection import BrokerConnection
from holdfast.client.elections import elect_leaders
from holdfast.client.reassignments import alter_reassignments, list_reassignments, set_configs
from holdfast.coordination.zookeeper_client import Create
from holdfast.metadata import znode_notices as notices
from holdfast.model.types import TopicPartition
from holdfast.testing import wait_for
from tests.zookeeper.brokers import TIMEOUT_S, Brokers
from tests.zookeeper.transaction_log import Transaction, below, read

TOPIC, BROKER = 2, 4
REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"
DELETE, EVENTS = "/admin/delete_topics", "/log_dir_event_notification"
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "30000",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
GOLDEN_0, MV_0, MV_1 = TopicPartition("golden", 0), TopicPartition("mv", 0), TopicPartition("mv", 1)


class Replay:
    """Does phases in turn and keeps what was written in each."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.nodes = brokers.nodes
        self.writes: dict[str, list[Transaction]] = {}
        self.dead = Path()
        self._seen = len(self.log())

    def log(self) -> list[Transaction]:
        """All that was ever written."""
        return below(self.nodes.chroot, read(self.nodes.server.folder / "data"))

    @property
    def by_hand(self) -> int:
        return self.nodes.reader.session_id

    def do(self, name: str, phase: Callable[[Replay], None]) -> None:
        """One phase; ``between`` has no phase."""
        phase(self)
        log = self.log()
        self.writes[name] = log[self._seen :]
        self._seen = len(log)

    # -- means ---------------------------------------------------------------------------------------------------------

    def run(self, call: Callable[[BlockingClient], Any]) -> Any:
        running = [f"127.0.0.1:{self.brokers.ports[b]}" for b in self.brokers.ids if self.brokers.is_running(b)]
        with BlockingClient(",".join(running)) as client:
            return call(client)

    def configure(self, kind: int, name: str, values: Mapping[str, str | None]) -> None:
        self.run(lambda client: client.run(set_configs(client.aio, kind, {name: values})))

    def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> None:
        told = self.run(lambda client: client.run(alter_reassignments(client.aio, {tp: replicas})))
        assert told == {tp: None}

    def moving(self) -> Any:
        return self.run(lambda client: client.run(list_reassignments(client.aio)))

    def refused(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except KafkaException:
            return
        raise AssertionError("it was not refused")

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers.bootstrap, "log_level": 0})

    def new(self, topic: NewTopic) -> None:
        admin = self.admin()
        admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def leave(self, path: str, data: bytes = b"", *, sequence: bool = False) -> str:
        """A node by hand, until it is gone."""
        [made] = self.nodes.reader.write([Create(path=path, data=data, sequence=sequence)]).result(15)
        wait_for(lambda: self.nodes.node(made.path) is None, f"{made.path} to go", timeout_s=TIMEOUT_S)
        return made.path

    def leader(self, topic: str, number: int) -> int:
        return int(self.nodes.json(f"/brokers/topics/{topic}/partitions/{number}/state")["leader"])

    def quiet(self) -> None:
        """Every replica that can be is in sync, and nothing has been written meanwhile."""

        def same() -> bool:
            before = len(self.log())
            wait_for(lambda: self.brokers.describe([]).brokers, "a broker")
            with suppress(TimeoutError):
                wait_for(lambda: len(self.log()) != before, "a write", timeout_s=1.0)
            return len(self.log()) == before

        wait_for(same, "quiet", timeout_s=TIMEOUT_S)

    def log_dirs(self, command: str, path: Path, *more: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "holdfast.cli.main", "log-dirs", command, str(path), "--broker", "1",
             "--bootstrap-server", self.brokers.bootstrap, *more],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip


# -- the phases ----------------------------------------------------------------------------------------------------


def create_golden(r: Replay) -> None:
    r.brokers.create("golden", [[1, 2, 3], [2, 3, 1], [3, 1, 2]],
                     **{"min.insync.replicas": "2", "retention.ms": "3600000"})  # fmt: skip
    r.quiet()


def create_refused(r: Replay) -> None:
    for topic in (NewTopic("golden", 1, 1), NewTopic("four", 1, 4), NewTopic("bad name", 1, 1)):
        r.refused(lambda topic=topic: r.new(topic))  # type: ignore[misc]


def more_partitions(r: Replay) -> None:
    r.run(lambda client: client.run(client.aio.create_partitions("plain", 4)))
    r.quiet()


def configurations(r: Replay) -> None:
    r.configure(TOPIC, "golden", {"cleanup.policy": "compact", "max.message.bytes": "2000000"})
    r.configure(TOPIC, "golden", {"cleanup.policy": "compact,delete"})
    r.configure(TOPIC, "golden", {"cleanup.policy": None})
    r.configure(BROKER, "1", {"log.retention.ms": "7200000"})
    r.configure(BROKER, "", {"log.retention.ms": "7200000"})
    for _ in range(5):  # of quotas and SCRAM, which are not built: so the numbers go on as there
        change = Create(path="/config/changes/config_change_", data=b"{}", sequence=True)
        r.nodes.reader.write([change]).result(15)


def producer_ids(r: Replay) -> None:
    async def ask(broker: int) -> None:
        connection = BrokerConnection("127.0.0.1", r.brokers.ports[broker], "phases")
        await connection.open(20)
        try:
            request: Any = InitProducerIdRequest(
                transactional_id=None, transaction_timeout=datetime.timedelta(seconds=10),  # type: ignore[arg-type]
                producer_id=-1, producer_epoch=-1,  # type: ignore[arg-type]
            )  # fmt: skip
            answer: Any = await connection.request(request, timeout_s=20)
            assert int(answer.error_code) == 0
        finally:
            connection.close()

    for broker in (1, 2):
        asyncio.run(ask(broker))


def preferred(r: Replay) -> None:
    r.reassign(GOLDEN_0, [3, 2, 1])
    r.leave(ELECT, notices.preferred_election([GOLDEN_0]))
    assert r.leader("golden", 0) == 3
    r.reassign(GOLDEN_0, [1, 2, 3])
    r.run(lambda client: client.run(elect_leaders(client.aio, [GOLDEN_0], unclean=False)))
    assert r.leader("golden", 0) == 1


def before_moves(r: Replay) -> None:
    r.brokers.create("mv", [[1, 2], [2, 1]])
    producer = r.brokers.producer()
    for _ in range(20):  # more than one fetch takes, and many batches
        for number in range(100):
            producer.produce("mv", b"%04d" % number * 500, None, 0)
        assert producer.flush(TIMEOUT_S) == 0
    r.quiet()


def move_and_cancel(r: Replay) -> None:
    for broker in "123":
        r.configure(BROKER, broker, dict.fromkeys(RATES, "5000"))
    r.configure(TOPIC, "mv", dict.fromkeys(LISTS, "*"))
    r.reassign(MV_0, [3, 2])
    assert [*r.moving()] == [MV_0]
    r.reassign(MV_0, [3, 1])
    r.reassign(MV_0, None)
    assert not r.moving()
    r.reassign(MV_0, [3, 2])


def move_completes(r: Replay) -> None:
    for broker in "123":
        r.configure(BROKER, broker, dict.fromkeys(RATES))
    wait_for(lambda: not r.moving(), "the end of it", timeout_s=TIMEOUT_S)
    r.quiet()


def move_by_node(r: Replay) -> None:
    r.leave(REASSIGN, notices.reassignment({MV_1: (3, 1), TopicPartition("nosuch", 0): (1,)}))
    assert r.nodes.json("/brokers/topics/mv")["partitions"]["1"] == [3, 1]
    r.quiet()


def delete(r: Replay) -> None:
    r.delete("mv")
    r.leave(f"{DELETE}/plain")
    assert r.nodes.names("/brokers/topics") == ["golden"]
    r.refused(lambda: r.delete("unknown"))
    r.quiet()


def delete_unknown(r: Replay) -> None:
    r.leave(f"{DELETE}/nosuch")


def restart_all(r: Replay) -> None:
    for broker in (1, 2, 3):
        r.brokers.stop(broker)
    r.brokers.begin(3)
    wait_for(lambda: r.nodes.says("/controller", "brokerid") == 3, "broker 3 as controller", timeout_s=TIMEOUT_S)
    r.brokers.begin(1)
    r.brokers.start(2)
    r.brokers.wait_in_sync(["golden"])
    r.quiet()


def before_the_disk(r: Replay) -> None:
    r.brokers.create("dd", [[1, 2, 3]] * 4)
    r.quiet()


def dir_dies(r: Replay) -> None:
    r.dead = next((r.brokers.folder / "broker-1").glob("log-dir-*/dd-*")).parent
    r.log_dirs("offline", r.dead, "--force")
    wait_for(lambda: r.nodes.names(EVENTS) == [], "the removal")
    r.quiet()


def with_a_dead_dir(r: Replay) -> None:
    r.brokers.create("late", [[1, 2]] * 4)
    r.quiet()


def notes_by_hand(r: Replay) -> None:
    for data in (b'{"version":1,"broker":2,"event":1}', b'{"version":1,"broker":99,"event":1}', b"not json",
                 b'{"version":1,"broker":2,"event":2}'):  # fmt: skip
        r.leave(f"{EVENTS}/log_dir_event_", data, sequence=True)
    r.quiet()


def delete_with_offline(r: Replay) -> None:
    r.delete("dd")
    r.quiet()


def controller_killed(r: Replay) -> None:
    assert r.brokers.controller == 3
    r.brokers.kill(3)
    r.leave(f"{EVENTS}/log_dir_event_", b'{"version":1,"broker":2,"event":1}', sequence=True)
    r.brokers.wait_controller(3)
    r.quiet()


def returns(broker: int) -> Callable[[Replay], None]:
    def phase(r: Replay) -> None:
        r.brokers.start(broker)
        r.quiet()

    return phase


def stops(r: Replay) -> None:
    assert r.brokers.stop(2) == 0
    r.quiet()


def mended(r: Replay) -> None:
    r.brokers.kill(1)
    r.quiet()
    r.brokers.start(1)
    r.log_dirs("online", r.dead)
    r.brokers.wait_in_sync(["golden", "late"])
    r.quiet()


FIRST, MORE = "a_00_first_broker_starts", "a_01_two_more_brokers_start"
PHASES: list[tuple[str, Callable[[Replay], None]]] = [
    (FIRST, lambda r: (r.brokers.start(1), r.quiet())[1]),
    (MORE, lambda r: (r.brokers.start(2), r.brokers.start(3), r.quiet())[2]),
    ("a_02_create_topic_rf3_with_config", create_golden),
    ("a_03_create_topic_auto_assignment", lambda r: (r.new(NewTopic("plain", 2, 2)), r.quiet())[1]),
    ("a_04_create_topic_refused", create_refused),
    ("a_05_create_partitions", more_partitions),
    ("a_06_dynamic_configs", configurations),
    ("a_07_producer_id_block", producer_ids),
    ("a_08_preferred_election_znode", preferred),
    ("between a_08 and a_09", before_moves),
    ("a_09_reassignment_in_progress_and_cancel", move_and_cancel),
    ("a_10_reassignment_completes", move_completes),
    ("a_11_reassignment_by_znode", move_by_node),
    ("a_12_topic_deletion", delete),
    ("a_13_delete_unknown_by_znode", delete_unknown),
    ("b_00_restart_of_all_brokers", restart_all),
    ("between b_00 and b_01", before_the_disk),
    ("b_01_log_dir_dies_on_broker_1", dir_dies),
    ("b_02_with_a_dead_dir", with_a_dead_dir),
    ("b_03_notification_by_hand", notes_by_hand),
    ("b_04_delete_topic_with_offline_replica", delete_with_offline),
    ("b_05_controller_killed", controller_killed),
    ("b_06_killed_broker_returns", returns(3)),
    ("b_07_broker_stops_cleanly", stops),
    ("b_08_broker_returns", returns(2)),
    ("b_09_disk_repaired_and_broker_restarted", mended),
]
