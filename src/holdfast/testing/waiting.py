"""Waiting for a condition with a deadline: what a test does instead of sleeping."""

import select
import time
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, *, timeout_s: float = 30.0, interval_s: float = 0.02) -> T:
    """The condition's first true value; TimeoutError names ``what`` when none came in time.

    A condition that raises ends the wait at once, except for ConnectionError and TimeoutError: a broker
    that is just going or coming is a reason to ask again.
    """
    deadline = time.monotonic() + timeout_s
    trouble: Exception | None = None
    while True:
        try:
            value = condition()
            if value:
                return value
            trouble = None
        except (ConnectionError, TimeoutError) as error:
            trouble = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}") from trouble
        time.sleep(interval_s)


def has_news(pipe: IO[bytes], timeout_s: float) -> bool:
    """Whether there is something to read, or the end, within the time. Unlike select(2), also for the 1,024th file."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
