"""What PySpark's daemon is given by holdfast.spark.daemon for its workers."""

from __future__ import annotations

import gc
import socket
from typing import Any

from holdfast.spark.daemon import keep_memory, quiet, settled


def test_what_a_worker_has_loaded_is_frozen_after_its_first_task() -> None:
    ours, other = socket.socketpair()
    frozen: list[int] = []

    def worker(connection: socket.socket, authenticated: bool) -> int:
        assert connection is ours and authenticated
        frozen.append(gc.get_freeze_count())
        return 7

    run = settled(worker)
    try:
        assert [run(ours, True), run(ours, True)] == [7, 7]
        assert frozen[1] > frozen[0] + 1000
    finally:
        gc.unfreeze()
        ours.close()
        other.close()


def test_a_workers_socket_holds_more_than_by_default() -> None:
    ours, other = socket.socketpair()
    before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    try:
        settled(lambda *_: 0)(ours, True)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before
    finally:
        gc.unfreeze()
        ours.close()
        other.close()


def test_a_worker_that_was_let_go_says_nothing() -> None:
    def worker(*_: Any) -> int:
        raise BrokenPipeError

    assert quiet(worker)(None, True) == 1
    keep_memory()  # and where the C library is another one nothing happens
