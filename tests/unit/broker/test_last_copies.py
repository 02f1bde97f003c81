"""What an operator takes away from the cluster only by force (B11), and a directory that is absent (A3).

Real are the directories, the logs and what the broker knows of the cluster. Around ``Disks`` there is what it asks of
the rest of a broker.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.absent_dirs import AbsentDirs
from holdfast.broker.disks import Disks
from holdfast.broker.last_copies import last_copies
from holdfast.broker.metadata_cache import MetadataCache, PartitionInfo
from holdfast.broker.platform import Platform
from holdfast.coordination.stores import open_store
from holdfast.model.config import BrokerConfig, LogConfig
from holdfast.model.errors import InvalidRequestError
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager

NOW_MS = 1_700_000_000_000
ME = 1
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def info(leader: BrokerId | None, isr: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]) -> PartitionInfo:
    return PartitionInfo(leader=leader, leader_epoch=1, isr=isr, replicas=replicas, offline=())


class Rest:
    """Two directories of broker 1 with a replica in each, and the rest of the broker."""

    def __init__(self, root: Path) -> None:
        self.paths = [str(root / f"d{i}") for i in range(2)]
        self.broker_id, self.properties_path, self.told = ME, None, 0
        self.metadata = MetadataCache()
        metadata = str(root / "metadata")
        self.config = BrokerConfig.parse(
            {"node.id": "1", "log.dirs": ",".join(self.paths), "metadata.log.dir": metadata}
        )
        self.store = open_store(self.config, Platform.real())
        self.moves = SimpleNamespace(dir_failed=lambda _: None)
        self.server = SimpleNamespace(let_go=lambda _: None)
        self.loop = SimpleNamespace(call_later=lambda *_: None)
        self.membership = SimpleNamespace(beat=lambda: None)
        self.replicas = SimpleNamespace(partitions={}, forget_offline=lambda _: None)
        self.hosts = lambda tp: self.metadata.partition(tp) is not None

    def start(self, *paths: str) -> Disks:
        dirs = [LogDir(path, OsFiles(), InlineQueue()) for path in paths]
        self.logs = LogManager(dirs, node_id=ME, cluster_id="c", config_of=lambda _: LogConfig(), boot_id="boot")
        errors: list[Any] = []
        self.logs.start(NOW_MS, errors.append)
        assert errors == [None]
        self.disks = Disks(self)  # type: ignore[arg-type]
        self.absent = AbsentDirs(self)  # type: ignore[arg-type]
        return self.disks

    def register(self, epoch: int, *replicas: TopicPartition) -> None:
        self.logs.past.note(epoch, lambda: None)
        for tp in replicas:
            self.logs.new.create(tp, None, LogConfig(), is_new=True, now_ms=NOW_MS, done=lambda made, error: None)

    def make_absent(self, path: str) -> LogDir:
        """As ``look`` finds one, without a thread of its own."""
        self.disks.make = lambda found: LogDir(found, OsFiles(), InlineQueue())  # type: ignore[method-assign]
        self.absent.look()
        (found,) = self.absent.directories
        assert found.path == path
        return found

    def thread(self, name: str) -> InlineQueue:
        return InlineQueue()

    def end_threads(self, directory: LogDir) -> None:
        self.told += 1


@pytest.fixture
def rest(tmp_path: Path) -> Rest:
    made = Rest(tmp_path)
    made.start(*made.paths)
    made.register(10, T0, T1)
    assert [made.logs.dir_of(tp) for tp in (T0, T1)] == made.paths
    return made


@pytest.mark.parametrize(
    ("isr", "replicas", "is_last"),
    [
        ((1,), (1,), True),
        ((1,), (1, 2), True),
        ((), (1, 2), True),
        ((2, 1), (1, 2), False),
        ((2,), (1, 2), False),
        ((2,), (2, 3), False),
    ],
)
def test_B11_a_copy_is_the_last_when_nobody_else_is_in_the_isr(
    isr: tuple[int, ...], replicas: tuple[int, ...], is_last: bool
) -> None:
    cache = MetadataCache()
    cache.topics["t"] = {0: info(next(iter(isr), None), isr, replicas)}
    assert last_copies(cache, ME, [T0, T1]) == ([T0] if is_last else [])  # T1 is deleted


def test_B11_the_broker_takes_no_last_copy_offline_without_force(rest: Rest) -> None:
    rest.metadata.topics["t"] = {0: info(1, (1,), (1, 2)), 1: info(1, (1, 2), (1, 2))}
    with pytest.raises(InvalidRequestError, match=r"d0 on broker 1 has the last copy of t-0: nobody can .*; --force"):
        asyncio.run(rest.disks.offline(rest.paths[0], force=False))
    assert rest.logs.dirs[0].is_online
    asyncio.run(rest.disks.offline(rest.paths[1], force=False))  # broker 2 has t-1
    assert not rest.logs.dirs[1].is_online


def test_B11_with_force_it_does(rest: Rest) -> None:
    rest.metadata.topics["t"] = {0: info(1, (1,), (1,))}
    asyncio.run(rest.disks.offline(rest.paths[0], force=True))
    assert not rest.logs.dirs[0].is_online


def test_B11_the_broker_removes_no_last_copy_without_force(rest: Rest) -> None:
    rest.metadata.topics["t"] = {0: info(None, (1,), (1,)), 1: info(1, (1,), (1,))}
    asyncio.run(rest.disks.offline(rest.paths[0], force=True))
    with pytest.raises(InvalidRequestError, match=r"d0 on broker 1 has the last copy of t-0: that is lost"):
        asyncio.run(rest.disks.remove(rest.paths[0], force=False))
    assert [d.path for d in rest.logs.dirs] == rest.paths
    asyncio.run(rest.disks.remove(rest.paths[0], force=True))
    assert [d.path for d in rest.logs.dirs] == rest.paths[1:]
    assert rest.logs.standings.fate(T0) is ReplicaFate.LOST and rest.told == 1


def test_A3_B11_an_absent_directory_is_removed_by_force_only(rest: Rest) -> None:
    """What it may have the last copy of is made anew from then on, and the next start does not miss it."""
    for log in rest.logs.logs():
        log.close(clean=False)
    for directory in rest.logs.dirs:
        directory.close()
    kept, gone = rest.paths
    rest.metadata.topics["t"] = {0: info(1, (1,), (1,)), 1: info(None, (1,), (1,))}
    rest.start(kept)
    absent = rest.make_absent(gone)
    rest.register(20)
    with pytest.raises(InvalidRequestError, match=r"d1 may have the last copy of t-1: --force gives that up"):
        asyncio.run(rest.disks.remove(gone, force=False))
    assert absent in rest.logs.dirs and rest.logs.standings.fate(T1) is None
    asyncio.run(rest.disks.remove(gone, force=True))
    assert [d.path for d in rest.logs.dirs] == [kept] and rest.absent.directories == []
    assert rest.logs.standings.fate(T1) is ReplicaFate.LOST and rest.logs.standings.fate(T0) is None
    shutil.rmtree(gone)
    for directory in rest.logs.dirs:
        directory.close()
    rest.start(kept)
    assert rest.logs.past.absent() == []
