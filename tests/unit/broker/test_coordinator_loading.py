"""Loading groups: real lanes, real logs, the real process that reads a large partition."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.broker import coordinator_loading
from holdfast.broker.coordinator_loading import CoordinatorLoad, LoadPlaces
from holdfast.broker.disk_io import DiskThread
from holdfast.broker.platform import Platform
from holdfast.groups.group import Group
from holdfast.groups.offset_records import encode_offset, encode_offset_key
from holdfast.groups.replay import Replay
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import CRC_START
from holdfast.records.record import Record, encode_batch
from holdfast.storage.dir_state import DirNews
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_manager import LogManager
from holdfast.testing import wait_for

NOW_MS = 1_700_000_000_000
DEADLINE_S = 30


def commits(first: int, count: int, groups: int) -> bytearray:
    """One batch for each commit, as the coordinator of one group after the other writes them."""
    found = bytearray()
    for i in range(first, first + count):
        key = encode_offset_key(f"group-of-some-length-{i % groups}", TopicPartition("topic", i // groups % 10))
        value = encode_offset(OffsetAndMetadata(i, 1, "", NOW_MS + i))
        found += encode_batch([Record(0, NOW_MS, key, value)], base_sequence=0)
    return found


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what, timeout_s=DEADLINE_S)


class Host:
    """A broker's directory with its three threads, and the partitions on it."""

    def __init__(self, path: Path, *, processes: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.places = LoadPlaces()
        self.started: list[subprocess.Popen[bytes]] = []
        real = Platform.real()
        self.platform = dataclasses.replace(real, start_process=self._start if processes else None)
        self.command: list[str] | None = None
        self.threads = [DiskThread(name, self.loop) for name in ("d0", "d0-background", "d1", "d1-background")]
        self.dirs = [
            LogDir(str(path / "d0"), OsFiles(), self.threads[0], background=self.threads[1]),
            LogDir(str(path / "d1"), OsFiles(), self.threads[2], background=self.threads[3]),
        ]
        for i, each in enumerate(self.dirs):
            each.open(node_id=1, cluster_id="c", new_id=lambda i=i: UUID(int=1 + i), now_ms=NOW_MS)  # type: ignore[misc]
        self.dir = self.dirs[0]
        self.thaw = threading.Event()
        self.logs = LogManager(self.dirs, node_id=1, cluster_id="c", config_of=lambda _: LogConfig())

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = self.command or [sys.executable, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.started.append(process)
        return process

    def hang(self) -> None:
        """The background of the first directory does nothing until ``thaw`` is set."""
        self.dir.background.submit(self.thaw.wait, lambda *_: None)

    def partition(self, number: int, data: bytearray, on: int = 0, **config: int) -> Log:
        tp = TopicPartition("__consumer_offsets", number)
        log = Log.open(self.dirs[on], tp, UUID(int=2), LogConfig(**config), clean_shutdown=False, now_ms=NOW_MS)  # type: ignore[arg-type]
        log.append_as_leader(data, 0, NOW_MS, trusted=True)
        self.logs.held.add(log)
        return log

    async def load(self, number: int, *, is_wanted: Callable[[], bool] = lambda: True) -> dict[str, Group]:
        found: dict[str, Group] = {}
        ready = asyncio.Event()
        tp = TopicPartition("__consumer_offsets", number)
        load = CoordinatorLoad(
            self, self.places, tp, replay=Replay, kind="groups", is_wanted=is_wanted, add=found.update, ready=ready.set
        )
        load.start()
        async with asyncio.timeout(DEADLINE_S):
            await ready.wait()
        return found

    def close(self) -> None:
        self.thaw.set()
        for thread in self.threads:
            thread.close()
        for process in self.started:
            process.kill()
            process.wait()
        for each in self.dirs:
            each.close()


def check(found: dict[str, Group], count: int, groups: int) -> None:
    assert len(found) == groups
    newest = sorted(c.offset for group in found.values() for c in group.offsets.values())
    assert newest == list(range(count - min(count, groups * 10), count))


@pytest.mark.parametrize("processes", [False, True], ids=["in the lane", "in a process"])
def test_D1_groups_are_loaded_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: bool) -> None:
    monkeypatch.setattr(coordinator_loading, "PROCESS_BYTES", 100_000)

    async def run() -> None:
        host = Host(tmp_path, processes=processes)
        try:
            host.partition(0, commits(0, 5000, 70), segment_bytes=200_000)
            check(await host.load(0), 5000, 70)
            assert len(host.started) == processes
        finally:
            host.close()

    asyncio.run(run())


def test_D1_a_small_partition_needs_no_process_and_an_empty_one_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host(tmp_path, processes=True)
        try:
            host.partition(0, commits(0, 30, 3))
            check(await host.load(0), 30, 3)
            Log.open(
                host.dir, TopicPartition("__consumer_offsets", 1), UUID(int=2), LogConfig(), clean_shutdown=False,
                now_ms=NOW_MS,
            )  # fmt: skip
            assert host.started == []
        finally:
            host.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", "raise SystemExit(3)"],
        [sys.executable, "-c", "import os; os.write(1, b'f\\0\\0\\0\\2no')"],
        [sys.executable, "-c", "import os; os.write(1, b'p\\xff\\xff\\xff\\xff')"],
        ["/nowhere/python"],
    ],
    ids=["ends early", "says that it failed", "sends nonsense", "cannot be started"],
)
def test_D1_without_the_process_the_broker_reads_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(coordinator_loading, "PROCESS_BYTES", 100_000)

    async def run() -> None:
        host = Host(tmp_path, processes=True)
        host.command = command
        try:
            host.partition(0, commits(0, 2000, 7))
            check(await host.load(0), 2000, 7)
        finally:
            host.close()

    asyncio.run(run())


def test_D1_a_process_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_loading, "PROCESS_BYTES", 100_000)
    monkeypatch.setattr(coordinator_loading, "SILENCE_S", 0.3)

    async def run() -> None:
        host = Host(tmp_path, processes=True)
        host.command = [sys.executable, "-c", "import signal; signal.pause()"]
        try:
            host.partition(0, commits(0, 2000, 7))
            check(await host.load(0), 2000, 7)
            assert host.started[0].returncode == -signal.SIGKILL
        finally:
            host.close()

    asyncio.run(run())


@pytest.mark.parametrize("processes", [False, True], ids=["in the lane", "in a process"])
def test_D1_who_leads_no_more_stops_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: bool) -> None:
    monkeypatch.setattr(coordinator_loading, "PROCESS_BYTES", 100_000)

    async def run() -> None:
        host = Host(tmp_path, processes=processes)
        host.command = [sys.executable, "-c", "import signal; signal.pause()"]
        try:
            host.partition(0, commits(0, 2000, 7))
            host.partition(1, commits(0, 30, 3))
            found: dict[str, Group] = {}
            tp = TopicPartition("__consumer_offsets", 0)
            loads = [
                CoordinatorLoad(
                    host, host.places, tp, replay=Replay, kind="groups", is_wanted=lambda: True, add=found.update,
                    ready=lambda: pytest.fail("it was abandoned"),
                )
                for _ in range(3)
            ]  # fmt: skip
            for each in loads:
                each.start()
            places = coordinator_loading.PROCESSES if processes else 0
            await until(lambda: len(host.started) == places, "the processes run")
            for each in reversed(loads):  # the one that waits first: else it is given the place of the others
                each.abandon()
            check(await host.load(1), 30, 3)  # the lane and the places are free
            await until(lambda: all(p.poll() is not None for p in host.started), "the processes are gone")
            assert found == {}
            assert len(host.started) == places
        finally:
            host.close()

    asyncio.run(run())


@pytest.mark.parametrize("ends", ["abandoned", "silent"])
def test_D1_loads_on_a_disk_that_hangs_keep_no_place_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The start of their processes waits behind the disk: they are given up, or the directory is known to be silent."""
    monkeypatch.setattr(coordinator_loading, "PROCESS_BYTES", 100_000)

    async def run() -> None:
        host = Host(tmp_path, processes=True)
        try:
            for number in range(coordinator_loading.PROCESSES):
                host.partition(number, commits(0, 2000, 7))
            host.partition(8, commits(0, 2000, 7), on=1)
            host.hang()
            found: list[dict[str, Group]] = [{} for _ in range(coordinator_loading.PROCESSES)]
            ready: list[int] = []
            loads = [
                CoordinatorLoad(
                    host, host.places, TopicPartition("__consumer_offsets", number), replay=Replay, kind="groups",
                    is_wanted=lambda: True,
                    add=found[number].update, ready=lambda number=number: ready.append(number),  # type: ignore[misc]
                )
                for number in range(coordinator_loading.PROCESSES)
            ]  # fmt: skip
            for each in loads:
                each.start()
            other = asyncio.ensure_future(host.load(8))
            await asyncio.sleep(0)
            assert host.started == []
            if ends == "silent":
                host.dir.note_pace(DirNews.HUNG, "no answer for 1 s")
            else:
                for each in loads:
                    each.abandon()
            check(await other, 2000, 7)
            assert len(host.started) == 1

            host.thaw.set()
            if ends == "silent":
                host.dir.note_pace(DirNews.ANSWERED, "it answered")
                await until(lambda: len(ready) == len(loads), "they are read after the thaw")
                for groups in found:
                    check(groups, 2000, 7)
                assert len(host.started) == 1 + len(loads)
            else:
                host.partition(9, commits(0, 30, 3))
                check(await host.load(9), 30, 3)  # the lane is through
                assert found == [{}, {}]
                assert len(host.started) == 1

            # Each place came back once: as many processes as ever, and no more.
            before = len(host.started)
            host.command = [sys.executable, "-c", "import signal; signal.pause()"]
            for _ in range(2 * coordinator_loading.PROCESSES):
                tp = TopicPartition("__consumer_offsets", 8)
                more = CoordinatorLoad(
                    host, host.places, tp, replay=Replay, kind="groups", is_wanted=lambda: True, add=lambda _: None,
                    ready=lambda: None,
                )  # fmt: skip
                more.start()
            await until(lambda: len(host.started) == before + coordinator_loading.PROCESSES, "the processes run")
            host.partition(10, commits(0, 30, 3), on=1)
            check(await host.load(10), 30, 3)  # whatever was queued in the lane is through
            assert len(host.started) == before + coordinator_loading.PROCESSES
        finally:
            host.close()

    asyncio.run(run())


def test_D1_a_corrupt_batch_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coordinator_loading, "PROCESS_BYTES", 100_000)
    monkeypatch.setattr(coordinator_loading, "RETRY_S", 0.05)

    async def run() -> None:
        host = Host(tmp_path, processes=True)
        try:
            log = host.partition(0, commits(0, 2000, 7))
            path = f"{log.path}/{0:020d}.log"
            fd = os.open(path, os.O_RDWR)
            good = os.pread(fd, 1, CRC_START + 20)
            os.pwrite(fd, bytes((good[0] ^ 1,)), CRC_START + 20)
            loading = asyncio.ensure_future(host.load(0))
            await until(lambda: "cannot be loaded" in caplog.text, "it is told")
            assert "offset 0 fails its CRC" in caplog.text
            os.pwrite(fd, good, CRC_START + 20)
            os.close(fd)
            check(await loading, 2000, 7)
        finally:
            host.close()

    asyncio.run(run())


def test_D1_the_process_ends_with_its_broker(tmp_path: Path) -> None:
    """The reader waits for its order; its parent, which would send it, is killed."""
    script = (
        "import subprocess, sys, json, os, signal\n"
        "order = {'kind': 'groups', 'files': [[sys.argv[1], 1 << 20]], 'start_offset': 0, 'parent': os.getpid()}\n"
        "order = json.dumps(order)\n"
        "p = subprocess.Popen([sys.executable, '-m', 'holdfast.broker.coordinator_reader'], stdin=subprocess.PIPE)\n"
        "p.stdin.write(order.encode()); p.stdin.close()\n"
        "print(p.pid, flush=True)\n"
        "signal.pause()\n"
    )
    fifo = tmp_path / "segment"
    os.mkfifo(fifo)  # opening it for reading takes for ever: a file on a disk that hangs
    parent = subprocess.Popen([sys.executable, "-c", script, str(fifo)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    reader = os.pidfd_open(int(parent.stdout.readline()))
    loop = asyncio.new_event_loop()
    ended = loop.create_future()
    loop.add_reader(reader, ended.set_result, None)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    loop.run_until_complete(asyncio.wait_for(ended, DEADLINE_S))
    loop.close()
    os.close(reader)
