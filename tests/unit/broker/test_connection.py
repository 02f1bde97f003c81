"""A connection's promises: order of answers, overlap of Produce only, limits, and what bad frames do."""

import asyncio
import functools
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import connection as connection_module
from holdfast.broker.connection import MAX_UNSENT_BYTES, Connection
from holdfast.broker.disk_io import DiskThread
from holdfast.broker.exchange import BufferPool, Exchange, SendSlice
from holdfast.broker.request_times import RequestTimes
from holdfast.model.errors import KafkaStorageError
from holdfast.model.histogram import EVERY, EXACT
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.storage.files import OsFile, OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_view import FileSlice
from tests.unit.broker.conftest import EVERYTHING


def on_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """Run an async test to its end."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


MAX_FRAME = 1 << 20
DEADLINE_S = 10


def frame(api: int, correlation: int, body: bytes = b"") -> bytes:
    """A request with a version 1 header and the client id "t"."""
    content = struct.pack(">hhih", api, 3, correlation, 1) + b"t" + body
    return struct.pack(">i", len(content)) + content


def answer(correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


class Peer:
    """The client's side, and the requests that reached the broker's side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.requests: list[Exchange] = []
        self.closed = asyncio.Event()
        self.connection: Connection
        self.on_request: Callable[[Exchange], None] | None = None

    def dispatch(self, exchange: Exchange) -> None:
        self.requests.append(exchange)
        if self.on_request is not None:
            self.on_request(exchange)

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self, size: int) -> bytes:
        data = b""
        async with asyncio.timeout(DEADLINE_S):
            while len(data) < size:
                part = await asyncio.get_running_loop().sock_recv(self.sock, size - len(data))
                assert part, f"closed after {data!r}"
                data += part
        return data

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - it is the code under test that has no event to wait for
                await asyncio.sleep(0)


@asynccontextmanager
async def connected(times: RequestTimes | None = None) -> AsyncIterator[Peer]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    peer = Peer(ours)
    peer.connection = Connection(
        theirs,
        ("local", 0),
        asyncio.get_running_loop(),
        BufferPool(),
        peer.dispatch,
        lambda _: peer.closed.set(),
        MAX_FRAME,
        EVERYTHING,
        times,
    )
    try:
        yield peer
    finally:
        peer.connection.close(None)
        ours.close()


@on_a_loop
async def test_produce_requests_overlap_and_answers_keep_their_order() -> None:
    async with connected() as peer:
        await peer.send(b"".join(frame(ApiKey.PRODUCE, i) for i in range(3)))
        await peer.until(lambda: len(peer.requests) == 3)
        for exchange in reversed(peer.requests):
            exchange.finish([answer(exchange.header.correlation_id)])
        assert await peer.receive(24) == answer(0) + answer(1) + answer(2)


@on_a_loop
async def test_other_requests_wait_for_those_before_them() -> None:
    async with connected() as peer:
        await peer.send(frame(ApiKey.PRODUCE, 1) + frame(ApiKey.METADATA, 2) + frame(ApiKey.PRODUCE, 3))
        await peer.until(lambda: len(peer.requests) == 1)
        for expected in (1, 2, 3):
            exchange = peer.requests[-1]
            assert exchange.header.correlation_id == expected
            exchange.finish([answer(expected)])
            assert await peer.receive(8) == answer(expected)
            if expected < 3:
                await peer.until(lambda expected=expected: len(peer.requests) == expected + 1)


@on_a_loop
async def test_a_parked_request_is_hurried_by_the_one_behind_it() -> None:
    def park(exchange: Exchange) -> None:
        if exchange.header.correlation_id == 1:
            exchange.hurry = lambda: exchange.finish([answer(1, b"hurried")])

    async with connected() as peer:
        peer.on_request = park
        await peer.send(frame(ApiKey.FETCH, 1))
        await peer.until(lambda: len(peer.requests) == 1)
        await peer.send(frame(ApiKey.FETCH, 2))
        assert await peer.receive(15) == answer(1, b"hurried")
        await peer.until(lambda: len(peer.requests) == 2)
        peer.requests[1].finish([answer(2)])
        assert await peer.receive(8) == answer(2)


@on_a_loop
async def test_large_frames_arrive_whole_in_a_pooled_buffer_that_comes_back() -> None:
    body = bytes(range(256)) * 2000
    async with connected() as peer:
        seen = []
        peer.on_request = lambda exchange: seen.append(bytes(exchange.body))
        for i in range(3):
            sending = asyncio.create_task(peer.send(frame(ApiKey.PRODUCE, i, body)))
            await peer.until(lambda i=i: len(peer.requests) == i + 1)
            await sending
            peer.requests[i].finish([answer(i)])
            assert await peer.receive(8) == answer(i)
        assert seen == [body] * 3
        assert peer.connection.pool.take(len(body)) is not None


@on_a_loop
async def test_a_large_frame_gets_its_buffer_as_its_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is announced is not believed, but for as much as came of one frame before."""
    monkeypatch.setattr(connection_module, "LARGE_START", 96 * 1024)
    taken: list[int] = []
    take = BufferPool.take
    monkeypatch.setattr(BufferPool, "take", lambda self, size: taken.append(size) or take(self, size))
    content = frame(ApiKey.PRODUCE, 7, bytes(range(256)) * 3500)
    async with connected() as peer:
        bodies = []
        peer.on_request = lambda exchange: (bodies.append(bytes(exchange.body)), exchange.finish([]))  # type: ignore[func-returns-value]
        connection, sent = peer.connection, 0
        for size in (1, 3, 1000, 1500, 20_000, 100_000):
            await peer.send(content[sent : sent + size])
            sent += size
            await peer.until(lambda sent=sent: (connection.unfinished_bytes or 0) >= sent - 4)  # type: ignore[misc]
            assert connection.held_bytes <= max(4096, 8 * sent), sent
            assert bool(taken) == (sent >= 2048)
        await peer.send(content[sent:])
        await peer.until(lambda: bool(bodies))
        taken.clear()
        await peer.send(content[:5])
        await peer.until(lambda: bool(taken))
        assert taken == [96 * 1024], "so much of one has come before"
        await peer.send(content[5:])
        await peer.until(lambda: len(bodies) == 2)
        assert bodies == [bytes(range(256)) * 3500] * 2
        assert connection.unfinished_bytes is None


@on_a_loop
async def test_a_small_buffer_grows_as_its_bytes_come() -> None:
    content = frame(ApiKey.PRODUCE, 7, bytes(60_000))
    async with connected() as peer:
        bodies: list[int] = []
        peer.on_request = lambda exchange: bodies.append(len(exchange.body))
        for at in range(0, 60_000, 1000):
            await peer.send(content[at : at + 1000])
            await peer.until(lambda at=at: peer.connection.unfinished_bytes == at + 1000)  # type: ignore[misc]
            assert len(peer.connection._buffer) <= max(4096, 8 * (at + 1000))
        await peer.send(content[60_000:] + frame(ApiKey.PRODUCE, 8, bytes(70_000)))
        await peer.until(lambda: bodies == [60_000, 70_000])


@on_a_loop
async def test_what_we_do_not_read_is_not_unfinished() -> None:
    async with connected() as peer:
        await peer.send(frame(ApiKey.METADATA, 1) + frame(ApiKey.METADATA, 2)[:9])
        await peer.until(lambda: bool(peer.requests) and not peer.connection._reading)
        assert peer.connection.unfinished_bytes is None
        peer.requests[0].finish([])
        await peer.until(lambda: peer.connection.unfinished_bytes == 9)


@on_a_loop
async def test_small_frames_cut_anywhere() -> None:
    stream = b"".join(frame(ApiKey.PRODUCE, i, bytes(i)) for i in range(40))
    async with connected() as peer:
        bodies: list[int] = []
        peer.on_request = lambda exchange: (bodies.append(len(exchange.body)), exchange.finish([]))  # type: ignore[func-returns-value]
        for at in range(0, len(stream), 7):
            await peer.send(stream[at : at + 7])
            await asyncio.sleep(0)
        await peer.until(lambda: len(bodies) == 40)
        assert bodies == list(range(40))


@on_a_loop
async def test_frames_of_impossible_size_close_the_connection() -> None:
    for size in (-1, 0, MAX_FRAME + 1):
        async with connected() as peer:
            await peer.send(struct.pack(">i", size))
            async with asyncio.timeout(DEADLINE_S):
                await peer.closed.wait()
            assert not peer.requests


@on_a_loop
async def test_a_header_that_cannot_be_read_closes_the_connection() -> None:
    async with connected() as peer:
        await peer.send(struct.pack(">i", 3) + b"abc")
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()


@on_a_loop
async def test_the_client_closing_is_told_once() -> None:
    async with connected() as peer:
        peer.sock.close()
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
        assert peer.connection.closed
        peer.connection.close(None)


@on_a_loop
async def test_slices_of_a_file_are_sent_between_other_chunks(tmp_path: object) -> None:
    content = bytes(range(256)) * 8192
    path = f"{tmp_path}/segment"
    files = OsFiles()
    handle = files.open(path, create=True)
    handle.pwritev((content,), 0)
    directory = LogDir(str(tmp_path), files, InlineQueue())
    async with connected() as peer:
        await peer.send(frame(ApiKey.FETCH, 7))
        await peer.until(lambda: len(peer.requests) == 1)
        small = SendSlice(FileSlice(Owner(directory), handle, 100, 50, 0))
        large = SendSlice(FileSlice(Owner(directory), handle, 0, len(content), 0))
        peer.requests[0].finish([b"head", small, b"between", large, b"tail"])
        expected = b"head" + content[100:150] + b"between" + content + b"tail"
        assert await peer.receive(len(expected)) == expected


class Owner:
    """A log as far as a piece of its files needs it."""

    topic_partition = TopicPartition("t", 0)

    def __init__(self, directory: LogDir) -> None:
        self.dir = directory
        self.failure: KafkaStorageError | None = None
        self.guard = directory.guard


@on_a_loop
async def test_a_slice_beyond_the_file_closes_the_connection(tmp_path: object) -> None:
    files = OsFiles()
    handle = files.open(f"{tmp_path}/segment", create=True)
    handle.pwritev((b"short",), 0)
    directory = LogDir(str(tmp_path), files, InlineQueue())
    async with connected() as peer:
        await peer.send(frame(ApiKey.FETCH, 7))
        await peer.until(lambda: len(peer.requests) == 1)
        peer.requests[0].finish([b"head", SendSlice(FileSlice(Owner(directory), handle, 0, 1000, 0))])
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()


@on_a_loop
async def test_a_client_that_does_not_read_is_asked_for_nothing_more() -> None:
    requests, size = 400, 256 * 1024

    def reply(exchange: Exchange) -> None:
        exchange.finish([answer(exchange.header.correlation_id, bytes(size))])

    async with connected() as peer:
        peer.on_request = reply
        await peer.send(b"".join(frame(ApiKey.METADATA, i) for i in range(requests)))
        await peer.until(lambda: not peer.connection._reading)
        unsent = peer.connection._sending.unsent
        assert MAX_UNSENT_BYTES <= unsent < MAX_UNSENT_BYTES + 2 * size
        assert len(peer.requests) < requests
        assert peer.connection.is_idle, "an answer that nobody takes does not keep a connection from being idle"
        # When it reads on, everything comes, in order.
        for i in range(requests):
            assert (await peer.receive(8 + size))[:8] == answer(i, bytes(size))[:8]
        assert len(peer.requests) == requests


def test_a_buffer_that_somebody_still_looks_at_is_not_used_again() -> None:
    pool = BufferPool()
    hung = pool.take(100_000)
    view = memoryview(hung)[10:20]  # what a disk that hangs still holds when its request was answered
    pool.give(hung)
    assert pool.take(100_000) is not hung
    view.release()
    pool.give(hung)
    assert pool.take(100_000) is hung
    assert len(hung) == 131_072


@on_a_loop
async def test_K112_06_requests_under_way_on_all_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.broker.connection.MAX_RUNNING_BYTES", 1000)
    async with connected() as one, connected() as other:
        other.connection.pool = one.connection.pool
        await one.send(b"".join(frame(ApiKey.PRODUCE, i, bytes(600)) for i in range(4)))
        await one.until(lambda: len(one.requests) == 2 and not one.connection._reading)
        # The limit is reached, but everybody may have one.
        await other.send(b"".join(frame(ApiKey.PRODUCE, i, bytes(10)) for i in range(2)))
        await other.until(lambda: bool(other.requests) and not other.connection._reading)
        assert (len(one.requests), len(other.requests)) == (2, 1)
        one.requests[0].finish([answer(0)])
        one.requests[1].finish([answer(1)])
        await one.until(lambda: len(one.requests) == 4)
        other.requests[0].finish([answer(0)])
        await other.until(lambda: len(other.requests) == 2)
        other.connection.close(None)
        one.connection.close(None)
        assert one.connection.pool.running_bytes == 0
        one.requests[2].finish([answer(2)])
        assert one.connection.pool.running_bytes == 0


def is_open_here(path: str) -> bool:
    """Whether this process has the file open."""
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return path in [os.readlink(link) for link in links if os.path.lexists(link)]


@on_a_loop
async def test_an_answer_that_was_taken_keeps_no_file_open(tmp_path: Path) -> None:
    """A disk must be free to be unmounted, whoever still remembers the request."""
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(bytes(1000))
    owner = Owner(LogDir(str(tmp_path), OsFiles(), InlineQueue()))
    async with connected() as peer:
        await peer.send(frame(ApiKey.FETCH, 1) + frame(ApiKey.FETCH, 2))
        await peer.until(lambda: len(peer.requests) == 1)
        piece = FileSlice(owner, OsFiles().open(str(file)), 0, 1000, 0)
        peer.requests[0].finish([SendSlice(piece)])
        del piece
        await peer.receive(1000)
        await peer.until(lambda: len(peer.requests) == 2)
        assert not is_open_here(str(file))
        peer.connection.close(None)
        piece = FileSlice(owner, OsFiles().open(str(file)), 0, 1000, 0)
        peer.requests[1].finish([SendSlice(piece)])
        del piece
        assert not is_open_here(str(file)), "nobody is there to take it"


@on_a_loop
async def test_it_is_known_of_which_directory_an_answer_is_that_nobody_takes(tmp_path: Path) -> None:
    file, size = tmp_path / "00000000000000000000.log", 64 << 20
    file.touch()
    os.truncate(file, size)
    mine, other = (LogDir(str(tmp_path), OsFiles(), InlineQueue()) for _ in range(2))
    async with connected() as peer:
        await peer.send(frame(ApiKey.PRODUCE, 1) + frame(ApiKey.PRODUCE, 2))
        await peer.until(lambda: len(peer.requests) == 2)
        peer.requests[1].finish([SendSlice(FileSlice(Owner(mine), OsFiles().open(str(file)), 0, size, 0))])
        assert peer.connection.sends_from(mine) and not peer.connection.sends_from(other), "its turn has not come"
        peer.requests[0].finish([b"first"])
        assert peer.connection.sends_from(mine) and not peer.connection.sends_from(other), "more than a socket takes"
        peer.connection.close(None)
        assert not peer.connection.sends_from(mine) and not is_open_here(str(file))


class HungDisk:
    """A directory on a thread that hangs until it is told, and a cold slice of a file there."""

    def __init__(self, path: Path) -> None:
        file = path / "00000000000000000000.log"
        file.write_bytes(bytes(range(250)) * 4)
        self.thread = DiskThread("hung", asyncio.get_running_loop())
        self.directory = LogDir(str(path), OsFiles(), self.thread)
        self.file = ColdFile(str(file), os.open(file, os.O_RDONLY))
        self.goes_on = threading.Event()

    def hang(self) -> None:
        self.thread.submit(self.goes_on.wait, lambda *_: None)

    def slice(self) -> SendSlice:
        return SendSlice(FileSlice(Owner(self.directory), self.file, 0, 1000, 0))

    def end(self) -> None:
        self.goes_on.set()
        self.thread.close()
        assert self.thread.join(DEADLINE_S)


class ColdFile(OsFile):
    """Nothing of it is in memory."""

    def preadv_nowait(self, size: int, offset: int) -> bytearray | None:
        return None


@on_a_loop
async def test_K112_06_an_answer_does_not_wait_for_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a consumer of a hung disk and of a healthy one got nothing of the healthy one, for as long as it hung."""
    monkeypatch.setattr("holdfast.broker.cold_slice.LOAD_GRACE_S", 0.05)
    disk = HungDisk(tmp_path)
    disk.hang()
    async with connected() as peer:
        await peer.send(frame(ApiKey.FETCH, 1))
        await peer.until(lambda: len(peer.requests) == 1)
        peer.requests[0].finish([b"head", disk.slice()])
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
        assert await peer.receive(4) == b"head"
        assert not disk.directory.answers, "the next fetch does not wait for it again"
    disk.goes_on.set()
    async with connected() as peer:
        await peer.until(lambda: disk.directory.answers)
        await peer.send(frame(ApiKey.FETCH, 1))
        await peer.until(lambda: len(peer.requests) == 1)
        peer.requests[0].finish([disk.slice()])
        assert await peer.receive(1000) == bytes(range(250)) * 4
        assert peer.connection._sending._cold is None
    disk.end()


@on_a_loop
async def test_K112_06_a_disk_that_gets_something_done_is_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.cold_slice.LOAD_GRACE_S", 0.3)
    monkeypatch.setattr("holdfast.broker.cold_slice.LOAD_LIMIT_S", 0.8)
    disk, loop, works = HungDisk(tmp_path), asyncio.get_running_loop(), threading.Semaphore(0)
    for _ in range(400):
        disk.thread.submit(works.acquire, lambda *_: None)

    def work() -> None:
        """One more is done every few milliseconds, as on a slow disk with a long queue."""
        works.release()
        if not peer.connection.closed:
            loop.call_later(0.005, work)

    async with connected() as peer:
        await peer.send(frame(ApiKey.FETCH, 1))
        await peer.until(lambda: len(peer.requests) == 1)
        begun_s = loop.time()
        work()
        peer.requests[0].finish([disk.slice()])
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
        assert loop.time() - begun_s >= 0.8
        assert 0 < disk.thread.completed < 400 and disk.directory.answers, "it is slow, no more"
    works.release(400)
    disk.end()


@on_a_loop
async def test_every_request_is_counted_and_of_many_some_are_timed_for_all() -> None:
    times, asked = RequestTimes(), EXACT + 10 * EVERY + 5
    async with connected(times) as peer:
        peer.on_request = lambda exchange: exchange.finish([answer(exchange.header.correlation_id)])

        async def ask(count: int) -> None:
            for number in range(count):
                await peer.send(frame(ApiKey.PRODUCE, number))
                await peer.receive(8)

        await ask(EXACT)
        assert times.read()[0].ever[0].observations == EXACT, "each of the first ones"
        await ask(asked - EXACT)
        assert times.requests() == {("Produce", 3): asked}
        assert times.read()[0].ever[0].observations == asked - 5, "those since the last that was timed"
        assert sum(exchange.weight > 0 for exchange in peer.requests) == EXACT + 10
        times.remember()
        await ask(1)
        assert times.read()[0].ever[0].observations == asked + 1, "it stands for those before it"


@on_a_loop
async def test_answers_in_one_turn_are_timed_though_the_last_of_them_is_not() -> None:
    times = RequestTimes()
    async with connected(times) as peer:
        peer.on_request = lambda exchange: exchange.finish([answer(exchange.header.correlation_id)])
        for number in range(EXACT - 1):
            await peer.send(frame(ApiKey.PRODUCE, number))
            await peer.receive(8)
        peer.on_request = None
        await peer.send(frame(ApiKey.PRODUCE, 1) + frame(ApiKey.PRODUCE, 2))
        await peer.until(lambda: len(peer.requests) == EXACT + 1)
        first, second = peer.requests[-2:]
        second.finish([answer(2)])
        first.finish([answer(1)])
        assert await peer.receive(16) == answer(1) + answer(2)
        assert (first.weight, second.weight) == (0, 1)
        await peer.until(lambda: times.read()[0].ever[0].observations == EXACT)
        assert times.requests() == {("Produce", 3): EXACT + 1}
