"""A client that waits for a lock of its own, told from one that waits for work."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from holdfast.testing import wait_for
from tests.chaos.client_locks import started_by, waiting_for_ever

NAME = "lock-test"
_SET_NAME = 15
_libc = ctypes.CDLL(None)


def named(wait: Callable[[], object]) -> threading.Thread:
    """A thread with that name in the kernel that waits so."""

    def run() -> None:
        _libc.prctl(_SET_NAME, NAME.encode(), 0, 0, 0)
        wait()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def lock() -> threading.Lock:
    """Held by nobody that would ever give it back, until the test does."""
    taken = threading.Lock()
    taken.acquire()
    return taken


def test_a_thread_that_waits_for_a_lock_without_a_limit_is_found(lock: threading.Lock) -> None:
    thread = named(lock.acquire)
    wait_for(lambda: waiting_for_ever(NAME, apart_s=0.01), "the thread to be found", timeout_s=10)
    assert waiting_for_ever(NAME, apart_s=0.01) == [thread.native_id]
    lock.release()
    thread.join(10)
    assert waiting_for_ever(NAME, apart_s=0.01) == []


def test_one_that_waits_for_work_is_not(lock: threading.Lock) -> None:
    over = threading.Event()
    thread = named(lambda: over.wait(60))
    looked = [waiting_for_ever(NAME, apart_s=0.05) for _ in range(5)]
    assert thread.is_alive() and looked == [[]] * 5
    over.set()
    thread.join(10)


def test_one_of_another_name_is_not(lock: threading.Lock) -> None:
    thread = threading.Thread(target=lock.acquire, daemon=True)
    thread.start()
    assert waiting_for_ever(NAME, apart_s=0.05) == []
    lock.release()
    thread.join(10)


def test_only_those_that_are_asked_for_are_looked_at() -> None:
    first, second = threading.Lock(), threading.Lock()
    with first, second:
        threads = [started_by(lambda held=held: running(named(held.acquire)), NAME) for held in (first, second)]  # type: ignore[misc]
        assert [own for _, own in threads] == [{thread.native_id} for thread, _ in threads], "each with its own"
        wait_for(lambda: len(waiting_for_ever(NAME, apart_s=0.01)) == 2, "both to wait", timeout_s=10)
        thread, own = threads[1]
        assert waiting_for_ever(NAME, among=own, apart_s=0.01) == [thread.native_id]
        assert waiting_for_ever(NAME, among=(), apart_s=0.01) == []
    for thread, _ in threads:
        thread.join(10)


def running(thread: threading.Thread) -> threading.Thread:
    """As soon as it has its name, as that of a client has when the client is made."""
    path = Path(f"/proc/self/task/{thread.native_id}/comm")
    wait_for(lambda: path.read_text().rstrip() == NAME, "its name", timeout_s=10)
    return thread


def test_a_client_s_own_thread_is_known_by_its_name() -> None:
    """The name is librdkafka's; with another one nothing would ever be found."""
    client, own = started_by(
        lambda: confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "unused"})
    )
    assert len(own) == 1
    assert waiting_for_ever(among=own, apart_s=0.01) == []
    client.close()
