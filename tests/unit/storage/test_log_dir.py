"""One disk: what an error means, what a probe finds, whose directory it is."""

import errno
import os
from uuid import UUID

import pytest

from holdfast.model.errors import (
    CheckpointError,
    ConfigError,
    InconsistentMetaPropertiesError,
    KafkaStorageError,
    LogReadError,
    RecordError,
)
from holdfast.storage.dir_state import DirState
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir

NOW_MS = 1_700_000_000_000


@pytest.fixture
def told(log_dir):
    found = []
    log_dir.on_offline = lambda directory, error: found.append((directory, error))
    return found


def test_an_io_error_takes_the_dir_offline_once(log_dir, told):
    assert log_dir.state is DirState.ONLINE
    for _ in range(2):
        with pytest.raises(LogReadError), log_dir.guard(LogReadError):
            raise OSError(errno.EIO, "bad", "f")
    assert log_dir.state is DirState.OFFLINE
    assert [d for d, _ in told] == [log_dir]
    assert isinstance(told[0][1], LogReadError)
    with pytest.raises(CheckpointError, match="is offline"), log_dir.guard(CheckpointError):
        pytest.fail("an offline dir is not touched")
    assert log_dir.space() is None
    log_dir.mark_offline(KafkaStorageError("again"))
    assert len(told) == 1
    assert "offline" in repr(log_dir)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EPERM])
def test_every_errno_of_a_bad_disk_counts(log_dir, told, code):
    with pytest.raises(KafkaStorageError), log_dir.guard():
        raise OSError(code, "bad")
    assert len(told) == 1


def test_k18_01_other_errors_pass_untouched(log_dir, told):
    with pytest.raises(RecordError), log_dir.guard():
        raise RecordError("not the disk's")
    with log_dir.guard(), log_dir.guard(LogReadError):
        pass
    assert told == []


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_that_is_short_of_something_is_not_a_bad_disk(log_dir, told, code):
    with pytest.raises(KafkaStorageError), log_dir.guard():
        raise OSError(code, "too many")
    assert told == []


def test_h18_a_missing_file_on_a_good_disk_is_not_a_bad_disk(log_dir, told):
    with pytest.raises(KafkaStorageError), log_dir.guard():
        raise FileNotFoundError(errno.ENOENT, "renamed", "f")
    assert told == []
    os.rename(log_dir.path, log_dir.path + ".gone")
    with pytest.raises(KafkaStorageError), log_dir.guard():
        raise FileNotFoundError(errno.ENOENT, "gone", "f")
    assert len(told) == 1
    os.rename(log_dir.path + ".gone", log_dir.path)


@pytest.mark.parametrize("operation", ["create", "pwritev", "fsync", "pread", "unlink"])
def test_the_probe_finds_a_bad_disk(log_dir, told, files, operation):
    log_dir.probe()
    assert told == []
    assert not os.path.exists(f"{log_dir.path}/.probe")
    files.fail(operation, ".probe")
    with pytest.raises(KafkaStorageError):
        log_dir.probe()
    assert len(told) == 1


def test_the_probe_reads_back_what_it_wrote(log_dir, told, monkeypatch):
    from holdfast.storage.files import OsFile

    monkeypatch.setattr(OsFile, "pread", lambda self, size, offset: b"\0" * size)
    with pytest.raises(KafkaStorageError, match="read back"):
        log_dir.probe()


def test_the_probe_notices_another_file_system(log_dir, told, monkeypatch):
    """umount -l leaves a healthy directory behind: the one underneath."""
    monkeypatch.setattr(OsFiles, "device", lambda self, path: 12345678)
    with pytest.raises(KafkaStorageError, match="another file system"):
        log_dir.probe()
    assert len(told) == 1


def test_h19_a_listener_that_fails_does_not_save_the_dir(log_dir):
    def listener(directory, error):
        raise RuntimeError("boom")

    log_dir.on_offline = listener
    with pytest.raises(KafkaStorageError), log_dir.guard():
        raise OSError(errno.EIO, "bad")
    assert not log_dir.is_online


class DiskOfItsOwn(OsFiles):
    """One directory is where another device is mounted; what is synced is noted."""

    def __init__(self, mounted: str) -> None:
        super().__init__()
        self.mounted = mounted
        self.synced: list[str] = []

    def device(self, path: str) -> int:
        return super().device(path) + (path + "/").startswith(self.mounted + "/")

    def fsync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_dir(path)


def test_K112_06_opening_a_directory_syncs_nothing_of_another_disk(tmp_path):
    """Seen: every directory up to / was synced, and where that hung no log directory could be opened."""
    mounted = f"{tmp_path}/disk"
    os.mkdir(mounted)
    for what in ("made", "was there"):
        files = DiskOfItsOwn(mounted)
        opened(f"{mounted}/holdfast/logs", files).close()
        above = set(files.synced) - {f"{mounted}/holdfast/logs"}
        assert above == {mounted, f"{mounted}/holdfast"}, what
    files = DiskOfItsOwn(mounted)
    opened(mounted, files).close()
    assert set(files.synced) == {mounted}, "a mount point is not ours"


def opened(path, files=None, node_id=1, cluster_id="c", new_id=lambda: UUID(int=5)) -> LogDir:
    directory = LogDir(str(path), files or OsFiles(), InlineQueue())
    directory.open(node_id=node_id, cluster_id=cluster_id, new_id=new_id, now_ms=NOW_MS)
    return directory


def test_identity_is_kept(tmp_path):
    first = opened(tmp_path / "a" / "b")
    text = (tmp_path / "a" / "b" / "meta.properties").read_text()
    assert "node.id=1\n" in text and "version=1\n" in text
    first.close()
    first.close()
    second = opened(tmp_path / "a" / "b", new_id=lambda: UUID(int=6))
    assert second.directory_id == first.directory_id == UUID(int=5)
    assert second.space().total >= second.space().usable > 0
    second.close()


def test_a_dir_of_another_process_is_refused(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(ConfigError, match="locked by another process"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=1\nnode.id=3\ncluster.id=c\n", "node 3"),
        ("version=0\nbroker.id=3\n", "node 3"),
        ("version=1\nnode.id=1\ncluster.id=other\n", "cluster other"),
        ("version=1\nnode.id=1\ndirectory.id=!\n", "directory.id"),
    ],
)
def test_k426_01_a_dir_of_another_broker_is_refused(tmp_path, text, message):
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(InconsistentMetaPropertiesError, match=message):
        opened(tmp_path)


def test_meta_properties_of_zookeeper_days_get_a_directory_id(tmp_path):
    (tmp_path / "meta.properties").write_text("# a comment\nversion=0\nbroker.id=1\ncluster.id=a\\=b\n")
    directory = opened(tmp_path, cluster_id="a=b")
    assert directory.directory_id == UUID(int=5)
    assert "directory.id=" in (tmp_path / "meta.properties").read_text()


@pytest.mark.parametrize("kind", ["file", "lock", "listdir", "makedirs", "read_bytes", "write_atomic"])
def test_k112_34_a_dir_that_is_bad_at_start_is_offline(tmp_path, files, kind):
    path = tmp_path / "d"
    if kind == "file":
        path.write_text("not a directory")
    else:
        files.fail(kind)
    directory = LogDir(str(path), files, InlineQueue())
    with pytest.raises(KafkaStorageError):
        directory.open(node_id=1, cluster_id="c", new_id=lambda: UUID(int=5), now_ms=NOW_MS)
    assert not directory.is_online


def test_inline_queue_tells_results_and_errors():
    told = []
    queue = InlineQueue()
    queue.submit(lambda: 5, lambda result, error: told.append((result, error)))

    def bad():
        raise KafkaStorageError("x")

    queue.submit(bad, lambda result, error: told.append((result, str(error))))
    assert told == [(5, None), (None, "x")]


def test_the_background_of_a_dir_is_a_lane_of_its_own_or_the_foreground(tmp_path):
    alone = LogDir(str(tmp_path), OsFiles(), InlineQueue())
    assert alone.background is alone.queue
    lane = InlineQueue()
    assert LogDir(str(tmp_path), OsFiles(), InlineQueue(), background=lane).background is lane


class Opened(OsFiles):
    """Notes what is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def open(self, path, **options):
        self.paths.append(path)
        return super().open(path, **options)


def test_H_19_a_dir_that_has_failed_is_not_knocked_at_unless_it_is_awaited(tmp_path):
    files = Opened()
    directory = LogDir(str(tmp_path), files, InlineQueue())
    directory.knock()
    assert len(files.paths) == 1
    directory.mark_offline(KafkaStorageError("dead"))
    directory.knock()
    assert len(files.paths) == 1, "its load has failed before its thread came to this"
    directory.is_awaited = True
    directory.knock()
    assert len(files.paths) == 2
    assert os.listdir(tmp_path) == []
