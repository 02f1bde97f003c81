"""A directory that hangs for long (fsfreeze): a start beside it, and topics that come and go elsewhere meanwhile."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.cli.connecting import with_cluster
from holdfast.client.disks import describe_disks
from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import FrozenDisk
from tests.system.on_disks import (
    QUIET,
    SETTINGS,
    STORAGE_ERROR,
    TIMEOUT_S,
    Load,
    create,
    errors_of_dirs,
    on_disk,
    wait_offline,
)

pytestmark = pytest.mark.system

ALL = (1, 2, 3)
IN_TURN = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def states(cluster: Cluster) -> dict[str, str]:
    """Of the directories of broker 1."""
    view = with_cluster(cluster.bootstrap, lambda client: describe_disks(client, 1))
    return {disk.path: disk.state for disk in view.disks}


def test_D4_K112_34_a_broker_starts_beside_a_directory_that_hangs_and_takes_it_up_later(topic: str) -> None:
    with Cluster(disks={(1, 2): FrozenDisk}, log_dirs=2, settings=SETTINGS) as cluster:
        create(cluster, topic, IN_TURN * 2, min_insync_replicas="2")
        with Load(cluster, topic, range(6)) as load:
            lost = on_disk(cluster, 1, 2)
            hung, path = cluster.disks[1, 2], str(cluster.log_dir(1, 2))
            cluster.kill(1)
            hung.fail()
            began_s = time.monotonic()
            cluster.revive()
            served = sorted(set(cluster.describe([topic]).partitions) - lost)

            def serves() -> bool:
                view = cluster.describe([topic]).partitions
                return all(1 in view[place].isr for place in served)

            wait_for(serves, "the replicas on the other directory in sync", timeout_s=TIMEOUT_S)
            took_s = time.monotonic() - began_s
            print(f"the other directory serves {took_s:.1f} s after the start")
            assert took_s < 10.0, "5 s where the machine has nothing else to do"
            assert states(cluster) == {path: "silent", str(cluster.log_dir(1, 1)): "online"}
            assert errors_of_dirs(cluster, 1) == {1: 0, 2: STORAGE_ERROR}
            wait_offline(cluster, 1, lost, at=ALL)
            load.progress(20)
            assert not lost & on_disk(cluster, 1, 1), "not made anew: nobody knows what it has"
            hung.heal()
            wait_for(lambda: states(cluster)[path] != "silent", "it to be taken up", timeout_s=TIMEOUT_S)
            cluster.wait_in_sync([topic])
        assert lost <= on_disk(cluster, 1, 2)


def test_D2_D3_topics_come_and_go_in_less_than_a_second_while_a_directory_hangs(topic: str) -> None:
    with Cluster(disks={(1, 2): FrozenDisk}, log_dirs=2, settings=SETTINGS) as cluster:
        create(cluster, topic, IN_TURN * 2, min_insync_replicas="2")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        hung, took_s = cluster.disks[1, 2], []
        before = on_disk(cluster, 1, 2)
        with Load(cluster, topic, range(6)) as load:
            hung.fail()
            for number in range(12):
                name = f"{topic}-{number}"
                began_s = time.monotonic()
                admin.create_topics([NewTopic(name, 3, replica_assignment=IN_TURN)])[name].result(TIMEOUT_S)
                took_s.append(time.monotonic() - began_s)
                load.progress(5) if number == 6 else None
                if number % 3 == 2:
                    gone = f"{topic}-{number - 1}"
                    began_s = time.monotonic()
                    admin.delete_topics([gone])[gone].result(TIMEOUT_S)
                    took_s.append(time.monotonic() - began_s)
            print("topics took", " ".join(f"{each:.3f}" for each in took_s), "s")
            assert max(took_s) < 1.5, "1 s where the machine has nothing else to do"
            assert on_disk(cluster, 1, 2) <= before
            wait_for(lambda: states(cluster)[str(hung.path)] == "silent", "its state", timeout_s=TIMEOUT_S)
            hung.heal()
        cluster.wait_in_sync([topic, *(f"{topic}-{n}" for n in range(12) if n % 3 != 1)])


def test_F6_a_degraded_directory_is_taken_offline_where_that_is_wished(topic: str) -> None:
    """``log.dir.degraded.action=offline``; the last one that works stays."""
    settings = {**SETTINGS, "log.dir.degraded.action": "offline"}
    with Cluster(disks={(1, number): FrozenDisk for number in (1, 2)}, log_dirs=2, settings=settings) as cluster:
        create(cluster, topic, IN_TURN * 2, min_insync_replicas="2")
        with Load(cluster, topic, range(6)) as load:
            lost = on_disk(cluster, 1, 2)
            cluster.disks[1, 2].fail()
            wait_offline(cluster, 1, lost, at=ALL)
            load.progress(20)
            cluster.disks[1, 1].fail()
            first, second = (str(cluster.log_dir(1, number)) for number in (1, 2))
            wait_for(lambda: states(cluster) == {first: "silent", second: "offline"}, "both", timeout_s=TIMEOUT_S)
            cluster.disks[1, 1].heal()
            cluster.disks[1, 2].heal()
            wait_for(lambda: states(cluster)[first] != "silent", "an answer", timeout_s=TIMEOUT_S)
            assert 1 in cluster.live()
