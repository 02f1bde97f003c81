"""What metadata is made of log directories: real files of replicas that differ, are damaged, or cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.metadata import metadata
from holdfast.coordination import rebuild
from holdfast.coordination.rebuild import FoundDir, RebuildPlan
from holdfast.metadata.records import TopicRecord
from holdfast.model.errors import KafkaStorageError
from holdfast.model.fates import LogEnd
from holdfast.model.types import TopicPartition
from holdfast.records.record import BatchBuilder
from holdfast.storage import partition_metadata
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import encode_meta_properties

TP = TopicPartition("t", 0)
ID, OTHER = UUID(int=7), UUID(int=8)
CLUSTER = "c" * 22


def batch(base: int, count: int, epoch: int) -> bytes:
    builder = BatchBuilder(base_offset=base, leader_epoch=epoch)
    for n in range(count):
        builder.append(None, b"value-%d" % n, 1000)
    return bytes(builder.build())


def log_of(*batches: tuple[int, int]) -> bytes:
    """Batches of (records, leader epoch), one after another from offset 0."""
    data, offset = b"", 0
    for count, epoch in batches:
        data += batch(offset, count, epoch)
        offset += count
    return data


class Directories:
    """Log directories of brokers, one each."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, broker: int) -> Path:
        made = self.root / f"broker-{broker}"
        if not made.exists():
            made.mkdir()
            text = encode_meta_properties(broker, UUID(int=100 + broker), CLUSTER, 0)
            (made / "meta.properties").write_bytes(text)
        return made

    def replica(
        self, broker: int, data: bytes, topic_id: UUID | None = ID, tp: TopicPartition = TP, base: int = 0
    ) -> Path:
        replica = self.path(broker) / str(tp)
        replica.mkdir(exist_ok=True)
        (replica / f"{base:020d}.log").write_bytes(data)
        if topic_id is not None:
            (replica / partition_metadata.FILE_NAME).write_bytes(partition_metadata.encode(topic_id))
        return replica

    def survey(self, broker: int) -> FoundDir:
        return rebuild.survey(OsFiles(), broker, str(self.path(broker)))

    def plan(self, *brokers: int) -> RebuildPlan:
        return rebuild.plan([self.survey(broker) for broker in brokers], {})

    def recover(self, *options: str) -> Result:
        """As a person does, on a cluster whose only metadata directory is an empty one."""
        arguments = ["recover", *options]
        for path in sorted(self.root.glob("broker-*")):
            number = path.name.removeprefix("broker-")
            file = self.root / f"{number}.properties"
            file.write_text(f"node.id={number}\nlog.dirs={path}\nmetadata.log.dirs={self.root / 'meta'}\n")
            arguments += ["--config", str(file)]
        return CliRunner().invoke(metadata, arguments)


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path)


def test_A5_of_replicas_that_differ_the_longest_by_epoch_and_offset_is_in_sync(directories: Directories) -> None:
    directories.replica(1, log_of((100, 5)))
    directories.replica(2, log_of((50, 5), (10, 6)))
    directories.replica(3, log_of((50, 5), (15, 6)))
    record, end = directories.plan(1, 2, 3).partitions[TP]
    assert end == LogEnd(6, 65)
    assert record.isr == (3,)
    assert record.replicas == (3, 1, 2)
    assert record.leader_epoch == 7


def test_A5_replicas_that_go_equally_far_are_all_in_sync(directories: Directories) -> None:
    for broker in (1, 2):
        directories.replica(broker, log_of((5, 1), (3, 2)))
    directories.replica(3, log_of((5, 1)))
    record, _ = directories.plan(1, 2, 3).partitions[TP]
    assert (record.isr, record.replicas) == ((1, 2), (1, 2, 3))


@pytest.mark.parametrize("damage", ["zeros", "bit", "half", "garbage", "back"])
def test_A5_a_log_ends_before_its_first_bad_batch(directories: Directories, damage: str) -> None:
    whole = log_of((5, 1), (5, 1))
    tail = bytearray(batch(10, 90, 1))
    if damage == "zeros":  # the size was on the device at a loss of power, the records were not
        tail[61:] = bytes(len(tail) - 61)
    elif damage == "bit":
        tail[-1] ^= 1
    elif damage == "half":
        del tail[len(tail) // 2 :]
    elif damage == "garbage":
        tail[:] = b"\xa5" * len(tail)
    else:
        tail[:] = batch(3, 90, 1)
    directories.replica(1, whole + bytes(tail))
    directories.replica(2, whole + batch(10, 1, 1))
    found = directories.survey(1)
    assert found.replicas[0].end == LogEnd(1, 10)
    record, end = directories.plan(1, 2).partitions[TP]
    assert (record.isr, end) == ((2,), LogEnd(1, 11))


def test_A5_a_last_segment_without_a_whole_batch_ends_where_it_begins(directories: Directories) -> None:
    directories.replica(1, log_of((5, 1), (5, 2)))
    torn = bytearray(batch(10, 4, 3))
    torn[-1] ^= 1
    directories.replica(1, bytes(torn), base=10)
    assert directories.survey(1).replicas[0].end == LogEnd(2, 10)


def test_A5_of_two_topics_of_one_name_the_later_is_taken_and_it_is_told(directories: Directories) -> None:
    directories.replica(1, log_of((100, 1)), ID)
    directories.replica(2, log_of((3, 4)), OTHER)
    directories.replica(3, log_of((2, 1)), ID)
    made = directories.plan(1, 2, 3)
    record, _ = made.partitions[TP]
    assert (record.topic_id, record.replicas, record.isr) == (OTHER, (2,), (2,))
    assert [r.topic_id for r in made.records if isinstance(r, TopicRecord)] == [OTHER]
    (doubt,) = made.doubts
    assert doubt == f"t has replicas of 2 topics of that name: {OTHER} is used, not {ID}"


def test_A5_a_replica_that_does_not_say_of_which_topic_it_is_is_left_alone(directories: Directories) -> None:
    left = directories.replica(1, log_of((100, 1)), None)
    made = directories.plan(1)
    assert not made.partitions
    assert made.doubts == (f"{left} does not say of which topic it is: left alone",)
    directories.replica(2, log_of((3, 1)))
    assert directories.plan(1, 2).partitions[TP][0].replicas == (2,)


def test_A5_directories_of_two_clusters_are_refused(directories: Directories) -> None:
    directories.replica(1, log_of((1, 1)))
    other = encode_meta_properties(2, UUID(int=1), "d" * 22, 0)
    (directories.path(2) / "meta.properties").write_bytes(other)
    with pytest.raises(KafkaStorageError, match=f"2 clusters.*{CLUSTER}.*{'d' * 22}.*expected one"):
        directories.plan(1, 2)


def bad_directory(directories: Directories) -> Path:
    path = directories.root / "broker-2"
    path.write_bytes(b"no directory")
    return path


def bad_replica(directories: Directories) -> Path:
    path = directories.replica(2, log_of((20, 1)))
    (path / "00000000000000000000.log").unlink()
    (path / "00000000000000000000.log").mkdir()
    return path


@pytest.mark.parametrize("make_bad", [bad_directory, bad_replica])
def test_A5_what_cannot_be_read_is_named_and_recover_waits_for_force(
    directories: Directories, make_bad: Callable[[Directories], Path]
) -> None:
    directories.replica(1, log_of((10, 1)))
    bad = make_bad(directories)
    shown = directories.recover()
    assert shown.exit_code == 0, shown.output
    assert f"NOTE {bad} cannot be read" in shown.output and "Nothing was changed" in shown.output
    refused = directories.recover("--execute")
    assert refused.exit_code == 1
    assert f"holdfast metadata: {bad} cannot be read: bring it back" in refused.output
    assert not (directories.root / "meta").exists()
    assert not list(directories.root.glob("broker-*/holdfast.recovered"))
    forced = directories.recover("--execute", "--force")
    assert forced.exit_code == 0, forced.output
    assert f"Written to {directories.root / 'meta'}" in forced.output
    again = directories.recover("--execute")
    assert again.exit_code == 1 and "is a good copy of the metadata" in again.output
