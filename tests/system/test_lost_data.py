"""Replicas that lost data, and those that only look as if they could have: who leads, and what is there then."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.storage.incarnation import FILE_NAME
from holdfast.testing import Cluster, wait_for
from tests.system.test_returning_brokers import (
    assert_equal_replicas,
    create,
    folder_of,
    produce,
    segments,
    single_broker,
)

pytestmark = pytest.mark.system

TIMEOUT_S = 30


def die_one_by_one(cluster: Cluster, topic: str, *brokers: int) -> None:
    """Each is missed before the next one dies; the last one is the last of the ISR."""
    for broker in brokers[:-1]:
        cluster.kill(broker)
        others = [b for b in brokers if b != broker]

        def missed(broker: int = broker, others: list[int] = others) -> bool:
            live = [b for b in others if b in cluster.live()]
            return broker not in cluster.describe([topic], broker=live[0]).partitions[topic, 0].isr

        wait_for(missed, f"broker {broker} to leave the ISR", timeout_s=TIMEOUT_S)
    cluster.kill(brokers[-1])


def die_at_once(cluster: Cluster) -> None:
    """All brokers, in one instant: none of them hears that another died. They are stopped first, because kills one
    after the other leave the one that lives longest the time to take the others out of the ISR, in any order; who was
    out of it before the last ones died is not asked for its log."""
    pids = cluster.pids().values()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not cluster.live(), "the end of all brokers", timeout_s=TIMEOUT_S)


def wipe(cluster: Cluster, broker: int) -> None:
    """New, empty disks."""
    for disk in cluster.data_dir.glob(f"broker-{broker}/log-dir-*"):
        shutil.rmtree(disk)
        disk.mkdir()


def lose_power(cluster: Cluster, broker: int, topic: str, kept: float = 0.5) -> None:
    """Its machine has booted since, and what was not flushed is gone: here, all but this part of the log."""
    for note in cluster.data_dir.glob(f"broker-{broker}/log-dir-*/{FILE_NAME}"):
        note.write_text(json.dumps(json.loads(note.read_text()) | {"bootId": "the boot before"}))
    (log,) = folder_of(cluster, broker, topic, 0).glob("*.log")
    os.truncate(log, int(log.stat().st_size * kept))


def test_H_07_the_last_in_sync_replica_is_wiped_and_nothing_is_lost(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3]], **{"min.insync.replicas": "2"})
    acked = produce(cluster, topic, 1, 300)
    die_one_by_one(cluster, topic, 2, 3, 1)
    wipe(cluster, 1)
    cluster.revive()
    assert_equal_replicas(cluster, topic)
    assert produce(cluster, topic, 1, 1) == [acked[-1] + 1]


def test_H_07_a_machine_that_went_down_does_not_lead_before_those_that_did_not(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3]], **{"min.insync.replicas": "2"})
    acked = produce(cluster, topic, 1, 300)
    wait_for(lambda: len(segments(cluster, 3, topic, 0)) == len(segments(cluster, 1, topic, 0)), "copies", timeout_s=9)
    size = len(segments(cluster, 3, topic, 0))
    die_one_by_one(cluster, topic, 2, 3, 1)
    lose_power(cluster, 1, topic)
    with single_broker(cluster, 1):
        seen = cluster.describe([topic], broker=1).partitions[topic, 0]
        assert (seen.leader, seen.isr) == (None, ())
    cluster.revive()
    assert_equal_replicas(cluster, topic)
    assert len(segments(cluster, 1, topic, 0)) == size
    assert produce(cluster, topic, 1, 1) == [acked[-1] + 1]


def test_H_07_after_a_power_cut_of_all_the_longest_log_leads(own_cluster: Callable[..., Cluster], topic: str) -> None:
    """What one has flushed another may not have: none of it is lost, whoever comes back first."""
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3]], **{"min.insync.replicas": "2"})
    acked = [offset for _ in range(12) for offset in produce(cluster, topic, 1, 1)]
    assert acked == list(range(12))
    assert_equal_replicas(cluster, topic)
    die_at_once(cluster)
    for broker, kept in ((1, 0.3), (2, 0.8), (3, 0.5)):
        lose_power(cluster, broker, topic, kept)
    cluster.revive()
    assert_equal_replicas(cluster, topic)
    assert produce(cluster, topic, 1, 1) == [9]


def test_H_26_nobody_has_everything_and_a_person_says_who_leads(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2]])
    acked = produce(cluster, topic, 1, 50)
    assert_equal_replicas(cluster, topic)
    die_one_by_one(cluster, topic, 2, 3, 1)
    wipe(cluster, 1)
    cluster.revive()
    wait_for(lambda: len(cluster.describe([topic]).brokers) == 3, "all brokers", timeout_s=TIMEOUT_S)
    seen = cluster.describe([topic]).partitions[topic, 0]
    assert (seen.leader, seen.isr) == (None, ())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = [TopicPartition(topic, 0)]
    result = admin.elect_leaders(ElectionType.UNCLEAN, wanted).result(TIMEOUT_S)
    assert result == {wanted[0]: None}
    cluster.wait_in_sync([topic])
    assert cluster.describe([topic]).partitions[topic, 0].leader in (1, 2)
    assert produce(cluster, topic, 1, 1) == [acked[-1] + 1]  # not the empty one, though it is the first of the list
    assert_equal_replicas(cluster, topic)


def test_H_07_one_replica_alone_comes_back_after_a_power_cut_by_itself(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    """Nobody can have more of it than the one that there is."""
    cluster = own_cluster()
    create(cluster, topic, [[2]])
    acked = [offset for _ in range(4) for offset in produce(cluster, topic, 1, 10)]  # a batch each
    cluster.kill(2)
    lose_power(cluster, 2, topic)
    cluster.revive()
    wait_for(
        lambda: cluster.describe([topic]).partitions[topic, 0].leader == 2, "broker 2 to lead", timeout_s=TIMEOUT_S
    )
    assert 0 < produce(cluster, topic, 1, 1)[0] < acked[-1]
