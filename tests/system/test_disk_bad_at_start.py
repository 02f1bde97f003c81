"""A broker starts and not all of its disks are well: it serves from the others, and what follows from that."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from holdfast.cli import main as entry
from holdfast.cli.connecting import with_cluster
from holdfast.client.disks import change_disk
from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.operating import DirAction
from holdfast.testing import FAULTS, Cluster, wait_for
from holdfast.testing.disks import EioDisk
from holdfast.testing.users import NOBODY
from tests.system.on_disks import (
    QUIET,
    SETTINGS,
    STORAGE_ERROR,
    TIMEOUT_S,
    Load,
    create,
    errors_of,
    errors_of_dirs,
    on_disk,
    produce_error,
    read_all,
    wait_equal,
    wait_offline,
    wait_told,
)
from tests.system.test_disk_system import Group
from tests.system.test_metrics import scrape

pytestmark = pytest.mark.system

ALL = (1, 2, 3)
IN_TURN = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
BROKEN = {3: "replaced", 4: "mode-000", 5: "read-only", 6: "eio", 7: "immutable"}
"""Log directories of broker 1 that are bad when it starts, each in its way; 1 stays good."""
NO_CHECKPOINT, NO_METADATA = 2, 1
"""One whose checkpoint cannot be read, and the good one, of which one replica's metadata cannot."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(disks={(1, 1): EioDisk, (1, 2): EioDisk}, user=NOBODY, settings=SETTINGS) as running:
        yield running
        running.print_logs()


def restart(cluster: Cluster, broker: int) -> None:
    cluster.kill(broker)
    cluster.revive()


def test_whatever_is_wrong_with_disks_the_broker_starts_with_the_others_K112_34_K112_31_K112_33(topic: str) -> None:
    disks = {(1, number): FAULTS[name] for number, name in BROKEN.items()}
    with Cluster(disks=disks, log_dirs=7, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, IN_TURN * 7, min_insync_replicas="2")
        with Load(cluster, topic, range(21)) as load:
            held = {number: on_disk(cluster, 1, number) for number in range(1, 8)}
            assert all(held.values())
            cluster.kill(1)
            for number in BROKEN:
                cluster.disks[1, number].fail()
            (cluster.log_dir(1, NO_CHECKPOINT) / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
            (cluster.log_dir(1, NO_CHECKPOINT) / "recovery-point-offset-checkpoint").mkdir()
            odd = min(held[NO_METADATA])
            (cluster.log_dir(1, NO_METADATA) / f"{odd[0]}-{odd[1]}" / "partition.metadata").chmod(0)
            cluster.revive()
            bad = {NO_CHECKPOINT, *BROKEN}
            lost = {place for number in bad for place in held[number]}
            wait_offline(cluster, 1, lost, at=ALL)  # K112-31, K112-33: told everywhere, and in no ISR

            def well() -> bool:
                view = cluster.describe([topic]).partitions
                return all((1 in seen.isr) == (place not in lost) for place, seen in view.items())

            wait_for(well, "an ISR that has the replicas on good disks and no others", timeout_s=TIMEOUT_S)
            errors = errors_of_dirs(cluster, 1)
            assert errors == {number: STORAGE_ERROR if number in bad else 0 for number in range(1, 8)}
            load.progress()
        # One unreadable replica is no bad disk: it was made again, from its leader (K18-03).
        assert odd in on_disk(cluster, 1, NO_METADATA)


def test_replicas_of_a_bad_disk_are_not_made_elsewhere_but_new_ones_are_K112_12_K112_32_K112_41(
    cluster: Cluster, topic: str
) -> None:
    create(cluster, topic, IN_TURN * 2, min_insync_replicas="2")
    with Load(cluster, topic, range(6)) as load:
        load.progress(20)
        lost = on_disk(cluster, 1, 2)
        cluster.kill(1)
        cluster.disks[1, 2].fail()
        cluster.revive()
        wait_offline(cluster, 1, lost, at=ALL)
        for place in lost:  # K112-12, K112-32: a replica that is not new stays where it is lost
            assert produce_error(cluster, 1, *place) == STORAGE_ERROR
        create(cluster, f"{topic}-new", IN_TURN * 2)
        good = on_disk(cluster, 1, 1)
        assert not lost & good
        assert {(f"{topic}-new", p) for p in range(6)} <= good
        # The controller may change meanwhile: it still calls nobody new who was not.
        controller = cluster.describe([], broker=2).controller_id
        assert controller is not None
        cluster.kill(controller)
        cluster.revive()
        wait_offline(cluster, 1, lost, at=ALL)
        assert not lost & on_disk(cluster, 1, 1)
        # K112-41: without the bad disk in its configuration it makes them on the good one, and fills them.
        cluster.kill(1)
        cluster.disks[1, 2].close()
        without_disk(cluster.data_dir / "broker-1.properties", cluster.log_dir(1, 2))
        cluster.revive()
        cluster.wait_in_sync([topic])
    # The directory that is missed is listed until `log-dirs remove`: what only it had would wait for it (A3).
    assert lost <= on_disk(cluster, 1, 1) and errors_of_dirs(cluster, 1) == {1: 0, 2: STORAGE_ERROR}
    for partition in range(6):
        wait_equal(cluster, topic, partition)


def without_disk(properties: Path, log_dir: Path) -> None:
    """Takes a directory out of log.dirs."""
    text = properties.read_text()
    assert f",{log_dir}" in text
    properties.write_text(text.replace(f",{log_dir}", ""))


def test_a_topic_is_deleted_while_a_disk_is_away_and_its_name_used_again_K112_71_K112_80_C19(
    cluster: Cluster, topic: str
) -> None:
    """The stale replica goes when its disk is back, by its topic id, and nothing of it shows."""
    create(cluster, topic, [[2, 1, 3]] * 2)
    bad = 1 if (topic, 0) in on_disk(cluster, 1, 1) else 2
    with Load(cluster, topic, range(2)):
        pass
    lost = on_disk(cluster, 1, bad)
    cluster.disks[1, bad].fail()
    wait_offline(cluster, 1, lost, at=ALL)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    wait_for(
        lambda: not list(cluster.data_dir.glob(f"broker-[23]/log-dir-*/{topic}-[01]")),
        "the other replicas to go",
        timeout_s=TIMEOUT_S,
    )
    create(cluster, topic, [[2, 1, 3]])  # on the good disk of broker 1, under the same name
    with Load(cluster, topic) as load:
        pass
    cluster.kill(1)
    cluster.disks[1, bad].heal()
    cluster.revive()
    wait_offline(cluster, 1, (), at=ALL)
    wait_equal(cluster, topic, 0)
    wait_for(
        lambda: not list(cluster.log_dir(1, bad).glob(f"{topic}-[01]")), "the stale replicas to go", timeout_s=TIMEOUT_S
    )
    assert len(cluster.live()) == 3 and not any(errors_of_dirs(cluster, 1).values())
    assert load.acked[0] <= {int(value) for value in read_all(cluster, topic, 0)}


def test_ST_1_a_bad_disk_is_found_when_the_leader_starts(topic: str) -> None:
    """KIP-112's system test: the leader is killed, its directory becomes mode 000, it starts again; a group reads."""
    disks = {(broker, number): FAULTS["mode-000"] for broker in ALL for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2")
        with Group(cluster, topic) as group, Load(cluster, topic) as load:
            wait_for(lambda: group.read, "the first record read", timeout_s=TIMEOUT_S)
            disk = cluster.disk_of(1, topic, 0)
            bad = int(cluster.folder_of(1, topic, 0).parent.name.rpartition("-")[2])
            lost = on_disk(cluster, 1, bad)
            assert (topic, 0) in lost
            os.kill(cluster.pids()[1], signal.SIGKILL)
            wait_for(lambda: 1 not in cluster.live(), "the end of broker 1", timeout_s=TIMEOUT_S)
            disk.fail()
            cluster.revive()
            wait_offline(cluster, 1, lost, at=ALL)
            load.progress(20)
            seen = cluster.describe([topic]).partitions[topic, 0]
            assert seen.leader in (2, 3) and set(seen.isr) == {2, 3}
            assert 1 in cluster.live()
            wait_told(cluster, 1, bad, "Permission denied")
            assert errors_of_dirs(cluster, 1) == {bad: STORAGE_ERROR, 3 - bad: 0}
            group.wait_for_all(load)


def test_K112_95_K112_43_K112_71_a_directory_that_is_bad_at_the_start_is_as_visible_as_one_that_dies(
    topic: str,
) -> None:
    """By errors, gauges, descriptions and the bytes that removing it needs; and both refusals of K112-43."""
    settings = {**SETTINGS, "replica.high.watermark.checkpoint.interval.ms": "300"}
    with Cluster(disks={(1, 1): FAULTS["full"], (1, 2): EioDisk}, user=NOBODY, settings=settings) as cluster:
        create(cluster, topic, IN_TURN * 2)
        with Load(cluster, topic, range(6)) as load:
            load.progress(100)
            lost, path = on_disk(cluster, 1, 2), str(cluster.log_dir(1, 2))
            note = cluster.log_dir(1, 1) / "holdfast.replicas"

            def is_noted() -> bool:
                held = json.loads(note.read_text())["directories"][path] if note.exists() else {}
                return all(held.get(f"{name}-{number}") for name, number in lost)

            wait_for(is_noted, "a note of what is there", timeout_s=TIMEOUT_S)
            cluster.kill(1)
            cluster.disks[1, 2].fail()
            cluster.revive()
            wait_offline(cluster, 1, lost, at=ALL)
        for place in lost:  # K112-03, K112-94
            assert set(errors_of(cluster, 1, *place)) == {STORAGE_ERROR}
        found = scrape(cluster)
        assert found["kafka_server_replicamanager_offlinereplicacount"][()] == len(lost)
        assert found["holdfast_log_directory_replicas"][path,] == len(lost)
        listed = holdfast(cluster, "log-dirs", "describe", "--replicas", "--broker-list", "1").stdout.splitlines()
        shown = [row.split("\t")[2] for row in listed if row.endswith("was there")]
        assert shown == sorted(f"{name}-{number}" for name, number in lost)
        check = ("log-dirs", "remove", "--broker", "1", path, "--check")
        done = holdfast(cluster, *check)
        assert (done.exit_code, " need 0 B" in done.stdout) == (0, False), done.output
        cluster.disks[1, 1].fail()
        wait_for(lambda: holdfast(cluster, *check).exit_code == 1, "too little room", timeout_s=TIMEOUT_S)
        with pytest.raises(InvalidRequestError, match=r"need [0-9]+ bytes, the other log directories have"):
            with_cluster(cluster.bootstrap, lambda client: change_disk(client, 1, DirAction.REMOVE, path))
        with_cluster(cluster.bootstrap, lambda client: change_disk(client, 1, DirAction.REMOVE, path, force=True))
        cluster.disks[1, 1].heal()
        wait_for(
            lambda: scrape(cluster)["kafka_server_replicamanager_offlinereplicacount"][()] == 0,
            "no offline replica (K112-95)",
            timeout_s=TIMEOUT_S,
        )


def holdfast(cluster: Cluster, *args: str) -> Result:
    """A command."""
    return CliRunner().invoke(entry.main, [*args, "--bootstrap-server", cluster.bootstrap])
