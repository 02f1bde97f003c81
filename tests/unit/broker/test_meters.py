"""What the meters make of decisions and of time."""

from __future__ import annotations

from uuid import UUID

from holdfast.broker.meters import Elections, Meters
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from holdfast.model.errors import HoldfastError
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir

ID = UUID(int=1)


def changes(*records: object) -> tuple[list[ClusterDelta], ClusterImage]:
    """One decision a record, on a topic that broker 1 leads with 2 in sync and 3 out of it."""
    image = ClusterImage(cluster_id="c")
    first = [
        TopicRecord(name="t", topic_id=ID),
        PartitionRecord(partition=0, topic_id=ID, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=0),
    ]
    image, _ = image.apply(first, 0)
    deltas = []
    for offset, record in enumerate(records, 2):
        image, delta = image.apply([record], offset)  # type: ignore[list-item]
        deltas.append(delta)
    return deltas, image


def counted(*records: object) -> tuple[int, int]:
    elections = Elections()
    elections.count(*changes(*records))
    return elections.leaders, elections.unclean


def change(**what: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition=0, topic_id=ID, **what)  # type: ignore[arg-type]


def test_another_leader_is_an_election_and_a_smaller_isr_is_none() -> None:
    assert counted(change(isr=(1,))) == (0, 0)
    assert counted(change(leader=2)) == (1, 0)
    assert counted() == (0, 0)


def test_a_leader_from_outside_the_isr_is_unclean_unless_it_was_eligible() -> None:
    assert counted(change(leader=3, isr=(3,))) == (1, 1)
    assert counted(change(isr=(1,), elr=(2,)), change(leader=2, isr=(2,), elr=())) == (1, 0)


def test_each_decision_of_a_batch_is_held_against_what_was_before_it() -> None:
    assert counted(change(leader=None), change(leader=2), change(leader=1)) == (2, 0)


def test_a_directory_goes_on_counting_after_it_was_healed(tmp_path: object) -> None:
    meters = Meters()
    directory = LogDir(str(tmp_path), OsFiles(), InlineQueue())
    directory.meter = meters.of_dir(directory.path)
    failed: list[HoldfastError] = [directory.judge(OSError(28, "no space"), HoldfastError)]  # type: ignore[arg-type]
    assert failed
    assert directory.meter.errors == 1
    assert meters.of_dir(directory.path) is directory.meter


def test_too_many_open_files_is_no_error_of_a_disk(tmp_path: object) -> None:
    directory = LogDir(str(tmp_path), OsFiles(), InlineQueue())
    directory.meter = Meters().of_dir(directory.path)
    directory.judge(OSError(24, "too many"), HoldfastError)  # type: ignore[arg-type]
    assert directory.meter.errors == 0


def test_nothing_is_busy_before_there_was_a_minute() -> None:
    meters = Meters()
    assert meters.idle() == (1.0, 1.0)
    meters.remember()
    loop, disks = meters.idle()
    assert 0 <= loop <= 1
    assert disks == 1.0
