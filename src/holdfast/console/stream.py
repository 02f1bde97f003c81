"""The stream of changes that open pages listen to: server-sent events.

Owns the listeners. Each has room for one message: a page that is slow misses none of the news, only how often there was
some. A listener that cannot get in, as there are too many, is told to come back.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

MOST_LISTENERS = 100
BEAT_S = 10.0
"""A stream that nothing is sent on is not known to be closed."""
RETRY = "retry: 1000\n\n"


def event(name: str, data: Any) -> str:
    """One event; JSON has no line breaks."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


class NewsStream:
    """On the loop of the pages. ``counted`` hears how many more listeners there are."""

    def __init__(self, counted: Callable[[int], None]) -> None:
        self._counted = counted
        self._waiting: set[asyncio.Event] = set()
        self._last = ""
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MOST_LISTENERS

    def tell(self, message: str) -> None:
        """Everybody gets the newest message."""
        self._last = message
        for each in self._waiting:
            each.set()

    def close(self) -> None:
        """All streams end."""
        self._closed = True
        for each in self._waiting:
            each.set()

    async def listen(self) -> AsyncIterator[str]:
        """What one page is sent, from now on."""
        news = asyncio.Event()
        self._waiting.add(news)
        self._counted(1)
        try:
            yield RETRY + self._last
            while not self._closed:
                try:
                    async with asyncio.timeout(BEAT_S):
                        await news.wait()
                except TimeoutError:
                    yield ": beat\n\n"
                    continue
                news.clear()
                yield self._last
        finally:
            self._waiting.discard(news)
            self._counted(-1)
