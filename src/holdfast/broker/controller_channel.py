"""The active controller's line to one broker: LeaderAndIsr, StopReplica and UpdateMetadata, in order.

Owns one connection and a queue of requests that describe desired state. Requests are idempotent and fenced by
epochs, so a lost connection means: connect again and send the full state. Orders are numbered as they are queued, and a
full state stands for all that came before it: so it is known what has been answered while more is queued. A connection
that closes and a port that refuses is a dead broker and reported at once; silence is left to the session timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.broker.listening import nobody_is_there
from holdfast.client.errors import BrokerUnreachable
from holdfast.model.errors import HoldfastError
from holdfast.model.fates import LogEnd
from holdfast.model.types import LeaderEpoch, TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import decode_response
from holdfast.protocol.orders_codec import encode_order

if TYPE_CHECKING:
    from holdfast.client.connection import BrokerConnection

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 30.0
RETRY_S = 0.05
MAX_RETRY_S = 1.0
"""A broker that is back registers and gets a new channel; one that was only cut off is found again by this."""
_API_VERSIONS = int(ApiKey.API_VERSIONS)
PATIENCE_S = 0.1
"""An answer that takes longer than this is not waited for before the next request goes out."""
MAX_UNANSWERED = 32
MAX_QUEUED = 1000
"""Requests that may wait for one broker; beyond it they are replaced by one full state."""


def told_ends(request: Any, response: Any) -> Iterator[tuple[TopicPartition, LeaderEpoch, LogEnd]]:
    """How far logs go, where the answer to LeaderAndIsr says so."""
    ends = {
        (topic.topic_id, p.partition_index): p
        for topic in response.topics
        for p in topic.partition_errors
        if p.end_offset >= 0
    }
    for topic in request.topic_states if ends else ():
        for state in topic.partition_states:
            found = ends.get((topic.topic_id, state.partition_index))
            if found is not None:
                epoch = None if found.last_epoch < 0 else int(found.last_epoch)
                at = TopicPartition(topic.topic_name, int(state.partition_index))
                yield at, int(state.leader_epoch), LogEnd(epoch, int(found.end_offset))


class ControllerChannel:
    """See the module's docstring. ``full_state`` builds the requests of the full state when it is called;
    ``connection`` makes one to this broker by client id and what is called when it ends."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        *,
        connection: Callable[[str, Callable[[Exception | None], None]], BrokerConnection],
        full_state: Callable[[], list[Any]],
        on_answer: Callable[[int, Any, Any], None],
        on_refused: Callable[[int, int], None],
        on_lost: Callable[[int], None],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._make = connection
        self._full_state = full_state
        self._on_answer = on_answer
        self._on_refused = on_refused
        self._on_lost = on_lost
        self._queue: deque[tuple[int, Any]] = deque()
        """With their numbers."""
        self._asked = 1
        """The number of the newest order: the first is the full state."""
        self._through = 0
        """All up to this one are answered, or in a full state that is."""
        self._needs_full_state = True
        self._work = asyncio.Event()
        self._work.set()
        self._lost = asyncio.Event()
        self._connection: BrokerConnection | None = None
        self._waiters: deque[tuple[int, asyncio.Future[bool]]] = deque()
        self._retry_s = 0.0
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"channel-{broker_id}")

    def send(self, requests: list[Any]) -> None:
        """Queue requests; the order is kept."""
        first = self._asked + 1
        self._asked += len(requests)
        if self._needs_full_state:
            return  # what is being built then includes these
        if len(self._queue) + len(requests) > MAX_QUEUED:
            log.warning("broker %d does not keep up with the controller: it will get the full state", self.broker_id)
            self._queue.clear()
            self._needs_full_state = True
        else:
            self._queue.extend(enumerate(requests, first))
        self._work.set()

    @property
    def is_flushed(self) -> bool:
        """Everything so far is answered."""
        return self._through >= self._asked

    async def flushed(self) -> bool:
        """Return when everything queued so far is answered, whatever is queued meanwhile. False: the channel has
        ended, or nobody is to wait for it."""
        if self._task.done() or self.is_flushed:
            return self.is_flushed
        while self._waiters and self._waiters[0][1].done():
            self._waiters.popleft()  # of somebody who has waited long enough
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._asked, waiter))
        return await waiter

    def close(self) -> None:
        """End the channel; queued requests are dropped."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close()
        self.release()

    def release(self) -> None:
        """Nobody is to wait for this broker any more."""
        while self._waiters:
            _settle(self._waiters.popleft()[1], False)

    def _is_through(self, number: int) -> None:
        """All orders up to this one are answered."""
        self._through = max(self._through, number)
        while self._waiters and self._waiters[0][0] <= self._through:
            _settle(self._waiters.popleft()[1], True)

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
                await self._pump()
            except HoldfastError as e:
                log.log(logging.INFO if self._retry_s < MAX_RETRY_S else logging.DEBUG,
                        "channel to broker %d: %s", self.broker_id, e)  # fmt: skip
            except Exception:
                log.exception("channel to broker %d: unexpected error", self.broker_id)
                self._retry_s = MAX_RETRY_S
            finally:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
            # A connection that was good is tried again at once: whether its broker is dead is news.
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(MAX_RETRY_S, max(RETRY_S, self._retry_s * 2))

    async def _connect(self) -> None:
        self._lost.clear()
        self._needs_full_state = True
        self._asked += 1
        connection = self._make(f"controller-to-broker-{self.broker_id}", self._on_close)
        try:
            await connection.open(CONNECT_TIMEOUT_S)
        except BrokerUnreachable as e:
            if e.refused:
                self._on_refused(self.broker_id, self.broker_epoch)
            raise
        self._connection = connection
        # The port of a broker that was killed takes connections a moment longer (broker/closer_process.py): no full
        # state is built for it before there is a sign of life.
        answer = await connection.request_raw(_API_VERSIONS, 0, b"", timeout_s=REQUEST_TIMEOUT_S)
        if nobody_is_there(answer):
            self._on_refused(self.broker_id, self.broker_epoch)
            raise BrokerUnreachable(connection.address, refused=True, reason="its broker was killed")

    def _on_close(self, error: Exception | None) -> None:
        if error is not None:
            self._on_lost(self.broker_id)
        self._lost.set()
        self._work.set()

    async def _pump(self) -> None:
        """Send what is queued, one after the other. One whose answer takes long does not hold up the next: a replica
        that is made on a disk that hangs must not keep the broker from hearing that it leads others no more."""
        connection = self._connection
        assert connection is not None
        loop = asyncio.get_running_loop()
        unanswered: deque[tuple[int, Any, asyncio.Task[Any]]] = deque()
        next_s = 0.0
        try:
            while not self._lost.is_set():
                if self._needs_full_state:
                    self._queue.clear()
                    self._queue.extend((self._through + 1, request) for request in self._full_state())
                    self._needs_full_state = False
                may_send = bool(self._queue) and len(unanswered) < MAX_UNANSWERED
                if may_send and (not unanswered or loop.time() >= next_s):
                    number, request = self._queue.popleft()
                    unanswered.append((number, request, loop.create_task(self._ask(connection, request))))
                    next_s = loop.time() + PATIENCE_S
                    continue
                if unanswered:
                    await self._answer_or_work(unanswered[0][2], next_s - loop.time() if may_send else None)
                    while unanswered and unanswered[0][2].done():
                        _, request, task = unanswered.popleft()
                        response = task.result()
                        self._retry_s = 0.0
                        self._on_answer(self.broker_id, request, response)
                    if not self._needs_full_state and (unanswered or self._queue):
                        self._is_through((unanswered or self._queue)[0][0] - 1)
                else:
                    self._is_through(self._asked)
                    self._work.clear()
                    await self._work.wait()
        finally:
            for _, _, task in unanswered:
                task.add_done_callback(_forget)
                task.cancel()

    async def _answer_or_work(self, answer: asyncio.Task[Any], timeout_s: float | None) -> None:
        """Until the answer is there, the time is up, or there is something new to send."""
        if timeout_s is not None:
            await asyncio.wait((answer,), timeout=max(0.0, timeout_s))
            return
        self._work.clear()
        work = asyncio.get_running_loop().create_task(self._work.wait())
        try:
            await asyncio.wait((answer, work), return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()

    @staticmethod
    async def _ask(connection: BrokerConnection, request: Any) -> Any:
        api_key, version = request.__api_key__, request.__version__
        body = encode_order(request)
        return decode_response(
            api_key, version, await connection.request_raw(api_key, version, body, timeout_s=REQUEST_TIMEOUT_S)
        )


def _forget(task: asyncio.Task[Any]) -> None:
    """Whatever came of it: the connection is given up."""
    if not task.cancelled():
        task.exception()


def _settle(waiter: asyncio.Future[bool], is_answered: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_answered)
