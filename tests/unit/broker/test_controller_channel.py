"""The line to one broker: full state after every connection and every overflow, requests in order between."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.controller_channel import MAX_QUEUED, ControllerChannel
from holdfast.broker.entity import build
from holdfast.client.connection import BrokerConnection
from holdfast.protocol.apis import ApiKey, request_type
from tests.unit.broker.conftest import DEADLINE_S, Listener, until


def update(controller_epoch: int) -> Any:
    kind = request_type(ApiKey.UPDATE_METADATA, 8)
    return build(kind, {"controller_epoch": controller_epoch, "cluster_id": "c"})


FULL = 77


class Line:
    """A channel to a listener."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.refused: list[tuple[int, int]] = []
        self.lost: list[int] = []
        self.answered: list[int] = []
        self.channel = ControllerChannel(
            2, 5, connection=self.connection,
            full_state=lambda: [update(FULL)], on_answer=lambda *of: self.answered.append(of[1].controller_epoch),
            on_refused=lambda *who: self.refused.append(who), on_lost=self.lost.append,
        )  # fmt: skip

    def connection(self, client_id: str, on_close: Callable[[Exception | None], None]) -> BrokerConnection:
        return BrokerConnection("127.0.0.1", self.listener.port, client_id, on_close=on_close)

    @property
    def received(self) -> list[int]:
        return [request.controller_epoch for request in self.listener.requests]


def test_a_broker_that_does_not_keep_up_gets_the_full_state_once_it_does() -> None:
    async def check() -> None:
        line = Line()
        await line.channel.flushed()
        line.listener.reply = lambda request: None
        line.channel.send([update(1)])
        await until(lambda: line.received == [FULL, 1])
        for i in range(MAX_QUEUED + 1):
            line.channel.send([update(2 + i)])
        line.listener.reply = lambda request: {}
        line.listener.answer_all()
        await until(lambda: line.received == [FULL, 1, FULL])
        line.channel.send([update(9)])
        await until(lambda: line.received == [FULL, 1, FULL, 9])
        line.channel.close()
        line.listener.close()

    asyncio.run(check())


def test_a_lost_connection_is_made_again_with_the_full_state() -> None:
    async def check() -> None:
        line = Line()
        await line.channel.flushed()
        line.channel.send([update(1)])
        await line.channel.flushed()
        line.listener.hang_up()
        await until(lambda: line.received == [FULL, 1, FULL])
        assert line.lost == [2]
        assert line.refused == []
        line.channel.close()
        line.listener.close()

    asyncio.run(check())


def test_D2_who_waits_for_the_orders_so_far_does_not_wait_for_those_after_them() -> None:
    """Beside a disk that hangs an answer takes its time, and topics come and go: there is always an order under way."""

    async def check() -> None:
        line = Line()
        await line.channel.flushed()
        line.listener.reply = lambda request: None
        line.channel.send([update(1), update(2)])
        waiting = asyncio.ensure_future(line.channel.flushed())
        await asyncio.sleep(0)
        line.channel.send([update(3)])
        later = asyncio.ensure_future(line.channel.flushed())
        await until(lambda: len(line.listener.unanswered) == 3)
        line.listener.answer(line.listener.unanswered.pop(0), {})
        await until(lambda: line.answered == [FULL, 1])
        await asyncio.sleep(0)
        assert not waiting.done()
        line.listener.answer(line.listener.unanswered.pop(0), {})
        await until(lambda: line.answered == [FULL, 1, 2])
        await asyncio.sleep(0)
        assert waiting.done()
        assert waiting.result() is True
        assert not line.channel.is_flushed
        assert not later.done()
        line.listener.answer_all()
        assert await asyncio.wait_for(later, DEADLINE_S) is True
        assert line.channel.is_flushed
        line.channel.close()
        line.listener.close()

    asyncio.run(check())


@pytest.mark.parametrize("how", ["connection lost", "too many"])
def test_D2_orders_that_were_dropped_count_as_answered_with_the_full_state(how: str) -> None:
    async def check() -> None:
        line = Line()
        await line.channel.flushed()
        line.listener.reply = lambda request: None
        line.channel.send([update(1), update(2)])
        waiting = asyncio.ensure_future(line.channel.flushed())
        await until(lambda: line.received == [FULL, 1, 2])
        if how == "connection lost":
            line.listener.unanswered.clear()
            line.listener.hang_up()
        else:
            line.channel.send([update(3)] * (MAX_QUEUED + 1))
        dropped = asyncio.ensure_future(line.channel.flushed())
        await until(lambda: line.received == [FULL, 1, 2, FULL])
        assert not waiting.done()
        assert not dropped.done()
        line.channel.send([update(4)])
        await until(lambda: line.received == [FULL, 1, 2, FULL, 4])
        while line.listener.unanswered[0] is not line.listener.unanswered[-1]:  # all but the newest
            line.listener.answer(line.listener.unanswered.pop(0), {})
        assert await asyncio.wait_for(asyncio.gather(waiting, dropped), DEADLINE_S) == [True, True]
        assert not line.channel.is_flushed
        ended = asyncio.ensure_future(line.channel.flushed())
        await asyncio.sleep(0)
        line.channel.close()
        assert await asyncio.wait_for(ended, DEADLINE_S) is False
        line.listener.close()

    asyncio.run(check())


def test_a_dead_broker_is_reported_and_asked_for_ever_less_often() -> None:
    async def check() -> None:
        line = Line()
        await line.channel.flushed()
        line.listener.close()
        started = asyncio.get_running_loop().time()
        await until(lambda: len(line.refused) == 4)
        # At once, then after 50, 100 and 200 ms; never more often than that.
        assert asyncio.get_running_loop().time() - started >= 0.3
        assert set(line.refused) == {(2, 5)}
        waiting = asyncio.ensure_future(line.channel.flushed())
        await asyncio.sleep(0)
        line.channel.release()
        async with asyncio.timeout(DEADLINE_S):
            await waiting
        line.channel.close()

    asyncio.run(check())


def test_a_channel_survives_a_full_state_that_cannot_be_built() -> None:
    async def check() -> None:
        line = Line()
        await line.channel.flushed()
        line.channel._full_state = lambda: [1 / 0]
        line.listener.hang_up()
        await until(lambda: line.channel._retry_s)
        assert not line.channel._task.done()
        line.channel._full_state = lambda: [update(FULL)]
        line.channel._retry_s = 0.0
        await until(lambda: line.received == [FULL, FULL])
        line.channel.close()
        line.listener.close()

    asyncio.run(check())
