"""Which log is cleaned, and what ends a cleaning: real lanes, real logs, the real process that does the work."""

import asyncio
import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.broker import cleaning
from holdfast.broker.cleaner import LogCleaner
from holdfast.broker.cleaner_process import Pacer
from holdfast.broker.disk_io import DiskThread
from holdfast.broker.platform import Platform
from holdfast.model.config import BrokerConfig, LogConfig
from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_manager import LogManager
from tests.unit.broker.conftest import until
from tests.unit.storage.cleaning import pairs
from tests.unit.storage.conftest import contents

NOW_MS = 1_700_000_000_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=None, segment_bytes=1000)
KEYS = 3


class Moves:
    """Replicas that are on their way."""

    def __init__(self) -> None:
        self.moving: set[TopicPartition] = set()
        self.on_begin: Callable[[TopicPartition], None] = lambda tp: None

    def is_moving(self, tp: TopicPartition) -> bool:
        return tp in self.moving

    def begin(self, tp: TopicPartition) -> None:
        self.moving.add(tp)
        self.on_begin(tp)


class Marks:
    """Everything is committed."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def high_watermark(self, tp: TopicPartition) -> int | None:
        found = self._logs.get(tp)
        return None if found is None else found.view.end_offset

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {each.topic_partition: each.view.end_offset for each in self._logs.logs()}


class Host:
    """Two directories with their threads, and a cleaner."""

    def __init__(self, path: Path, **config: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.started: list[subprocess.Popen[bytes]] = []
        self.platform = dataclasses.replace(Platform.real(), start_process=self._start)
        self.config = BrokerConfig.parse(
            {"node.id": "1", "log.dirs": "/d", "log.cleaner.backoff.ms": "1"}
            | {key.replace("_", "."): value for key, value in config.items()}
        )
        self.threads = [DiskThread(name, self.loop) for name in ("d0", "d0-background", "d1", "d1-background")]
        self.dirs = [
            LogDir(str(path / "d0"), OsFiles(), self.threads[0], background=self.threads[1]),
            LogDir(str(path / "d1"), OsFiles(), self.threads[2], background=self.threads[3]),
        ]
        for i, each in enumerate(self.dirs):
            each.open(node_id=1, cluster_id="c", new_id=lambda i=i: UUID(int=1 + i), now_ms=NOW_MS)  # type: ignore[misc]
        self.logs = LogManager(self.dirs, node_id=1, cluster_id="c", config_of=lambda _: LogConfig())
        self.moves, self.replicas = Moves(), Marks(self.logs)
        self.cleaner = LogCleaner(self)
        self.thaw = threading.Event()

    def now_ms(self) -> int:
        return NOW_MS

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.started.append(process)
        return process

    def hang(self, number: int = 0) -> None:
        """The background of a directory does nothing until ``thaw`` is set."""
        self.dirs[number].background.submit(self.thaw.wait, lambda *_: None)

    def partition(self, number: int, on: int = 0, records: int = 100) -> Log:
        tp = TopicPartition("t", number)
        log = Log.open(self.dirs[on], tp, UUID(int=2), COMPACT, clean_shutdown=False, now_ms=NOW_MS)
        for value in range(records):
            batch = encode_batch([Record(0, NOW_MS, b"k%d" % (value % KEYS), b"%d" % value)])
            log.append_as_leader(batch, 0, NOW_MS)
        self.logs.held.add(log)
        return log

    def close(self) -> None:
        self.thaw.set()
        self.cleaner.close()
        for thread in self.threads:
            thread.close()
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture(autouse=True)
def a_process_for_every_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cleaning, "PROCESS_BYTES", 0)
    yield


def run(path: Path, test: Callable[[Host], object], **config: str) -> None:
    async def work() -> None:
        host = Host(path, **config)
        try:
            await test(host)  # type: ignore[misc]
        finally:
            host.close()

    asyncio.run(work())


def is_clean(log: Log) -> bool:
    return log.cleaned_offset is not None and log.cleaned_offset == log.view.segments[-1].base_offset


def assert_newest(log: Log, records: int = 100) -> None:
    found = {key: value for _, key, value in pairs(contents(log))}
    assert found == {b"k%d" % (value % KEYS): b"%d" % value for value in range(records)}


def test_logs_are_cleaned_by_processes_that_are_gone_then(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        logs = [host.partition(0), host.partition(1, on=1)]
        host.cleaner.start()
        await until(lambda: all(map(is_clean, logs)))
        for log in logs:
            assert_newest(log)
            assert log.view.size < 2000
        await until(lambda: len(host.started) == 2 and all(p.poll() is not None for p in host.started))
        assert 0 < host.cleaner.read().recopy_percent < 50

    run(tmp_path, test)


def test_a_log_with_little_to_gain_is_left(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        dirty, clean = host.partition(0), host.partition(1)
        clean.cleaned_offset = clean.view.end_offset - 20
        host.cleaner.start()
        await until(lambda: is_clean(dirty) and host.cleaner.read().max_dirty_percent < 50)
        assert not is_clean(clean)

    run(tmp_path, test)


def test_K113_09_a_log_that_moves_is_not_cleaned(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        log = host.partition(0)
        host.hang()  # the process is not started yet when the move begins
        before = log.view.segments
        host.cleaner.start()
        host.moves.begin(log.topic_partition)
        host.thaw.set()
        other = host.partition(1, on=1)
        await until(lambda: is_clean(other))
        assert log.view.segments is before
        host.moves.moving.clear()  # it is over, whether it went well or not
        await until(lambda: is_clean(log))
        assert_newest(log)

    run(tmp_path, test)


def test_K113_09_a_move_ends_the_cleaning_that_is_under_way(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        log = host.partition(0, records=400)
        host.cleaner.start()
        await until(lambda: host.started)
        host.moves.begin(log.topic_partition)
        await until(lambda: host.started[0].poll() is not None)
        assert_newest(log, 400)
        host.moves.moving.clear()
        await until(lambda: is_clean(log))
        assert_newest(log, 400)
        await until(lambda: not [p for p in Path(log.path).iterdir() if ".cleaned" in p.name])

    run(tmp_path, test, log_cleaner_io_max_bytes_per_second="20000")


def test_K18_05_a_directory_that_fails_ends_the_cleaning_of_its_logs(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        log, other = host.partition(0, records=400), host.partition(1, on=1)
        host.cleaner.start()
        await until(lambda: host.started)
        before = log.view.segments
        host.dirs[0].mark_offline(KafkaStorageError("it is dead"))
        await until(lambda: is_clean(other))
        assert host.started[0].poll() is not None
        assert log.view.segments is before

    run(tmp_path, test, log_cleaner_io_max_bytes_per_second="20000")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def test_a_log_with_damaged_records_is_uncleanable(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        log = host.partition(0)
        damage(Path(log.view.segments[0].path(".log")))
        host.cleaner.start()
        await until(lambda: any(count for _, count, _ in host.cleaner.read().uncleanable))
        other = host.partition(1)
        await until(lambda: is_clean(other))
        assert log.cleaned_offset is None and log.is_online
        assert len(host.started) == 2

    run(tmp_path, test)


def test_a_process_that_is_killed_costs_a_backoff(tmp_path: Path) -> None:
    async def test(host: Host) -> None:
        log = host.partition(0, records=200)
        host.cleaner.start()
        await until(lambda: host.started)
        host.started[0].kill()
        await until(lambda: is_clean(log))
        assert_newest(log, 200)
        assert len(host.started) == 2

    run(tmp_path, test, log_cleaner_io_max_bytes_per_second="50000")


def test_the_pace_is_kept_and_life_is_told() -> None:
    now, told = [0.0], list[int]()
    pace = Pacer(100.0, told.append, lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds))
    for _ in range(10):
        pace(50)
    assert now[0] == pytest.approx(5.0)
    assert len(told) >= 4 and told == sorted(told)
