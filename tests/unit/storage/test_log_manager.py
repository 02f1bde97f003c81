"""Several dirs: loading, placing, deleting, checkpoints, and the loss of one of them."""

import errno
import os
import shutil
from collections import deque
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    ConfigError,
    CorruptRecordError,
    DiskQueueFullError,
    DuplicateReplicaError,
    HoldfastError,
    InconsistentMetaPropertiesError,
    InconsistentTopicIdError,
    KafkaStorageError,
)
from holdfast.model.types import TopicPartition
from holdfast.storage import checkpoints, dir_changes, retention_run, topic_configs
from holdfast.storage.dir_state import DirNews
from holdfast.storage.files import DiskSpace, OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from holdfast.storage.new_replicas import Placement
from holdfast.storage.partition_metadata import encode_uuid

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
CONFIG = LogConfig(segment_bytes=300, file_delete_delay_ms=1000)


class DeferredQueue:
    """Work waits until the test says run."""

    def __init__(self) -> None:
        self.waiting: deque = deque()
        self.full = False
        self.completed = 0

    def submit(self, work, done) -> None:
        if self.full:
            done(None, DiskQueueFullError("full"))
        else:
            self.waiting.append((work, done))

    def run(self) -> None:
        while self.waiting:
            self.completed += 1
            InlineQueue().submit(*self.waiting.popleft())


class Broker:
    """A LogManager over two or more dirs, and the means to restart it."""

    def __init__(self, root: Path, files, count=2, queues=None) -> None:
        self.root, self.files, self.count = root, files, count
        self.queues = queues or [InlineQueue() for _ in range(count)]
        self.offline: list[LogDir] = []
        self.ids = iter(range(100, 10**6))
        self.error: HoldfastError | None = None

    def start(self, expect_error=False, cluster_id="c") -> LogManager:
        dirs = [
            LogDir(str(self.root / f"d{i}"), self.files, self.queues[i], on_offline=lambda d, e: self.offline.append(d))
            for i in range(self.count)
        ]
        self.logs = LogManager(
            dirs,
            node_id=1,
            cluster_id=cluster_id,
            config_of=lambda topic: CONFIG,
            new_id=lambda: UUID(int=next(self.ids)),
        )
        told = []
        self.logs.start(NOW_MS, told.append)
        for queue in self.queues:
            if isinstance(queue, DeferredQueue):
                queue.run()
        (self.error,) = told
        assert (self.error is not None) == expect_error, self.error
        return self.logs

    def stop(self, clean=True, marks=None) -> None:
        told = []
        if clean:
            self.logs.close(clean=True, broker_epoch=4, high_watermarks=marks or {}, done=lambda: told.append(1))
            assert told == [1]
        else:
            for d in self.logs.dirs:
                d.close()

    def create(self, tp, topic_id=TOPIC_ID, is_new=True):
        told = []
        self.logs.new.create(tp, topic_id, CONFIG, is_new=is_new, now_ms=NOW_MS, done=lambda *a: told.append(a))
        ((log, error),) = told
        if error is not None:
            raise error
        return log

    def delete(self, tp):
        told = []
        self.logs.delete(tp, now_ms=NOW_MS, done=told.append)
        (error,) = told
        if error is not None:
            raise error

    def open_files(self, directory: LogDir) -> list[str]:
        """Those of the directory that this process has open."""
        links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        paths = [os.readlink(link) for link in links if os.path.lexists(link)]
        return [path for path in paths if path.startswith(f"{directory.path}/")]

    def names(self, i: int) -> list[str]:
        return sorted(n for n in os.listdir(self.root / f"d{i}"))


@pytest.fixture
def broker(tmp_path, files):
    broker = Broker(tmp_path, files)
    broker.start()
    yield broker
    for d in broker.logs.dirs:
        d.close()


def tp(i: int) -> TopicPartition:
    return TopicPartition("t", i)


def fill(log, batch, count):
    for _ in range(count):
        log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)


def test_k113_10_a_new_log_goes_to_the_dir_with_the_fewest(broker):
    for i in range(5):
        broker.create(tp(i))
    assert [len(d.replicas) for d in broker.logs.describe()] == [3, 2]
    assert broker.logs.get(tp(0)).dir is broker.logs.dirs[0]
    assert broker.logs.get(tp(99)) is None
    assert len(list(broker.logs.logs())) == 5
    again = broker.create(tp(0))
    assert again is broker.logs.get(tp(0))


def test_placement_by_room_relative_to_size(broker):
    logs = broker.logs
    logs.new.placement = Placement.SPACE
    one, two = logs.dirs
    space = logs.checkpoints._space
    space[one.path], space[two.path] = DiskSpace(total=1000, usable=300), DiskSpace(total=100, usable=60)
    for i in range(4):
        assert broker.create(tp(i)).dir is two
    two.judge(OSError(errno.ENOSPC, "no space left"), KafkaStorageError)
    assert broker.create(tp(9)).dir is one


def test_placement_by_topic_spreads_each_topic(broker):
    logs = broker.logs
    for i in range(3):
        broker.create(TopicPartition("other", i))
    logs.new.placement = Placement.TOPIC
    for i in range(4):
        broker.create(tp(i))
    per_dir = [sum(t.topic == "t" for t, _, _ in d.replicas) for d in logs.describe()]
    assert per_dir == [2, 2]


def test_placement_counts_logs_that_are_being_made(tmp_path, files):
    queues = [DeferredQueue(), DeferredQueue()]
    broker = Broker(tmp_path, files, queues=queues)
    logs = broker.start()
    told = []
    for i in range(6):
        logs.new.create(tp(i), TOPIC_ID, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda log, e: told.append(log))
    logs.new.create(tp(0), TOPIC_ID, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda log, e: told.append(log))
    assert [len(q.waiting) for q in queues] == [3, 3]
    for queue in queues:
        queue.run()
    assert len(told) == 7
    assert told.count(logs.get(tp(0))) == 2


def test_k113_10_when_a_dir_cannot_the_next_one_is_tried(broker, files):
    files.fail("mkdir", "/d0/")
    assert broker.create(tp(0)).dir is broker.logs.dirs[1]
    assert broker.offline == [broker.logs.dirs[0]]
    files.fail("mkdir", "/d1/")
    with pytest.raises(KafkaStorageError, match="no log dir"):
        broker.create(tp(1))


def test_K18_03_one_error_of_a_new_log_is_not_one_of_its_dir(broker, files):
    """Simulation, seed 2136769319. It is made on the next dir, and what there was of it is gone."""
    files.fail("create", "/d0/t-0/")
    assert broker.create(tp(0)).dir is broker.logs.dirs[1]
    assert broker.offline == []
    assert not Path(f"{broker.logs.dirs[0].path}/t-0").exists()
    assert broker.create(tp(1)).dir is broker.logs.dirs[0]


@pytest.mark.parametrize("name", ["moved-from", "00000000000000000000.log"])
def test_K18_03_one_error_of_a_log_at_a_start_is_not_one_of_its_dir(broker, files, name):
    """Simulation, seed 1922195058."""
    assert [broker.create(tp(i)).dir.path[-2:] for i in range(4)] == ["d0", "d1", "d0", "d1"]
    broker.stop(clean=False)
    files.fail("*", f"/d0/t-0/{name}")
    logs = broker.start()
    assert broker.offline == []
    assert list(logs.standings.failed) == [tp(0)]
    assert {each.topic_partition for each in logs.logs()} == {tp(1), tp(2), tp(3)}


def test_a_full_queue_is_passed_over(tmp_path, files):
    queues = [DeferredQueue(), InlineQueue()]
    broker = Broker(tmp_path, files, queues=queues)
    broker.start()
    queues[0].full = True  # type: ignore[attr-defined]
    assert broker.create(tp(0)).dir is broker.logs.dirs[1]


def test_K1066_04_the_fallback_takes_no_directory_that_was_cordoned_since(tmp_path, files):
    slow = DeferredQueue()
    broker = Broker(tmp_path, files, queues=[slow, InlineQueue()])
    broker.start()
    told: list = []
    broker.logs.new.create(tp(0), TOPIC_ID, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda *a: told.append(a))
    assert slow.waiting, "it is to be on the first"
    broker.logs.dirs[1].cordoned = True
    broker.logs.dirs[0].mark_offline(KafkaStorageError("dead"))
    slow.run()
    ((made, error),) = told
    assert made is None
    assert "cordoned" in str(error)
    assert not any("-0" in name for name in broker.names(1))
    broker.logs.dirs[1].cordoned = False
    assert broker.logs.standings.is_refused(tp(0))
    assert broker.logs.new.has_place(tp(0))


def test_k1066_04_cordoned_dirs_take_no_new_logs(broker):
    broker.logs.dirs[0].cordoned = True
    for i in range(4):
        assert broker.create(tp(i)).dir is broker.logs.dirs[1]
    broker.logs.dirs[1].cordoned = True
    with pytest.raises(KafkaStorageError):
        broker.create(tp(9))
    assert [d.cordoned for d in broker.logs.describe()] == [True, True]


def test_k112_08_09_a_lost_log_is_not_made_again_elsewhere(broker):
    broker.logs.dirs[1].mark_offline(KafkaStorageError("dead"))
    with pytest.raises(KafkaStorageError, match="may be on an offline"):
        broker.create(tp(0), is_new=False)
    assert broker.create(tp(0), is_new=True).dir is broker.logs.dirs[0]


def test_k112_07_without_a_bad_dir_it_is_made(broker):
    assert broker.create(tp(0), is_new=False) is broker.logs.get(tp(0))


def test_a_log_on_an_offline_dir_is_lost_not_unknown(broker, batch):
    log = broker.create(tp(0))
    fill(log, batch, 2)
    log.dir.mark_offline(KafkaStorageError("dead"))
    assert broker.logs.get(tp(0)) is log
    for is_new in (True, False):
        with pytest.raises(KafkaStorageError):
            broker.create(tp(0), is_new=is_new)
    with pytest.raises(KafkaStorageError):
        broker.delete(tp(0))
    bad, good = broker.logs.describe()
    assert isinstance(bad.error, KafkaStorageError)
    assert bad.space is None
    assert bad.replicas == [(tp(0), log.view.size, False)]  # H-32: what was there stays known
    assert good.error is None
    assert good.space.total > 0


def test_restart_finds_everything_again(broker, batch, read_all):
    before = {}
    for i in range(6):
        log = broker.create(tp(i))
        fill(log, batch, i)
        before[tp(i)] = read_all(log)
    broker.logs.get(tp(5)).delete_records_before(2)
    for clean in (True, False, True):
        broker.logs.checkpoints.write_all({tp(5): 3})
        broker.stop(clean, marks={tp(5): 4})
        logs = broker.start()
        assert logs.held.mark_of(tp(5)) == (4 if clean else 3)
        for each, data in before.items():
            log = logs.get(each)
            assert log.topic_id == TOPIC_ID
            assert log.view.end_offset == each.partition
            if each != tp(5):
                assert read_all(log) == data
            if clean:
                assert log.recovery_point == log.view.end_offset
        assert logs.get(tp(5)).view.start_offset == 2
        assert [len(d.replicas) for d in logs.describe()] == [3, 3]
        assert logs.past.fates.continues == (4 if clean else None)
    assert not any(".kafka_cleanshutdown" in broker.names(i) for i in range(2))


def test_checkpoints_are_written_when_they_change(broker, batch, files):
    log = broker.create(tp(0))
    fill(log, batch, 5)
    broker.logs.checkpoints.write_all({tp(0): 2})
    path = Path(log.dir.path)
    assert (path / checkpoints.HIGH_WATERMARK).read_text() == "0\n1\nt 0 2\n"
    assert (path / checkpoints.RECOVERY_POINT).read_text() == "0\n1\nt 0 0\n"
    assert (path / checkpoints.LOG_START).read_text() == "0\n0\n"
    files.calls.clear()
    broker.logs.checkpoints.write_all({tp(0): 2})
    assert not [c for c in files.calls if c[0] == "write_atomic"]
    broker.logs.upkeep.flush_due(NOW_MS)
    log.delete_records_before(1)
    broker.logs.checkpoints.write_all({tp(0): 5})
    assert (path / checkpoints.HIGH_WATERMARK).read_text() == "0\n1\nt 0 5\n"
    assert (path / checkpoints.RECOVERY_POINT).read_text() == "0\n1\nt 0 3\n"
    assert (path / checkpoints.LOG_START).read_text() == "0\n1\nt 0 1\n"
    log.truncate_to(2, NOW_MS)
    assert (path / checkpoints.RECOVERY_POINT).read_text() == "0\n1\nt 0 2\n"


def test_a_broken_checkpoint_is_ignored(broker, batch):
    log = broker.create(tp(0))
    fill(log, batch, 5)
    broker.stop()
    for name in (checkpoints.HIGH_WATERMARK, checkpoints.RECOVERY_POINT, checkpoints.LOG_START):
        (Path(log.dir.path) / name).write_text("0\n2\nt 0")
    assert broker.start().get(tp(0)).view.end_offset == 5


def test_delete_takes_the_directory_and_the_checkpoint_lines(broker, batch):
    for i in range(4):
        fill(broker.create(tp(i)), batch, 3)
    broker.logs.checkpoints.write_all({tp(i): 3 for i in range(4)})
    broker.delete(tp(0))
    broker.delete(tp(2))
    broker.delete(tp(2))
    assert broker.logs.get(tp(0)) is None
    assert [n for n in broker.names(0) if n.endswith("-delete")] == [
        "t-0.00000000000000000000000000000066-delete",
        "t-2.00000000000000000000000000000067-delete",
    ]
    path = broker.root / "d0"
    assert (path / checkpoints.HIGH_WATERMARK).read_text() == "0\n0\n"
    assert (path / checkpoints.RECOVERY_POINT).read_text() == "0\n0\n"
    assert broker.create(tp(9)).dir is broker.logs.dirs[0]  # the count went down
    broker.logs.upkeep.purge(NOW_MS + 999)
    assert len([n for n in broker.names(0) if n.endswith("-delete")]) == 2
    broker.logs.upkeep.purge(NOW_MS + 1000)
    assert not [n for n in broker.names(0) if n.endswith("-delete")]


def test_K112_70_a_replica_is_not_made_elsewhere_than_it_was_wished_for(broker):
    wished, other = broker.logs.dirs
    broker.logs.standings.wish(tp(0), wished.path)
    wished.mark_offline(KafkaStorageError("dead"))
    with pytest.raises(KafkaStorageError, match=r"is to be in .* which is offline"):
        broker.create(tp(0))
    assert broker.create(tp(1)).dir is other
    broker.logs.standings.wish(tp(0), other.path)
    assert broker.create(tp(0)).dir is other


def test_a_dir_that_failed_gives_back_every_file_also_of_logs_that_were_deleted(broker, batch):
    for i in range(4):
        fill(broker.create(tp(i)), batch, 3)
    broker.delete(tp(0))
    bad, good = broker.logs.dirs
    assert broker.open_files(bad) and broker.open_files(good)
    bad.mark_offline(KafkaStorageError("dead"))
    dir_changes.release(broker.logs, bad)
    assert not broker.open_files(bad) and broker.open_files(good)


def test_K112_06_housekeeping_leaves_a_directory_alone_that_does_not_answer(tmp_path, files, batch):
    """Seen: it went on to fill the queue of a disk that hung, until that took nothing more at all."""
    queues = [DeferredQueue(), DeferredQueue()]
    broker = Broker(tmp_path, files, queues=queues)
    broker.start()
    made = []
    for number in range(2):
        broker.logs.new.create(
            tp(number), TOPIC_ID, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda log, error: made.append(log)
        )
        for queue in queues:
            queue.run()
    assert [each.dir for each in made] == broker.logs.dirs
    for each in made:
        fill(each, batch, 6)

    def keep_house():
        logs = broker.logs
        logs.upkeep.retain(NOW_MS, {}.get)
        logs.upkeep.flush_due(NOW_MS)
        logs.upkeep.roll_due(NOW_MS)
        logs.upkeep.write_indexes()
        logs.upkeep.purge(NOW_MS)
        logs.checkpoints.write_all({})
        logs.checkpoints.write_notes(NOW_MS)

    silent, well = broker.logs.dirs
    silent.note_pace(DirNews.HUNG, "a probe has no answer")
    keep_house()
    assert not queues[0].waiting and queues[1].waiting
    queues[1].run()
    silent.note_pace(DirNews.ANSWERED, "a probe took 9000 ms")
    keep_house()
    assert queues[0].waiting, "it is made up for"
    queues[0].run()
    assert all(each.failure is None for each in (silent, well))


def test_delete_before_a_crash_is_finished_at_the_start(broker, batch):
    fill(broker.create(tp(0)), batch, 3)
    broker.delete(tp(0))
    broker.stop(clean=False)
    logs = broker.start()
    assert logs.get(tp(0)) is None
    assert not [n for n in broker.names(0) if n.startswith("t-")]


def test_delete_that_fails(broker, files):
    broker.create(tp(0))
    files.fail("rename")
    with pytest.raises(KafkaStorageError):
        broker.delete(tp(0))


def test_h24_a_directory_of_an_earlier_topic_is_told(broker):
    broker.create(tp(0))
    with pytest.raises(InconsistentTopicIdError):
        broker.create(tp(0), topic_id=UUID(int=8))
    assert broker.create(tp(0), topic_id=None) is broker.logs.get(tp(0))


def test_a_directory_without_a_topic_id_adopts_one(broker):
    log = broker.create(tp(0), topic_id=None)
    assert log.topic_id is None
    assert broker.create(tp(0)) is log
    assert log.topic_id == TOPIC_ID
    broker.stop()
    assert broker.start().get(tp(0)).topic_id == TOPIC_ID


def test_adopting_a_topic_id_can_fail(broker, files):
    broker.create(tp(0), topic_id=None)
    files.fail("create", "partition.metadata")
    with pytest.raises(KafkaStorageError):
        broker.create(tp(0))


def test_k112_34_a_bad_dir_at_start_is_offline_the_rest_goes_on(broker, files, batch):
    for i in range(4):
        fill(broker.create(tp(i)), batch, 2)
    broker.stop()
    files.fail("listdir", "/d1")
    logs = broker.start()
    assert [d.is_online for d in logs.dirs] == [True, False]
    assert broker.offline == [logs.dirs[1]]
    assert logs.get(tp(0)) is not None
    with pytest.raises(KafkaStorageError):
        broker.create(tp(1), is_new=False)
    broker.stop()
    assert ".kafka_cleanshutdown" in broker.names(0)


def test_h22_no_mark_of_a_clean_stop_after_a_load_that_failed(broker, files, batch):
    fill(broker.create(tp(0)), batch, 2)
    fill(broker.create(tp(1)), batch, 2)
    broker.stop()
    files.fail("read_bytes", "/d1/t-1")
    broker.start()
    files.rules.clear()
    broker.stop()
    assert ".kafka_cleanshutdown" in broker.names(0)
    assert ".kafka_cleanshutdown" not in broker.names(1)


def test_a_dir_for_which_descriptors_ran_out_is_not_served_by_halves(broker, files, batch):
    import errno

    fill(broker.create(tp(0)), batch, 2)
    broker.stop()
    files.fail("read_bytes", "/d0/t-0", errno.EMFILE)
    logs = broker.start()
    assert not logs.dirs[0].is_online


def test_k112_02_no_good_dir_is_an_error(broker, files):
    broker.stop()
    files.fail("makedirs")
    broker.start(expect_error=True)
    assert isinstance(broker.error, KafkaStorageError)
    assert "none of the specified log dirs" in str(broker.error)


def test_the_same_replica_in_two_dirs_is_refused(broker):
    broker.create(tp(0))
    broker.stop()
    shutil.copytree(broker.root / "d0" / "t-0", broker.root / "d1" / "t-0")
    broker.start(expect_error=True)
    assert isinstance(broker.error, DuplicateReplicaError)
    assert "d0/t-0" in str(broker.error)
    assert "d1/t-0" in str(broker.error)


@pytest.mark.parametrize("right", [7, 8, 9])
def test_K112_80_of_two_topics_of_one_name_the_clusters_stays(broker, right):
    """One was deleted while its dir was away; which of the two, if any, only the cluster can say."""
    broker.create(tp(0))
    broker.stop()
    shutil.copytree(broker.root / "d0" / "t-0", broker.root / "d1" / "t-0")
    metadata = broker.root / "d1" / "t-0" / "partition.metadata"
    metadata.write_text(metadata.read_text().replace(encode_uuid(TOPIC_ID), encode_uuid(UUID(int=8))))
    logs = broker.start()
    logs.settle(tp(0), UUID(int=right), NOW_MS)
    logs.settle(tp(0), UUID(int=right), NOW_MS)
    kept = logs.get(tp(0))
    assert right == 9 or kept.topic_id == UUID(int=right)
    assert Path(kept.path).exists() and len(list(broker.root.glob("d?/t-0"))) == 1
    assert len(list(broker.root.glob("d?/t-0.*-delete"))) == 1
    assert sorted(map(logs.held.count, logs.dirs)) == [0, *[0] * (broker.count - 2), 1]


def test_K112_80_a_topic_that_is_gone_takes_both_copies_with_it(broker):
    broker.create(tp(0))
    broker.stop()
    shutil.copytree(broker.root / "d0" / "t-0", broker.root / "d1" / "t-0")
    (broker.root / "d1" / "t-0" / "partition.metadata").unlink()
    logs = broker.start()
    told = []
    logs.delete(tp(0), now_ms=NOW_MS, done=told.append)
    assert told == [None]
    assert not list(broker.root.glob("d?/t-0")) and logs.get(tp(0)) is None


def test_h17_a_copied_dir_is_refused(broker):
    broker.stop()
    text = (broker.root / "d0" / "meta.properties").read_text()
    (broker.root / "d1" / "meta.properties").write_text(text)
    broker.start(expect_error=True)
    assert isinstance(broker.error, InconsistentMetaPropertiesError)


def test_a_dir_of_another_cluster_or_process_is_refused(broker, tmp_path, files):
    other = Broker(tmp_path, files)
    other.start(expect_error=True)
    assert isinstance(other.error, ConfigError)
    broker.stop()
    broker.start(expect_error=True, cluster_id="another")
    assert isinstance(broker.error, InconsistentMetaPropertiesError)


def test_c21_unknown_names_are_left_alone(broker, caplog):
    broker.create(tp(0))
    broker.stop()
    for name in ("lost+found", "not-a-partition-dir", "t-x", "t-00"):
        os.mkdir(broker.root / "d0" / name)
    (broker.root / "d0" / "a-0").write_text("a file")
    os.mkdir(broker.root / "d0" / ("s-0." + "a" * 32 + "-stray"))
    future = broker.root / "d0" / ("f-0." + "a" * 32 + "-future")
    os.mkdir(future)
    (future / "00000000000000000000.log").write_bytes(b"123")
    logs = broker.start()
    assert [log.topic_partition for log in logs.logs()] == [tp(0)]
    assert "lost+found" in caplog.text
    assert {"lost+found", "not-a-partition-dir", "t-x", "t-00", "a-0", future.name} <= set(broker.names(0))
    assert logs.describe()[0].replicas[1:] == [(TopicPartition("f", 0), 3, True)]


def test_a_damaged_log_is_checked_whole(broker, batch):
    log = broker.create(tp(0))
    fill(log, batch, 10)
    first = Path(log.view.segments[0].path(".log"))
    broker.stop()
    os.remove(Path(log.path) / "leader-epoch-checkpoint")
    first.write_bytes(b"\0" * first.stat().st_size)
    assert broker.start().get(tp(0)).view.end_offset == 0


def test_housekeeping(broker, batch, files):
    for i in range(3):
        fill(broker.create(tp(i)), batch, 10)
    logs = broker.logs
    log = logs.get(tp(0))
    assert log.has_rolled
    logs.upkeep.flush_due(NOW_MS)
    assert not log.has_rolled
    logs.update_config("t", LogConfig(segment_bytes=300, retention_ms=10, segment_ms=5, index_interval_bytes=1))
    logs.update_config("other", LogConfig())
    logs.upkeep.roll_due(NOW_MS + 100)
    assert log.view.segments[-1].size == 0
    logs.upkeep.retain(NOW_MS + 100, {tp(0): 10, tp(1): 4}.get)
    assert [logs.get(tp(i)).view.start_offset for i in range(3)] == [10, 3, 0]
    assert log.has_retired
    logs.upkeep.purge(NOW_MS + 10**6)
    assert not log.has_retired
    fill(log, batch, 3)
    logs.upkeep.write_indexes()
    assert Path(log.view.segments[-1].path(".index")).stat().st_size == 10485760
    log.append_as_leader(batch(b"v", producer_id=9, producer_epoch=0, sequence=0), 0, NOW_MS)
    logs.upkeep.expire_producers(NOW_MS + 10, 100)
    assert log.producers.entries
    logs.upkeep.expire_producers(NOW_MS + 200, 100)
    assert not log.producers.entries


def test_long_syncs_do_not_hold_up_the_dirs_queue(broker, batch, files):
    sync_queue = DeferredQueue()
    broker.logs.dirs[0].sync_queue = sync_queue
    for i in range(2):
        fill(broker.create(tp(i)), batch, 10)
    log = broker.logs.get(tp(0))
    for _ in range(2):  # the second time it is under way
        broker.logs.upkeep.flush_due(NOW_MS)
    assert len(sync_queue.waiting) == 1
    assert not broker.logs.get(tp(1)).has_rolled
    unsynced = log.rolled()
    fill(log, batch, 4)  # rolls again meanwhile
    os.unlink(unsynced[0].path(".log"))
    sync_queue.run()
    assert log.rolled() and not set(log.rolled()) & set(unsynced)
    assert log.recovery_point == log.rolled()[0].base_offset
    broker.logs.upkeep.flush_due(NOW_MS)
    sync_queue.run()
    assert not log.has_rolled
    assert log.recovery_point == log.view.segments[-1].base_offset


def test_a_sync_aside_that_fails_takes_the_dir_offline(broker, batch, files):
    broker.logs.dirs[0].sync_queue = InlineQueue()
    fill(broker.create(tp(0)), batch, 10)
    files.fail("fsync", ".log")
    files.fail_probes()
    broker.logs.upkeep.flush_due(NOW_MS)
    assert broker.offline == [broker.logs.dirs[0]]
    assert broker.logs.get(tp(0)).recovery_point == 0


def test_housekeeping_goes_on_after_an_error_of_one_log(broker, batch, files):
    import errno

    for i in range(6):
        fill(broker.create(tp(i)), batch, 10)
    files.fail("fsync", "/t-0/", errno.ENOENT)  # its files went, the disk is fine
    broker.logs.upkeep.flush_due(NOW_MS)
    assert broker.offline == []
    assert [broker.logs.get(tp(i)).has_rolled for i in range(6)] == [True, False, False, False, False, False]


def test_housekeeping_of_a_dead_dir_harms_no_other(broker, batch, files):
    for i in range(4):
        fill(broker.create(tp(i)), batch, 10)
    files.fail("fsync", "/d0/")
    broker.logs.upkeep.flush_due(NOW_MS)
    assert broker.offline == [broker.logs.dirs[0]]
    assert not broker.logs.get(tp(1)).has_rolled
    files.calls.clear()
    broker.logs.upkeep.retain(NOW_MS, {}.get)
    broker.logs.checkpoints.write_all({})
    broker.logs.upkeep.purge(NOW_MS + 10**9)
    broker.stop()
    assert not [c for c in files.calls if "/d0" in c[1]]  # K18-04: it is not touched again
    assert ".kafka_cleanshutdown" in broker.names(1)


def test_retention_that_finds_its_dir_dead_takes_it_offline(broker, batch, files):
    """Chaos, seed 410001: a file in the place of the directory ended the work with an error that had no type."""
    for i in range(4):
        fill(broker.create(tp(i)), batch, 10)
    files.fail("exists", "/d0/", errno.ENOTDIR)
    files.fail_probes()
    broker.logs.upkeep.retain(NOW_MS, {}.get)
    assert broker.offline == [broker.logs.dirs[0]]


class Turns:
    """The first directory has a foreground and a background that work when told."""

    def __init__(self, broker, monkeypatch) -> None:
        self.front, self.back = DeferredQueue(), DeferredQueue()
        directory = broker.logs.dirs[0]
        monkeypatch.setattr(directory, "queue", self.front)
        monkeypatch.setattr(directory, "background", self.back)
        self.pieces: list[int] = []

    def look(self) -> None:
        """Until a look is through, and its retiring waits in the foreground."""
        while not self.front.waiting:
            InlineQueue().submit(*self.back.waiting.popleft())

    def run(self, files, may_read: str = "nothing") -> None:
        """Until nothing waits. Counts what the foreground renames in each piece; what it reads is a failure, but of
        the directory ``may_read``."""
        while self.front.waiting or self.back.waiting:
            if self.back.waiting:
                InlineQueue().submit(*self.back.waiting.popleft())
            if self.front.waiting:
                work, done = self.front.waiting.popleft()
                files.calls.clear()
                InlineQueue().submit(work, done)
                self.pieces.append(len([c for c in files.calls if c[0] == "rename" and c[1].endswith(".log")]))
                reads = [c for c in files.calls if c[0] in ("open", "read_bytes", "pread")]
                assert [c for c in reads if may_read not in c[1]] == []


def old_segments(broker, batch, count) -> list:
    """The logs of the first directory, of a segment a batch, as a start finds them: no times in memory."""
    for i in range(3):
        log = broker.create(tp(i))
        for _ in range(count):
            log.append_as_leader(batch(b"x" * 200), 0, NOW_MS)
    broker.stop()
    broker.start()
    broker.logs.update_config("t", LogConfig(segment_bytes=300, retention_ms=10))
    logs = broker.logs.logs_in(broker.logs.dirs[0])
    assert [len(each.view.segments) for each in logs] == [count] * len(logs)
    return logs


def test_D8_retention_looks_in_the_background_and_retires_a_few_segments_in_a_turn(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 35)
    turns = Turns(broker, monkeypatch)
    marks = {each.topic_partition: 35 for each in logs}
    broker.logs.upkeep.retain(NOW_MS + 100, marks.get)
    broker.logs.upkeep.retain(NOW_MS + 100, marks.get)  # still under way: not twice
    assert len(turns.back.waiting) == 1
    assert not turns.front.waiting
    turns.run(files)
    assert sum(turns.pieces) == 35 * len(logs)
    assert 0 < max(turns.pieces) <= retention_run.SEGMENTS
    assert [(each.view.start_offset, each.view.end_offset) for each in logs] == [(35, 35)] * len(logs)
    broker.logs.upkeep.retain(NOW_MS + 100, marks.get)  # through, so there is another
    assert len(turns.back.waiting) == 1


def test_D8_the_next_turn_of_retention_waits_behind_appends(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 35)
    turns = Turns(broker, monkeypatch)
    order: list[str] = []
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 35 for each in logs}.get)
    while turns.back.waiting:
        InlineQueue().submit(*turns.back.waiting.popleft())
        assert len(turns.front.waiting) <= 1
        if turns.front.waiting:
            turns.front.submit(lambda: order.append("append"), lambda *_: None)
            work, done = turns.front.waiting.popleft()
            InlineQueue().submit(work, done)
            order.append("turn")
            InlineQueue().submit(*turns.front.waiting.popleft())
    assert order == ["turn", "append"] * (len(order) // 2)
    assert len(order) // 2 >= 35 * len(logs) // retention_run.SEGMENTS


@pytest.mark.parametrize("rule", ["size", "start"])
def test_D8_retention_by_size_and_by_the_start_of_the_log_takes_turns_as_well(broker, batch, files, monkeypatch, rule):
    logs = old_segments(broker, batch, 35)
    size = logs[0].view.size // 35
    broker.logs.update_config(
        "t", LogConfig(segment_bytes=300, retention_ms=None, retention_bytes=2 * size if rule == "size" else None)
    )
    if rule == "start":
        for each in logs:
            each.delete_records_before(33)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 35 for each in logs}.get)
    turns.run(files)
    assert sum(turns.pieces) == 33 * len(logs)
    assert max(turns.pieces) <= retention_run.SEGMENTS
    assert [each.view.start_offset for each in logs] == [33] * len(logs)


def test_D8_an_index_that_cannot_be_read_keeps_no_other_log_from_its_turn(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 12)
    assert len(logs) == 2
    files.fail("open", f"{logs[0].path}/", errno.EIO)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 12 for each in logs}.get)
    turns.look()
    assert logs[0].failure is None, "who looks aside does not judge"
    turns.run(files, may_read="/d0/")
    assert [each.view.start_offset for each in logs] == [0, 12]
    assert logs[0].failure is not None
    assert broker.offline == []


def test_D8_a_log_that_is_deleted_under_a_look_of_retention_is_no_failure(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 12)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 12 for each in logs}.get)
    InlineQueue().submit(*turns.back.waiting.popleft())  # a look waits now
    path = logs[0].path
    gone = []
    broker.logs.delete(logs[0].topic_partition, now_ms=NOW_MS, done=gone.append)
    turns.front.run()
    assert gone == [None]
    shutil.rmtree(logs[0].path)
    files.calls.clear()
    turns.look()
    assert [c for c in files.calls if ".probe" in c[1]] == []
    turns.run(files)
    assert not os.path.exists(path)
    assert not os.path.exists(logs[0].path)
    assert [each.failure for each in logs] == [None, None]
    assert [each.view.start_offset for each in logs] == [0, 12]
    assert broker.offline == []


@pytest.mark.parametrize("error", [FileNotFoundError(2, "renamed"), CorruptRecordError("cut"), ValueError("torn")])
def test_D8_files_that_change_under_a_look_of_retention_are_read_by_the_foreground(
    broker, batch, files, monkeypatch, error
):
    logs = old_segments(broker, batch, 12)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 12 for each in logs}.get)
    read = files.open

    def changing(path, **how):
        if "/t-0/" in path and not turns.front.waiting:
            raise error
        return read(path, **how)

    monkeypatch.setattr(files, "open", changing)
    turns.look()
    monkeypatch.setattr(files, "open", read)
    turns.run(files, may_read="/t-0/")
    assert [each.view.start_offset for each in logs] == [12, 12]
    assert [each.failure for each in logs] == [None, None]


def test_D8_a_log_that_is_deleted_and_made_again_after_a_look_keeps_what_it_has(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 5)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 5 for each in logs}.get)
    InlineQueue().submit(*turns.back.waiting.popleft())
    waiting, turns.front.waiting = turns.front.waiting, deque()
    broker.logs.delete(logs[0].topic_partition, now_ms=NOW_MS, done=lambda error: None)
    made = []
    turns.front.run()
    broker.logs.new.create(
        tp(0), UUID(int=77), CONFIG, is_new=True, now_ms=NOW_MS, done=lambda log, error: made.append(log)
    )
    turns.front.run()
    (again,) = made
    assert again.path.endswith("/d0/t-0")
    again.config = logs[0].config
    for _ in range(5):
        again.append_as_leader(batch(b"x" * 200, timestamp=NOW_MS + 100), 0, NOW_MS + 100)
    turns.front.waiting.extend(waiting)
    turns.run(files)
    assert [each.view.start_offset for each in (again, logs[1])] == [0, 5]
    assert len(again.view.segments) == 5


def test_D8_segments_that_are_cut_and_written_again_after_a_look_do_not_go_for_the_old_ones_times(
    broker, batch, files, monkeypatch
):
    log, other = old_segments(broker, batch, 8)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 8 for each in (log, other)}.get)
    turns.look()
    old = list(log.view.segments)
    log.truncate_to(3, NOW_MS + 100)
    for _ in range(5):
        log.append_as_leader(batch(b"x" * 200, timestamp=NOW_MS + 100), 0, NOW_MS + 100)
    assert [each.base_offset for each in log.view.segments] == [each.base_offset for each in old]
    turns.run(files)
    assert (log.view.start_offset, log.view.end_offset) == (3, 8)
    assert [each.max_timestamp for each in log.view.segments] == [NOW_MS + 100] * 5
    assert other.view.start_offset == 8


def test_D8_retention_goes_by_the_high_watermark_of_its_turn(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 8)
    turns = Turns(broker, monkeypatch)
    marks = {each.topic_partition: 8 for each in logs}
    broker.logs.upkeep.retain(NOW_MS + 100, marks.get)
    InlineQueue().submit(*turns.back.waiting.popleft())
    marks[logs[0].topic_partition] = 2  # it was cut since, and got new batches that nobody else has
    turns.run(files, may_read="/d0/")
    assert [each.view.start_offset for each in logs] == [2, 8]


def test_D8_retention_leaves_a_directory_alone_that_answers_no_more(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 35)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 35 for each in logs}.get)
    turns.look()
    broker.logs.dirs[0].note_pace(DirNews.HUNG, "a probe has no answer")
    turns.run(files)
    assert sum(turns.pieces) == retention_run.SEGMENTS
    broker.logs.dirs[0].note_pace(DirNews.ANSWERED, "a probe took 9000 ms")
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 35 for each in logs}.get)
    turns.run(files)
    assert [each.view.start_offset for each in logs] == [35, 35]


def test_D8_retention_deletes_nothing_where_the_metadata_was_rebuilt(broker, batch, files, caplog):
    logs = old_segments(broker, batch, 12)
    mark = Path(broker.logs.dirs[0].path) / topic_configs.RECOVERED
    mark.touch()
    marks = {each.topic_partition: 12 for each in logs}
    broker.logs.upkeep.retain(NOW_MS + 100, marks.get)
    assert [each.view.start_offset for each in logs] == [0] * len(logs)
    assert "the metadata was rebuilt" in caplog.text
    mark.unlink()
    broker.logs.upkeep.retain(NOW_MS + 100, marks.get)
    assert [each.view.start_offset for each in logs] == [12] * len(logs)


def test_D8_retention_ends_with_its_dir_and_with_its_log(broker, batch, files, monkeypatch):
    logs = old_segments(broker, batch, 35)
    turns = Turns(broker, monkeypatch)
    broker.logs.upkeep.retain(NOW_MS + 100, {each.topic_partition: 35 for each in logs}.get)
    for _ in range(2):
        InlineQueue().submit(*turns.back.waiting.popleft())
    InlineQueue().submit(*turns.front.waiting.popleft())
    broker.logs.dirs[0].mark_offline(KafkaStorageError("dead"))
    files.calls.clear()
    turns.run(files)
    assert sum(turns.pieces) == 0
    assert [c for c in files.calls if "/d0/" in c[1]] == []
    assert logs[0].view.start_offset == retention_run.SEGMENTS
    assert broker.logs.upkeep._retaining == set()


def test_close_that_fails_leaves_no_mark(broker, batch, monkeypatch):
    fill(broker.create(tp(0)), batch, 2)

    def fail(self, path):
        raise OSError(5, "no sync")

    monkeypatch.setattr(OsFiles, "sync_all", fail)
    broker.stop()
    assert not any(".kafka_cleanshutdown" in broker.names(i) for i in range(2))


class Lanes:
    """The first directory has a foreground and a thread for long fsyncs that work when told."""

    def __init__(self, broker) -> None:
        self.dir = broker.logs.dirs[0]
        self.front, self.syncs = DeferredQueue(), DeferredQueue()
        self.dir.queue, self.dir.sync_queue = self.front, self.syncs

    def run(self) -> None:
        while self.front.waiting or self.syncs.waiting:
            self.syncs.run()
            self.front.run()

    def said(self, name=checkpoints.RECOVERY_POINT) -> dict[TopicPartition, int]:
        return checkpoints.read_offsets(OsFiles(), f"{self.dir.path}/{name}")


def flushed(broker, batch, count=9):
    log = broker.create(tp(0))
    fill(log, batch, count)
    log.flush()
    return log


def test_D1_checkpoints_are_synced_aside_and_appends_wait_for_a_rename_only(broker, batch, files):
    flushed(broker, batch)
    lanes = Lanes(broker)
    broker.logs.checkpoints.write_all({tp(0): 5})
    assert not lanes.front.waiting
    files.calls.clear()
    lanes.syncs.run()
    assert [c for c in files.calls if c[0] == "fsync"] != []
    assert lanes.said() == {}
    files.calls.clear()
    lanes.front.run()
    assert {c[0] for c in files.calls} == {"rename"}
    assert lanes.said() == {tp(0): 9}
    assert lanes.said(checkpoints.HIGH_WATERMARK) == {tp(0): 5}
    files.calls.clear()
    lanes.syncs.run()
    assert [c[0] for c in files.calls] == ["fsync_dir"]
    files.calls.clear()
    broker.logs.checkpoints.write_all({tp(0): 5})
    lanes.run()
    assert [c for c in files.calls if c[0] in ("create", "rename", "fsync", "fsync_dir")] == [], "it says so already"


@pytest.mark.parametrize("when", ["before it is staged", "before it is installed"])
def test_D1_what_was_staged_before_a_cut_does_not_call_synced_what_was_cut(broker, batch, files, when):
    log = flushed(broker, batch)
    lanes = Lanes(broker)
    broker.logs.checkpoints.write_all({})
    lanes.run()
    fill(log, batch, 3)
    log.flush()
    broker.logs.checkpoints.write_all({})
    if when == "before it is installed":
        lanes.syncs.run()
    log.truncate_to(4, NOW_MS)
    assert lanes.said() == {tp(0): 4}
    lanes.run()
    fill(log, batch, 20)
    assert lanes.said() == {tp(0): log.recovery_point} == {tp(0): 4}
    log.flush()
    broker.logs.checkpoints.write_all({})
    lanes.run()
    assert lanes.said() == {tp(0): 24}


@pytest.mark.parametrize("aside", [True, False])
def test_D1_a_cut_that_waits_its_turn_lowers_what_is_written_after_it(broker, batch, files, aside):
    """The values were read on the loop while the cut was in the queue: the file called synced what was not."""
    log = flushed(broker, batch)
    lanes = Lanes(broker)
    if not aside:
        lanes.dir.sync_queue = None
    lanes.front.submit(lambda: log.truncate_to(4, NOW_MS), lambda *_: None)
    broker.logs.checkpoints.write_all({})
    lanes.run()
    assert lanes.said() == {tp(0): 4}
    fill(log, batch, 3)
    log.flush()
    broker.logs.checkpoints.write_all({})
    lanes.run()
    assert lanes.said() == {tp(0): 7}


def test_D1_what_was_staged_does_not_speak_of_a_log_that_is_deleted(broker, batch, files):
    flushed(broker, batch)
    lanes = Lanes(broker)
    broker.logs.checkpoints.write_all({tp(0): 5})
    lanes.syncs.run()
    install = lanes.front.waiting.popleft()
    broker.logs.delete(tp(0), now_ms=NOW_MS, done=lambda error: None)
    lanes.front.run()
    lanes.front.submit(*install)
    lanes.run()
    assert lanes.said() == lanes.said(checkpoints.HIGH_WATERMARK) == {}


def test_D1_while_a_checkpoint_is_staged_the_next_one_is_written_at_once_and_counts(broker, batch, files):
    log = flushed(broker, batch)
    lanes = Lanes(broker)
    broker.logs.checkpoints.write_all({tp(0): 5})
    fill(log, batch, 1)
    log.flush()
    broker.logs.checkpoints.write_all({tp(0): 6})
    lanes.front.run()
    assert lanes.said() == {tp(0): 10}
    lanes.run()
    assert lanes.said() == {tp(0): 10}
    assert lanes.said(checkpoints.HIGH_WATERMARK) == {tp(0): 6}


def test_D1_of_checkpoints_that_wait_for_a_slow_disk_the_last_one_counts(broker, batch, files):
    log = flushed(broker, batch)
    lanes = Lanes(broker)
    lanes.dir.sync_queue = None
    for mark in (5, 6, 7):
        broker.logs.checkpoints.write_all({tp(0): mark})
    fill(log, batch, 1)
    lanes.front.run()
    assert lanes.said(checkpoints.HIGH_WATERMARK) == {tp(0): 7}


def test_D1_what_is_staged_when_the_logs_are_closed_is_not_installed(broker, batch, files):
    log = flushed(broker, batch)
    lanes = Lanes(broker)
    broker.logs.checkpoints.write_all({tp(0): 5})
    fill(log, batch, 1)
    broker.logs.close(clean=True, broker_epoch=4, high_watermarks={tp(0): 10}, done=lambda: None)
    lanes.run()
    assert lanes.said() == {tp(0): 10}
    assert lanes.said(checkpoints.HIGH_WATERMARK) == {tp(0): 10}
    logs = broker.start()  # and what is left beside the files is nobody's
    assert logs.get(tp(0)).view.end_offset == 10


def test_D1_a_checkpoint_that_cannot_be_staged_takes_the_dir_offline_and_is_over(broker, batch, files):
    flushed(broker, batch)
    lanes = Lanes(broker)
    files.fail("fsync", ".next", errno.EIO)
    broker.logs.checkpoints.write_all({tp(0): 5})
    lanes.run()
    assert broker.offline == [lanes.dir]
    assert broker.logs.checkpoints._staging == set()
