"""Being the controller, again and again: claim, reign until the claim is lost, give it back, claim again.

Owns the candidate, the thread on which it waits, and the thread of the metadata store. What a reign does is
controller_loop.py.

After an error the store is asked whether another claim may work (``MetadataStore.judge``); where none can, the process
ends (H-23). Where what is behind the store hangs, the reign waits, and so does a claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.broker.controller_loop import ControllerLoop, ReignHost
from holdfast.metadata.store import Fatal
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.platform import WorkThread
    from holdfast.metadata.store import Asked, Candidate, Claim, ControllerLocation, Loaded, MetadataStore
    from holdfast.model.config import BrokerConfig
    from holdfast.model.types import BrokerEpoch, BrokerId

log = logging.getLogger(__name__)

CLAIM_RETRY_S = 1.0
RESIGN_S = 2.0
SOON_S = 0.05
"""Between two looks at a copy that is being filled."""


class ReignsHost(ReignHost, Protocol):
    """The broker that claims and reigns."""

    config: BrokerConfig
    controller: ControllerLoop | None
    stopping: asyncio.Event

    def thread(self, name: str) -> WorkThread: ...

    def fatal(self, reason: str) -> None: ...


async def in_thread(thread: WorkThread, work: Callable[[], Any]) -> Any:
    """The result of ``work``, done there. Raises its HoldfastError."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any, error: HoldfastError | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(result)

    thread.submit(work, done)
    return await future


def _overlook(late: asyncio.Future[Any]) -> None:
    """Whatever came of it: the reign for which it was begun is over."""
    if not late.cancelled():
        late.exception()


class ReignRelay:
    """What the store tells about one claim (ReignNews), brought to the loop. What comes before the reign has begun
    waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reign: ControllerLoop | None = None
        self._early: list[Callable[[ControllerLoop], None]] = []

    def lost(self, reason: str) -> None:
        self._post(lambda reign: reign.lost(reason))

    def broker_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        self._post(lambda reign: reign.broker_gone(broker_id, broker_epoch))

    def log_dir_failed(self, broker_id: BrokerId) -> None:
        self._post(lambda reign: reign.log_dir_failed(broker_id))

    def asked(self, asked: Asked, decided: Callable[[], None]) -> None:
        self._post(lambda reign: reign.asked(asked, decided))

    def _post(self, what: Callable[[ControllerLoop], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the process with it
            self._loop.call_soon_threadsafe(self._hear, what)

    def _hear(self, what: Callable[[ControllerLoop], None]) -> None:
        if self._reign is None:
            self._early.append(what)
        else:
            what(self._reign)

    def begin(self, reign: ControllerLoop) -> None:
        """The reign hears what was told so far, and what comes."""
        self._reign = reign
        for what in self._early:
            what(reign)
        self._early.clear()


class Reigns:
    """All reigns of one process. ``broker.controller`` is the present one, or None."""

    def __init__(self, broker: ReignsHost, store: MetadataStore) -> None:
        self._broker = broker
        self._store = store
        self._thread = broker.thread("metadata")
        self._looking = broker.thread("metadata-look")

    async def cluster_id(self) -> str:
        """The cluster's id, made if nobody has made it yet."""
        found: str = await in_thread(self._thread, self._store.cluster_id)
        return found

    async def locate(self) -> ControllerLocation | None:
        """Where the controller is. Looked up in a thread of its own: no directory of it may hold up the loop."""
        found: ControllerLocation | None = await in_thread(self._looking, self._store.active)
        return found

    def refused(self, location: ControllerLocation) -> None:
        """Nothing listens where the controller was: what it holds in the store need not be waited for."""
        self._store.controller_died(location)

    async def run(self, candidate: Candidate) -> None:
        """Until the broker stops. The claim waits in a thread of its own.

        Whatever goes wrong, the claim is given back before the next one: a lock that this process holds would keep
        the whole cluster, and itself, without a controller.
        """
        broker = self._broker
        waiting = broker.thread("claim")
        while not broker.stopping.is_set():
            failed = True
            news = ReignRelay()
            try:
                claim: Claim = await in_thread(waiting, partial(self._store.claim, candidate, news))
                await self._reign(claim, news)
                failed = False
            except HoldfastError as e:
                log.warning("not the controller: %s", e)
                judgement = self._store.judge()
                if isinstance(judgement, Fatal):
                    broker.fatal(judgement.reason)
            except Exception:
                log.exception("the reign as controller ended by an unexpected error")
            await self._resign()
            if failed:
                await asyncio.sleep(CLAIM_RETRY_S)

    def _load(self, claim: Claim) -> Loaded:
        """With the image, so that the loop need not stand still for it."""
        loaded = self._store.load(claim)
        return replace(loaded, image=loaded.applied(self._store.cluster_id()))

    async def _reign(self, claim: Claim, news: ReignRelay) -> None:
        broker = self._broker
        loaded: Loaded = await in_thread(self._thread, partial(self._load, claim))
        loop = ControllerLoop(broker, self._store, self._thread, claim, loaded)
        broker.controller = loop
        try:
            loop.start()
            news.begin(loop)
            await self._tend_until_end(loop)
        finally:
            loop.close()
            broker.controller = None

    async def _tend_until_end(self, loop: ControllerLoop) -> None:
        """Have the store look after its copies while the reign lasts; it ends when the store says that it is over."""
        interval_s = self._broker.config.int("metadata.log.dir.probe.interval.ms") / 1000
        soon = False
        while not loop.ended.is_set():
            try:
                async with asyncio.timeout(min(interval_s, SOON_S) if soon else interval_s):
                    await loop.ended.wait()
            except TimeoutError:
                tending = asyncio.ensure_future(in_thread(self._thread, lambda: self._store.tend(loop.epoch)))
                ended = asyncio.ensure_future(loop.ended.wait())
                await asyncio.wait([tending, ended], return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
                if tending.done():
                    soon = bool(tending.result())
                else:
                    tending.add_done_callback(_overlook)

    async def _resign(self) -> None:
        try:
            await in_thread(self._thread, self._store.resign)
        except HoldfastError as e:
            log.warning("the claim cannot be given back: %s", e)

    async def close(self) -> None:
        """Neither controller nor candidate any more."""
        try:
            async with asyncio.timeout(RESIGN_S):
                # Not where commits wait for a disk: this ends their waiting.
                await in_thread(self._broker.thread("metadata-close"), self._store.close)
        except (TimeoutError, HoldfastError) as e:
            log.warning("the claim was not given back: %s", str(e) or f"no answer within {RESIGN_S:.0f} s")
