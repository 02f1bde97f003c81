"""What a test waits for that runs beside the code under test in one loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 20.0


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until it is so; by a clock that the test does not move."""
    limit_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < limit_s, "it does not become so"
        await asyncio.sleep(0)


async def read_to_end(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """What came until the other side closed the connection, however it did. Dropping the writer closes it here."""
    try:
        return await connection[0].read()
    except ConnectionError:
        return b""
