"""A handler that waits for a callback, and is gone when it comes."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.broker.handlers.base import answered


def test_who_is_gone_when_the_answer_comes_disturbs_nobody() -> None:
    """Seed 2368 of the simulator: a broker ended while a disk made a log, and whoever else waited for that log with
    the handler was never told."""

    async def main() -> None:
        replies: list[Callable[[int], None]] = []
        tasks = [asyncio.ensure_future(answered(replies.append)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        for reply in replies:
            reply(7)
        assert await tasks[1] == 7
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]

    asyncio.run(main())
