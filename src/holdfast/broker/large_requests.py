"""Requests that name many things: decoded and encoded beside the loop, few at a time.

What a request costs goes by how many things it names, 10 to 20 us for each in decoding, judging and answering, and not
by its bytes: a group's name can be one. Done on the loop, 100,000 names that nobody may know would hold up all clients
for seconds, and the broker's own heartbeats (docs/decisions/0062-limits-against-strangers.md). So one that names more
than ``AT_ONCE`` is decoded on a thread of its own, its handler gives way between (``paced``), and its answer is encoded
on that thread. ``PLACES`` are under way together, as each of their names takes a kilobyte, and the others wait in the
order in which they came. One that names more than ``MOST`` is refused before it is decoded.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from holdfast.protocol.framing import check_request, decode_checked

T = TypeVar("T")

AT_ONCE: Final = 500
"""Things named, at most 10 ms."""
MOST: Final = 100_000
PLACES: Final = 4
SLICE_S: Final = 0.002
"""Of the loop, before others have their turn."""
TOGETHER: Final = 100
"""Of many that wait for something, those that wait together."""
SWITCH_S: Final = 0.0005
"""The loop waits so long for the thread each time that it comes back from a call of the system; 5 ms otherwise."""


class Spending(Protocol):
    """What a request uses of quotas (quotas.py)."""

    def spent(self, seconds: float) -> None: ...


class LargeRequests:
    """Those of one broker. Owns the thread, which is made when the first one comes."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(PLACES)
        self._thread: ThreadPoolExecutor | None = None

    async def beside(self, work: Callable[[], T], meter: Spending | None = None) -> T:
        """What ``work`` returns, done while the loop goes on. It must share nothing with the loop. ``meter``: whose
        quota the processor's time counts for."""
        if self._thread is None:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-requests")
        took_s = 0.0

        def timed() -> T:
            nonlocal took_s
            began_s = time.thread_time()
            try:
                return work()
            finally:
                took_s = time.thread_time() - began_s

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, timed)
        finally:
            if meter is not None:
                meter.spent(took_s)

    async def decoded(self, api_key: int, version: int, body: bytes) -> tuple[Any, bool]:
        """A request, and whether it is a large one. InvalidRequestError."""
        if check_request(api_key, version, body, MOST) <= AT_ONCE:
            return decode_checked(api_key, version, body), False
        return await self.beside(partial(decode_checked, api_key, version, body)), True

    def close(self) -> None:
        """What is under way is not waited for."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


async def paced(things: Iterable[T]) -> AsyncIterator[T]:
    """The same things, with turns of the loop between when they take long. What is known of the cluster may change at
    such a turn."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + SLICE_S
    for each in things:
        yield each
        if loop.time() >= until_s:
            await asyncio.sleep(0)
            until_s = loop.time() + SLICE_S


async def gathered(waiting: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """As ``asyncio.gather``, so many at a time."""
    left, found = iter(waiting), list[T]()
    while some := list(islice(left, TOGETHER)):
        found += await asyncio.gather(*some)
    return found
