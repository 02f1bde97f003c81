"""A directory that is bad when its broker starts is as visible as one that dies while it runs (truth.md, finding 1)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import KafkaStorageError
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TopicPartition
from holdfast.replication.types import Role, StopReplica
from holdfast.storage import dir_changes
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from tests.unit.replication.conftest import TP, Node, topic_id

NEW = TopicPartition("new", 0)


@pytest.fixture
def node(new_cluster: Any) -> Any:
    """Broker 2 has been started again with the directory of its replica replaced by a file."""
    cluster = new_cluster(2, dirs=2)
    cluster.create(1, 2)
    cluster[1].produce(b"a" * 500)
    cluster.settle()
    node = cluster[2]
    node.logs.checkpoints.write_notes(cluster.now_ms)
    held = node.log().dir.path
    node.kill()
    for directory in node.dirs:
        directory.close()
    shutil.move(held, f"{held}.away")
    Path(held).write_text("a file")
    node.start()
    assert [d.is_online for d in node.dirs] == [d.path != held for d in node.dirs]
    return node


def bad(node: Node) -> LogDir:
    return next(d for d in node.dirs if not d.is_online)


def order(node: Node, **changes: Any) -> Any:
    state = node.cluster.change(**{"leader_epoch": 1, "isr": (1, 2), **changes})
    ((answer,),) = [answers.values() for answers in node.order(state)]
    return answer


def stop(node: Node) -> Any:
    ((answer,),) = [answers.values() for answers in node.stop(StopReplica(TP, None, True, topic_id("t")))]
    return answer


def test_K112_03_K112_94_clients_hear_56_of_a_replica_on_a_directory_that_was_bad_at_the_start(node: Node) -> None:
    assert isinstance(order(node), KafkaStorageError)
    (produced,) = node.produce(b"b")
    assert isinstance(produced.error, KafkaStorageError)
    fetched, _ = node.consume(0)
    assert isinstance(fetched[0][0].error, KafkaStorageError)


def test_K112_95_it_is_counted_until_it_is_back(node: Node) -> None:
    order(node)
    order(node)
    assert node.replicas.offline_count() == 1
    old = bad(node)
    Path(old.path).unlink()
    shutil.move(f"{old.path}.away", old.path)
    errors: list[Any] = []
    dir_changes.restore(node.logs, old, LogDir(old.path, OsFiles(), InlineQueue()), node.cluster.now_ms, errors.append)
    assert errors == [None]
    node.logs.standings.confirmed(TP, ReplicaFate.DAMAGED)
    assert order(node, partition_epoch=1, isr=(1,)) is None
    assert node.replicas.offline_count() == 0 and node.log().view.end_offset == 1


def test_K112_71_stop_replica_is_answered_with_56(node: Node) -> None:
    order(node)
    assert isinstance(stop(node), KafkaStorageError)
    assert node.replicas.partitions[TP].role is Role.OFFLINE
    dir_changes.take_away(node.logs, bad(node))
    node.replicas.forget_offline(lambda tp: False)
    assert TP not in node.replicas.partitions, "it is gone with its directory"


def test_H_32_what_is_new_is_made_on_the_good_directory(node: Node) -> None:
    node.cluster.create(2, tp=NEW, settle=False)
    assert [answers[NEW] for answers in node.order(node.cluster.states[NEW])] == [None]
    assert node.replicas.partitions[NEW].role is Role.LEADER and node.replicas.offline_count() == 0


def test_K112_43_what_it_held_is_remembered_by_the_others(node: Node) -> None:
    held = node.logs.held_by(bad(node))
    assert list(held) == [TP] and held[TP] > 500
    (described,) = [d for d in node.logs.describe() if d.error is not None]
    assert described.replicas == [(TP, held[TP], False)]


def test_K112_43_the_note_is_written_only_when_it_says_something_else(node: Node) -> None:
    good, now_ms = next(d for d in node.dirs if d.is_online), node.cluster.now_ms

    def written_ms() -> int:
        return int(json.loads((Path(good.path) / "holdfast.replicas").read_text())["writtenMs"])

    node.logs.checkpoints.write_notes(now_ms + 1)
    assert written_ms() == now_ms + 1, "the first of this life"
    node.logs.checkpoints.write_notes(now_ms + 2)
    assert written_ms() == now_ms + 1
    node.cluster.create(2, tp=NEW, settle=False)
    node.order(node.cluster.states[NEW])
    node.logs.checkpoints.write_notes(now_ms + 3)
    assert written_ms() == now_ms + 3


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 2, "writtenMs": 1, "directories": {}}',
                                  '{"version": 1, "writtenMs": 1, "directories": {"/d": {"t-0": -1}}}',
                                  '{"version": 1, "writtenMs": 1, "directories": {"/d": {"0": 1}}}'])  # fmt: skip
def test_K112_43_a_note_that_cannot_be_read_is_none(node: Node, text: str) -> None:
    good = next(d for d in node.dirs if d.is_online)
    (Path(good.path) / "holdfast.replicas").write_text(text)
    node.kill()
    for directory in node.dirs:
        directory.close()
    node.start()
    assert node.logs.held_by(bad(node)) == {}
