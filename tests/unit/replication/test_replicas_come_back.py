"""A replica goes to another broker and comes back to this one, while disks die and old orders come late."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from holdfast.model.errors import KafkaStorageError, StaleControllerEpochError
from holdfast.model.fates import ReplicaFate
from holdfast.replication.types import PartitionState, StopReplica
from holdfast.storage import dir_changes
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from tests.unit.replication.conftest import TP, topic_id
from tests.unit.replication.test_leadership import fail


def stop(node: Any, epoch: int | None) -> Any:
    """What StopReplica is answered with. None: the topic is deleted."""
    ((answer,),) = [answers.values() for answers in node.stop(StopReplica(TP, epoch, True, topic_id("t")))]
    return answer


def order(node: Any, state: PartitionState) -> Any:
    """What LeaderAndIsr is answered with."""
    ((answer,),) = [answers.values() for answers in node.order(state)]
    return answer


def test_a_late_order_does_not_bring_back_what_had_to_go(cluster: Any) -> None:
    """It would lead once more, on an empty log, for clients that have not heard either."""
    cluster.create(1)
    late = cluster.states[TP]
    cluster[1].produce(b"a")
    cluster.settle()
    assert stop(cluster[1], 1) is None
    assert isinstance(order(cluster[1], late), StaleControllerEpochError)
    assert cluster[1].logs.get(TP) is None and not cluster[1].replicas.is_leader(TP)
    again = cluster.change(replicas=(2, 1), leader=2, isr=(2,), leader_epoch=2, adding_replicas=(1,), is_new=True)
    assert order(cluster[1], again) is None, "who gets it back gets it in a later epoch"


def test_a_late_order_for_a_topic_that_was_deleted_makes_nothing(cluster: Any) -> None:
    cluster.create(1)
    late = cluster.states[TP]
    assert stop(cluster[1], None) is None
    assert isinstance(order(cluster[1], late), StaleControllerEpochError)
    assert cluster[1].logs.get(TP) is None


def test_a_late_stop_is_older_than_the_replica_that_was_made_anew(cluster: Any) -> None:
    cluster.create(1, 2, 3)
    assert stop(cluster[3], 1) is None
    again = cluster.change(leader_epoch=2, isr=(1, 2), adding_replicas=(3,), is_new=True)
    assert order(cluster[3], again) is None
    assert isinstance(stop(cluster[3], 1), StaleControllerEpochError)
    assert cluster[3].logs.get(TP) is not None


def moved_away_from_a_dead_disk(cluster: Any) -> Any:
    """Broker 2 and its dead directory: the partition has no replica there any more."""
    cluster.create(1, 2)
    node = cluster[2]
    at = node.dirs.index(node.log(TP).dir)
    fail(node, at)
    cluster.change(replicas=(1,), isr=(1,), leader=1, leader_epoch=1)
    cluster.broadcast(to=[1])
    assert isinstance(stop(node, 1), KafkaStorageError), "K112-71"
    return node, node.dirs[at]


@pytest.mark.parametrize("how", ["an empty disk", "the directory is taken away", "it is dead still", "the old data"])
def test_K112_72_a_replica_may_come_back_whatever_became_of_the_dead_disk(new_cluster: Any, how: str) -> None:
    cluster = new_cluster(2, dirs=2)
    node, old = moved_away_from_a_dead_disk(cluster)
    old.close()
    if how == "the directory is taken away":
        dir_changes.take_away(node.logs, old)
    elif how != "it is dead still":
        if how == "an empty disk":
            shutil.rmtree(old.path)
        errors: list[Any] = []
        dir_changes.restore(node.logs, old, LogDir(old.path, OsFiles(), InlineQueue()), cluster.now_ms, errors.append)
        assert errors == [None]
    node.logs.standings.gone(TP)  # told to the controller, which answers with all there is
    node.replicas.remove_strays(lambda tp: False, controller_epoch=1, now_ms=cluster.now_ms)
    assert node.replicas.offline_count() == (how == "it is dead still")
    state = cluster.change(replicas=(1, 2), leader_epoch=2, adding_replicas=(2,), is_new=True)
    cluster.broadcast(to=[1])
    assert order(node, state) is None
    assert node.log(TP).is_online and node.replicas.offline_count() == 0


def test_it_comes_back_before_the_controller_has_heard_of_the_disk(new_cluster: Any) -> None:
    """The old data is there, and stands for nothing."""
    cluster = new_cluster(2, dirs=2)
    node, old = moved_away_from_a_dead_disk(cluster)
    old.close()
    errors: list[Any] = []
    dir_changes.restore(node.logs, old, LogDir(old.path, OsFiles(), InlineQueue()), cluster.now_ms, errors.append)
    node.logs.standings.gone(TP)
    state = cluster.change(replicas=(1, 2), leader_epoch=2, adding_replicas=(2,), is_new=True)
    cluster.broadcast(to=[1])
    assert order(node, state) is None
    node.replicas.remove_strays(lambda tp: True, controller_epoch=1, now_ms=cluster.now_ms)
    assert order(node, state) is None and node.log(TP).is_online


def test_what_counts_is_not_made_anew_beside_a_dead_disk(new_cluster: Any) -> None:
    """K112-12, K112-32: it is in the ISR, or not new."""
    cluster = new_cluster(2, dirs=2)
    cluster.create(1, 2)
    node = cluster[2]
    fail(node, node.dirs.index(node.log(TP).dir))
    for state in (
        cluster.change(leader_epoch=1, isr=(1, 2), is_new=True),
        cluster.change(leader_epoch=2, isr=(1,), eligible=(2,), is_new=True),
        cluster.change(leader_epoch=3, isr=(1,), eligible=(), is_new=True),
        cluster.change(leader_epoch=4, isr=(1,), eligible=(2,), adding_replicas=(2,), is_new=True),
        cluster.change(leader_epoch=5, isr=(1,), eligible=(), adding_replicas=(2,), is_new=False),
    ):
        assert isinstance(order(node, state), KafkaStorageError)
    assert not node.log(TP).dir.is_online


def test_the_only_copy_leads_again_when_its_disk_is_mended(new_cluster: Any) -> None:
    """The controller knows what it may lack, and has nobody better: it leads, and recovers (KIP-704)."""
    cluster = new_cluster(2, dirs=2)
    cluster.create(1)
    node = cluster[1]
    node.produce(b"a")
    cluster.settle()
    at = node.dirs.index(node.log(TP).dir)
    fail(node, at)
    old = node.dirs[at]
    old.close()
    late = cluster.change(leader=1, leader_epoch=0, isr=(1,), recovering=True)
    errors: list[Any] = []
    dir_changes.restore(node.logs, old, LogDir(old.path, OsFiles(), InlineQueue()), cluster.now_ms, errors.append)
    assert errors == [None]
    assert isinstance(order(node, late), KafkaStorageError), "that was decided before the disk failed"
    known = cluster.change(leader=1, leader_epoch=2, isr=(1,), recovering=True)
    assert isinstance(order(node, known), KafkaStorageError), "it may be of a return before this one"
    node.logs.standings.confirmed(TP, ReplicaFate.DAMAGED)
    assert order(node, known) is None
    assert node.replicas.is_leader(TP) and node.log(TP).view.end_offset == 1


def made_anew_without_records(new_cluster: Any) -> tuple[Any, Any, Any]:
    """The only copy is taken away with its directory, and another one made: nobody leads, and it is empty."""
    cluster = new_cluster(2, dirs=2)
    cluster.create(1)
    node = cluster[1]
    node.produce(b"a", b"b")
    cluster.settle()
    at = node.dirs.index(node.log(TP).dir)
    fail(node, at)
    old = node.dirs[at]
    dir_changes.release(node.logs, old)
    dir_changes.take_away(node.logs, old)
    node.logs.standings.confirmed(TP, ReplicaFate.LOST)
    assert order(node, cluster.change(leader=None, leader_epoch=1, isr=())) is None
    assert node.log(TP).is_online and node.log(TP).view.end_offset == 0
    return cluster, node, old


def bring_back(cluster: Any, node: Any, old: Any) -> LogDir:
    """``log-dirs add`` of the directory with the records."""
    new = LogDir(old.path, OsFiles(), InlineQueue())
    errors: list[Any] = []
    gives_way = node.replicas.give_way
    dir_changes.restore(node.logs, None, new, cluster.now_ms, errors.append, gives_way=gives_way)
    assert errors == [None]
    return new


def entries(directory: LogDir) -> list[str]:
    return sorted(name for name in OsFiles().listdir(directory.path) if name.startswith("t-0"))


def test_A3_the_copy_with_records_wins_over_an_empty_one_while_the_broker_runs(new_cluster: Any) -> None:
    cluster, node, old = made_anew_without_records(new_cluster)
    empty = node.log(TP)
    late = cluster.change(leader=1, leader_epoch=2, isr=(1,), recovering=True)
    new = bring_back(cluster, node, old)
    assert node.log(TP).dir is new and node.log(TP).view.end_offset == 2
    assert entries(new) == ["t-0"] and "t-0" not in entries(empty.dir)
    assert {d.path: node.logs.held.count(d) for d in node.logs.dirs} == {new.path: 1, empty.dir.path: 0}
    assert node.logs.standings.fate(TP) is ReplicaFate.DAMAGED
    assert isinstance(order(node, late), KafkaStorageError), "that was decided about the empty copy"
    node.logs.standings.confirmed(TP, ReplicaFate.DAMAGED)
    assert order(node, cluster.change(leader=1, leader_epoch=3, isr=(1,), recovering=True)) is None
    assert node.replicas.is_leader(TP) and [value for _, value in node.values()] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("leads", {"leader": 1, "leader_epoch": 2, "isr": (1,)}),
        ("is in the ISR", {"leader": 2, "leader_epoch": 2, "isr": (2, 1), "replicas": (2, 1)}),
        ("is eligible", {"leader": 2, "leader_epoch": 2, "isr": (2,), "replicas": (2, 1), "eligible": (1,)}),
    ],
)
def test_A3_an_empty_copy_on_which_the_cluster_counts_stays(new_cluster: Any, what: str, change: Any) -> None:
    """What the other copy has was given up by then; it is left for a person to look at."""
    cluster, node, old = made_anew_without_records(new_cluster)
    assert order(node, cluster.change(**change)) is None
    empty = node.log(TP)
    new = bring_back(cluster, node, old)
    assert node.log(TP) is empty and node.logs.standings.fate(TP) is None, what
    (left,) = entries(new)
    assert left.endswith("-stray")


def test_A3_an_empty_copy_of_another_topic_stays(new_cluster: Any) -> None:
    """K112-80: the one that comes back is of a topic that was deleted."""
    cluster, node, old = made_anew_without_records(new_cluster)
    assert order(node, cluster.change(topic_id=topic_id("u"), leader_epoch=2)) is None
    empty = node.log(TP)
    new = bring_back(cluster, node, old)
    assert node.log(TP) is empty and entries(new) != ["t-0"]
