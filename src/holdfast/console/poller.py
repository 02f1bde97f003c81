"""The one who looks at the cluster for all pages: a loop on a thread of its own, so that pages need not wait for it.

Owns the last snapshot, the last changes and the rates. Never raises for a broker: a snapshot that could not be renewed
stays, and says since when and why. ``seen`` is called on that thread after every look.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from holdfast.client.admin import AdminClient
from holdfast.client.views import ClusterView
from holdfast.console.changes import Change, changes
from holdfast.console.looking import Turns, look, look_on
from holdfast.console.pacing import is_full, pause_s
from holdfast.console.prepared import PreparedRows
from holdfast.console.rates import RateHistory
from holdfast.console.snapshot import Snapshot
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TimestampMs

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 1.0
MOST_CHANGES = 200
LOOKED_AT_S = 10.0
"""A page that was fetched counts as open for so long: one without JavaScript fetches itself again."""

NOT_ASKED = "the cluster was not asked yet"
NOBODY = ClusterView(cluster_id=None, controller_id=None, brokers={}, topics={})


def now_ms() -> TimestampMs:
    """The clock of this machine."""
    return time.time_ns() // 1_000_000


class ClusterPoller:
    """``start`` and ``close`` from any thread. ``snapshot``, ``changes`` and ``rates`` may be read from any."""

    def __init__(self, bootstrap: Sequence[str], seen: Callable[[Snapshot, bool], None]) -> None:
        self._bootstrap = list(bootstrap)
        self._seen = seen
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-console-poller", daemon=True)
        self._wake: asyncio.Event | None = None
        self._closed = False
        self._streams = 0
        self._fetched_s = -LOOKED_AT_S
        self._turns = Turns()
        self._full_s: float | None = None
        self._full_took_s = 0.0
        self.snapshot = Snapshot(number=0, taken_ms=now_ms(), view=NOBODY, alive=frozenset(), trouble=NOT_ASKED)
        self.prepared = PreparedRows(self.snapshot)
        self.changes: tuple[Change, ...] = ()
        self.rates = RateHistory()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self.wake()
        self._thread.join(REQUEST_TIMEOUT_S)

    # -- who looks ---------------------------------------------------------------------------------------------

    @property
    def is_looked_at(self) -> bool:
        return self._streams > 0 or time.monotonic() - self._fetched_s < LOOKED_AT_S

    def fetched(self) -> None:
        """A page was asked for."""
        idle = not self.is_looked_at
        self._fetched_s = time.monotonic()
        if idle:
            self.wake()

    def stream(self, by: int) -> None:
        """So many more streams of changes are open."""
        idle = not self.is_looked_at
        self._streams += by
        if idle:
            self.wake()

    def wake(self) -> None:
        """Look now."""
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._set_wake)

    def _set_wake(self) -> None:
        if self._wake is not None:
            self._wake.set()

    # -- looking -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._look_on())
        except Exception:
            log.exception("the poller has ended by an error")
        finally:
            self._loop.close()

    async def _look_on(self) -> None:
        self._wake = asyncio.Event()
        client, failures = self._client(0), 0
        looking_on: asyncio.Task[None] | None = None
        while not self._closed:
            self._wake.clear()
            begun_s, cpu_s = time.monotonic(), time.thread_time()
            if await self._look(client):
                failures = 0
                if (looking_on is None or looking_on.done()) and self._is_full(begun_s):
                    looking_on = asyncio.create_task(self._look_on_besides(client))
            else:
                failures += 1
                await _ended(looking_on)
                client.close()
                client = self._client(failures)
            wait_s = pause_s(
                looked_at=self.is_looked_at,
                took_s=time.monotonic() - begun_s,
                cpu_s=time.thread_time() - cpu_s,
                failures=failures,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        await _ended(looking_on)
        client.close()

    def _is_full(self, begun_s: float) -> bool:
        since_s = None if self._full_s is None else begun_s - self._full_s
        return is_full(looked_at=self.is_looked_at, since_full_s=since_s, full_took_s=self._full_took_s)

    def _client(self, attempt: int) -> AdminClient:
        """Asks another broker first each time: the one that was asked may hang."""
        known = [node.address for node in self.snapshot.view.brokers.values()]
        servers = list(dict.fromkeys((*known, *self._bootstrap)))
        at = attempt % len(servers)
        return AdminClient(
            [*servers[at:], *servers[:at]],
            client_id="holdfast-console",
            timeout_s=REQUEST_TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            retries=1,
        )

    async def _look(self, client: AdminClient) -> bool:
        """Whether the cluster told anything. The first look is a full one: pages begin with all there is."""
        before = self.snapshot if self.snapshot.number else None
        try:
            async with asyncio.timeout(4 * REQUEST_TIMEOUT_S):
                after = await look(client, before, self._turns, now_ms())
                if before is None:
                    begun_s = time.monotonic()
                    found = await look_on(client, after, self._turns, now_ms())
                    self._full_s, self._full_took_s = begun_s, time.monotonic() - begun_s
                    after = found.within(after)
                    self._count(after, found.asked_ms)
                else:  # what was found besides is in the last one
                    before = self.snapshot
                    after = replace(
                        after,
                        ends=before.ends,
                        groups=before.groups,
                        positions=before.positions,
                        min_isr=before.min_isr,
                    )
        except (HoldfastError, OSError, TimeoutError) as e:
            return self._failed(str(e) or type(e).__name__)
        except Exception:  # a mistake of ours: the pages that there are go on, and say that they are old
            log.exception("a look at the cluster has failed")
            return self._failed("the console has made a mistake: see its log")
        self._found(before, after)
        return True

    async def _look_on_besides(self, client: AdminClient) -> None:
        """What a look leaves out, while the next ones go on: whoever does not answer holds up nobody."""
        self._full_s = begun_s = time.monotonic()
        try:
            async with asyncio.timeout(4 * REQUEST_TIMEOUT_S):
                found = await look_on(client, self.snapshot, self._turns, now_ms())
        except (HoldfastError, OSError, TimeoutError) as e:
            log.warning("ends of logs and groups are as they were: %s", str(e) or type(e).__name__)
            return
        except Exception:
            log.exception("a look at ends of logs and groups has failed")
            return
        self._full_took_s = time.monotonic() - begun_s
        before = self.snapshot
        after = found.within(before)
        self._count(after, found.asked_ms)
        self._found(before, after)

    def _found(self, before: Snapshot | None, after: Snapshot) -> None:
        """It counts from now on."""
        after = replace(after, number=1 if before is None else before.number + 1)
        self.changes = (*self.changes, *changes(before, after))[-MOST_CHANGES:]
        different = before is None or not before.says_the_same(after)
        self._show(after)
        self._seen(after, different)

    def _failed(self, why: str) -> bool:
        self._show(replace(self.snapshot, trouble=why))
        self._seen(self.snapshot, True)
        return False

    def _show(self, snapshot: Snapshot) -> None:
        """From now on pages are made of this one; what they need of it is there already, if anybody looks."""
        prepared = PreparedRows(snapshot)
        if self.is_looked_at:
            prepared.prepare()
        self.prepared, self.snapshot = prepared, snapshot

    def _count(self, snapshot: Snapshot, at_ms: TimestampMs) -> None:
        """Counters of the cluster, its topics and groups, as they were at ``at_ms``."""
        counters: dict[str, int] = {}
        for tp, end in snapshot.ends.items():
            name = topic_series(tp.topic)
            counters[name] = counters.get(name, 0) + end
        counters[ALL_RECORDS] = sum(counters.values())
        for group, at in snapshot.positions.items():
            counters[group_series(group)] = sum(each.offset for each in at.offsets.values())
        self.rates.count(at_ms, counters)


async def _ended(task: asyncio.Task[None] | None) -> None:
    """It asks nothing any more."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


ALL_RECORDS = "records"


def topic_series(topic: str) -> str:
    """Its series: records written to it."""
    return f"topic:{topic}"


def group_series(group: str) -> str:
    """Its series: records that it has committed."""
    return f"group:{group}"
