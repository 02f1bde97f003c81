"""The thread of a log directory: order, completions exactly once, limits, and what unforeseen errors become."""

import asyncio
import errno
import logging
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.broker.disk_io import DiskThread
from holdfast.model.config import LogConfig
from holdfast.model.errors import DiskQueueFullError, HoldfastError, KafkaStorageError, LogReadError
from holdfast.model.types import TopicPartition
from holdfast.storage import dir_changes
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from tests.unit.broker.conftest import until

NOW_MS = 1_700_000_000_000
DEADLINE_S = 10


async def ask(thread: DiskThread, work: Any) -> tuple[Any, HoldfastError | None]:
    future: asyncio.Future[tuple[Any, HoldfastError | None]] = asyncio.get_running_loop().create_future()
    thread.submit(work, lambda result, error: future.set_result((result, error)))
    async with asyncio.timeout(DEADLINE_S):
        return await future


def raising(error: Exception) -> Any:
    def work() -> None:
        raise error

    return work


def test_work_runs_in_order_and_completes_in_order_on_the_loop() -> None:
    async def check() -> None:
        thread = DiskThread("d", asyncio.get_running_loop())
        loop_thread = threading.current_thread()
        worked: list[tuple[int, bool]] = []
        completed: list[tuple[int, bool]] = []
        for i in range(1000):
            thread.submit(
                lambda i=i: worked.append((i, threading.current_thread() is loop_thread)) or i,  # type: ignore[func-returns-value, misc]
                lambda result, _: completed.append((result, threading.current_thread() is loop_thread)),
            )
        assert await ask(thread, lambda: "last") == ("last", None)
        assert worked == [(i, False) for i in range(1000)]
        assert completed == [(i, True) for i in range(1000)]
        assert thread.waiting == 0
        thread.close()
        assert thread.join(DEADLINE_S)

    asyncio.run(check())


def test_errors_of_ours_pass_and_others_become_storage_errors(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        thread = DiskThread("d", asyncio.get_running_loop())
        ours = LogReadError("EIO")
        assert await ask(thread, raising(ours)) == (None, ours)
        with caplog.at_level(logging.CRITICAL):
            result, error = await ask(thread, raising(ZeroDivisionError("oh")))
        assert result is None
        assert isinstance(error, KafkaStorageError)
        assert "ZeroDivisionError: oh" in str(error)
        assert await ask(thread, lambda: 1) == (1, None)
        thread.close()

    asyncio.run(check())


def test_a_completion_that_fails_does_not_keep_the_others_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        thread = DiskThread("d", asyncio.get_running_loop())
        thread.submit(lambda: None, lambda *_: 1 / 0)
        assert await ask(thread, lambda: 1) == (1, None)
        thread.close()

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(check())


def test_K112_06_a_disk_that_hangs_refuses_more_than_its_limit_and_nothing_before() -> None:
    async def check() -> None:
        thread = DiskThread("d", asyncio.get_running_loop(), limit=10)
        hung = threading.Event()
        answers: list[tuple[Any, HoldfastError | None]] = []
        thread.submit(lambda: hung.wait(DEADLINE_S), lambda *_: None)
        for i in range(20):
            thread.submit(lambda i=i: i, lambda *answer: answers.append(answer))  # type: ignore[misc]
        assert [type(error) for _, error in answers] == [DiskQueueFullError] * 11
        hung.set()
        await until(lambda: not thread.waiting)
        assert answers[11:] == [(i, None) for i in range(9)]
        thread.close()

    asyncio.run(check())


def test_completions_leave_room_for_sockets_between_them() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        thread = DiskThread("d", loop)
        seen: list[str] = []

        done = threading.Event()
        thread.submit(lambda: None, lambda *_: first())

        def first() -> None:
            loop.call_soon(seen.append, "socket")
            for _ in range(3):
                thread.submit(done.set, lambda *_: seen.append("disk"))
            assert done.wait(DEADLINE_S)

        async with asyncio.timeout(DEADLINE_S):
            while seen.count("disk") < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert seen[0] == "socket"
        thread.close()

    asyncio.run(check())


def test_a_thread_ends_when_its_loop_is_gone() -> None:
    loop = asyncio.new_event_loop()
    thread = DiskThread("d", loop)
    loop.close()
    thread.submit(lambda: None, lambda *_: None)
    assert thread.join(DEADLINE_S)


class File:
    """What work has open: it closes when nothing refers to it."""


def test_what_work_had_open_is_given_back_though_its_error_is_kept() -> None:
    """A producer's refused batch remembers the error for ten seconds; the disk must be free to be unmounted before."""

    async def check() -> None:
        thread = DiskThread("d", asyncio.get_running_loop())
        opened: list[weakref.ref[File]] = []

        def fails(file: File) -> None:
            opened.append(weakref.ref(file))
            raise OSError(errno.EIO, "I/O error")

        def work() -> None:
            try:
                fails(File())
            except OSError as e:
                raise KafkaStorageError("EIO") from e

        _, kept = await ask(thread, work)
        assert isinstance(kept, KafkaStorageError)
        assert isinstance(kept.__cause__, OSError)
        assert opened[0]() is None
        thread.close()

    asyncio.run(check())


def test_a_thread_that_waits_for_work_holds_nothing_of_the_last_one() -> None:
    async def check() -> None:
        thread = DiskThread("d", asyncio.get_running_loop())
        file = File()
        used = weakref.ref(file)
        await ask(thread, partial(id, file))
        del file
        await until(lambda: used() is None)  # the thread has no event for "back at the queue"
        thread.close()

    asyncio.run(check())


def test_K112_06_a_directory_whose_queue_was_full_when_it_failed_is_given_back(tmp_path: Path) -> None:
    """Seen: nobody tried again, and neither umount nor `log-dirs online` worked from then on."""

    async def check() -> None:
        loop, goes_on = asyncio.get_running_loop(), threading.Event()
        thread = DiskThread("d", loop, limit=3)
        directory = LogDir(str(tmp_path), OsFiles(), thread)
        logs = LogManager([directory], node_id=1, cluster_id="c", config_of=lambda _: LogConfig())
        started: list[HoldfastError | None] = []
        logs.start(NOW_MS, started.append)
        await until(lambda: started == [None] and not thread.waiting)
        created: list[Any] = []
        logs.new.create(
            TopicPartition("t", 0),
            UUID(int=7),
            LogConfig(),
            is_new=True,
            now_ms=NOW_MS,
            done=lambda *made: created.append(made),
        )
        await until(lambda: created and not thread.waiting)
        for _ in range(3):
            thread.submit(goes_on.wait, lambda *_: None)
        directory.mark_offline(KafkaStorageError("taken offline by hand"))
        refused: list[Callable[[], None]] = []

        def later(again: Callable[[], None]) -> None:
            refused.append(again)
            loop.call_later(0.01, again)

        dir_changes.release(logs, directory, later)
        await until(lambda: len(refused) > 1)
        goes_on.set()
        await until(lambda: not is_open_below(tmp_path))
        anew = LogDir(str(tmp_path), OsFiles(), InlineQueue())
        anew.open(node_id=1, cluster_id="c", new_id=uuid4, now_ms=NOW_MS)
        anew.close()
        thread.close()
        assert thread.join(DEADLINE_S)

    asyncio.run(check())


def is_open_below(directory: Path) -> list[str]:
    """Files there that this process has open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [p for p in (os.readlink(link) for link in links if os.path.lexists(link)) if p.startswith(f"{directory}/")]
