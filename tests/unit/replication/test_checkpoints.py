"""What the checkpoint files say of logs that are deleted while they are written (house.md D12)."""

from pathlib import Path
from typing import Any

from holdfast.model.errors import CheckpointError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import StopReplica
from holdfast.storage import checkpoints

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FILES = (checkpoints.HIGH_WATERMARK, checkpoints.RECOVERY_POINT)


def names(cluster: Any, file: str) -> set[str]:
    """The partitions in a checkpoint file of broker 1."""
    lines = Path(cluster[1].paths[0], file).read_text().splitlines()[2:]
    return {line.rpartition(" ")[0] for line in lines}


def test_D12_a_checkpoint_under_way_does_not_bring_back_a_log_that_is_gone(cluster: Any) -> None:
    """A new log of that name would begin at the high watermark and the recovery point of the old one."""
    for tp in (TP, OTHER):
        cluster.create(1, tp=tp)
        cluster[1].produce(b"a", tp=tp)
    node, queue = cluster[1], cluster[1].queues[0]
    node.logs.checkpoints.write_all(node.replicas.high_watermarks())
    queue.run()
    for tp in (TP, OTHER):
        node.produce(b"b", tp=tp)
    queue.inline = False
    node.logs.checkpoints.write_all(node.replicas.high_watermarks())  # and the disk is slow
    node.logs.checkpoints.rewrite_soon(node.dirs[0], TP)
    node.logs.checkpoints.rewrite_soon(node.dirs[0], TP)
    assert len(queue.works) == 2, "one rewrite serves all"
    queue.run()
    assert [names(cluster, file) for file in FILES] == [{"t 1"}] * 2


def test_D12_a_deleted_log_is_in_no_checkpoint(cluster: Any) -> None:
    for tp in (TP, OTHER):
        cluster.create(1, tp=tp)
        cluster[1].produce(b"a", tp=tp)
    node, queue = cluster[1], cluster[1].queues[0]
    queue.inline = False
    node.logs.checkpoints.write_all(node.replicas.high_watermarks())
    node.stop(StopReplica(TP, None, True))
    queue.run()
    assert [names(cluster, file) for file in FILES] == [{"t 1"}] * 2


def test_D12_a_log_that_is_made_again_is_spoken_of_again(cluster: Any) -> None:
    cluster.create(1)
    node = cluster[1]
    node.stop(StopReplica(TP, None, True))
    cluster.create(1)
    node.produce(b"a")
    node.logs.checkpoints.write_all(node.replicas.high_watermarks())
    cluster.settle()
    assert names(cluster, checkpoints.HIGH_WATERMARK) == {"t 0"}


def test_K18_01_a_checkpoint_that_cannot_be_written_is_an_error_of_its_own_kind(cluster: Any) -> None:
    """Its name tells what was written and where; the two others are those of reads and appends."""
    cluster.create(1)
    cluster[1].produce(b"a")
    path = Path(cluster[1].paths[0], checkpoints.HIGH_WATERMARK)
    Path(f"{path}.tmp").mkdir()
    (Path(f"{path}.tmp") / "in the way").touch()
    cluster[1].logs.checkpoints.write_all(cluster[1].replicas.high_watermarks())
    cluster.settle()
    failure = cluster[1].dirs[0].failure
    assert type(failure) is CheckpointError
    assert str(path.parent) in str(failure) and path.name in str(failure)
