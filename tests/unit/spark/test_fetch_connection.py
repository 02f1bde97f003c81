"""How a task's connection takes large answers from a socket, however they come."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast.model.errors import NetworkError
from holdfast.spark.fetch_connection import WAKE_BYTES, FetchConnection

TIMEOUT_S = 1.0
VERSIONS = struct.pack(">hi", 0, 1) + struct.pack(">hhh", 1, 4, 13)


def frame(number: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


@contextmanager
def answered(answer: Callable[[socket.socket], None], timeout_s: float = TIMEOUT_S) -> Iterator[FetchConnection]:
    """A connection to a broker that tells its versions and then does as ``answer`` says."""
    failed: list[BaseException] = []

    def broker() -> None:
        try:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1 << 16)
                accepted.sendall(frame(1, VERSIONS))
                answer(accepted)
        except BaseException as error:
            failed.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=broker)
        thread.start()
        connection = FetchConnection("127.0.0.1", listener.getsockname()[1], "test", timeout_s)
        try:
            yield connection
        finally:
            connection.close()
            thread.join()
    assert not failed


@pytest.mark.parametrize("size", [1, WAKE_BYTES - 1, WAKE_BYTES, WAKE_BYTES + 1, 5 * WAKE_BYTES + 7])
def test_an_answer_comes_whole_whatever_its_size_and_its_pieces(size: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)

    def answer(accepted: socket.socket) -> None:
        for number in (2, 3):
            data = frame(number, content[:size])
            for at in range(0, len(data), 60_000):
                accepted.sendall(data[at : at + 60_000])

    with answered(answer) as connection:
        for _ in range(2):
            assert bytes(connection._frame()) == content[:size]


def test_a_small_answer_after_a_large_one_is_not_waited_for_until_the_time_is_up() -> None:
    large, small = b"x" * (3 * WAKE_BYTES), b"y"
    with answered(lambda accepted: accepted.sendall(frame(2, large) + frame(3, small)), timeout_s=60) as connection:
        began_s = time.monotonic()
        assert (bytes(connection._frame()), bytes(connection._frame())) == (large, small)
        assert time.monotonic() - began_s < 30


def test_what_is_slower_than_the_time_for_a_read_is_waited_for_while_bytes_come() -> None:
    body = b"x" * (2 * WAKE_BYTES)
    data = frame(2, body)
    pause = threading.Event()

    def answer(accepted: socket.socket) -> None:
        for at in (0, 1000, 2000):  # a network that brings less than WAKE_BYTES in TIMEOUT_S
            accepted.sendall(data[at : at + 1000])
            pause.wait(1.3 * TIMEOUT_S)
        accepted.sendall(data[3000:])

    with answered(answer) as connection:
        assert bytes(connection._frame()) == body


def test_an_answer_that_stops_coming_ends_with_the_time_for_a_read() -> None:
    done = threading.Event()

    def answer(accepted: socket.socket) -> None:
        accepted.sendall(frame(2, b"x" * WAKE_BYTES)[:1000])
        done.wait(60)

    with answered(answer) as connection, pytest.raises(NetworkError, match="timed out"):
        try:
            connection._frame()
        finally:
            done.set()


def test_a_broker_that_goes_in_the_middle_of_an_answer_is_seen_at_once() -> None:
    with (
        answered(lambda accepted: accepted.sendall(frame(2, b"x" * WAKE_BYTES)[:1000])) as connection,
        pytest.raises(NetworkError, match="closed the connection"),
    ):
        connection._frame()
