"""The one who looks at the cluster for all pages: a loop on a thread of its own, so that pages need not wait for it.

Owns the last snapshot, the last changes, the rates, lag in seconds, and the page of metrics that was asked for last.
Never raises for a broker: a snapshot that could not be renewed stays, and says since when and why. ``seen`` is called
on that thread after every look.
"""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from holdfast import __version__
from holdfast.client.admin import AdminClient
from holdfast.client.errors import AuthenticationError
from holdfast.client.security import SecuritySettings
from holdfast.client.views import ClusterMetadata
from holdfast.console.changes import Change, changes
from holdfast.console.lag_times import LagTimes
from holdfast.console.looking import Turns, look, look_on
from holdfast.console.metrics_page import MetricsAbout, packed_page
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
TIDY_EVERY_S = 600.0
"""A search for unreachable cycles over all of a large snapshot holds pages up: by itself it is not done (server.py)."""
LOOKED_AT_S = 10.0
"""A page that was fetched counts as open for so long: one without JavaScript fetches itself again."""

NOT_ASKED = "the cluster was not asked yet"
OUR_MISTAKE = "the console has made a mistake: see its log"
NOBODY = ClusterMetadata(cluster_id=None, controller_id=None, brokers={}, topics={})


def now_ms() -> TimestampMs:
    """The clock of this machine."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """One that nobody sets."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ScrapedPage:
    """The metrics, compressed, as they were at ``made_s`` of the clock that nobody sets."""

    packed: bytes
    made_s: float


class ClusterPoller:
    """``start`` and ``close`` from any thread. ``snapshot``, ``changes`` and ``rates`` may be read from any."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        seen: Callable[[Snapshot, bool], None],
        security: SecuritySettings | None = None,
        made: Callable[[], None] = lambda: None,
    ) -> None:
        """``seen`` hears of every look, ``made`` of every page of metrics, which comes after the look that it is of."""
        self._bootstrap = list(bootstrap)
        self._security = security
        self._seen = seen
        self._made = made
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-console-poller", daemon=True)
        self._wake: asyncio.Event | None = None
        self._closed = False
        self._streams = 0
        self._fetched_s = -LOOKED_AT_S
        self._scrape_wanted = False
        self._turns = Turns()
        self._lags = LagTimes()
        self._full_s: float | None = None
        self._full_took_s = 0.0
        self.snapshot = Snapshot(number=0, taken_ms=now_ms(), view=NOBODY, alive=frozenset(), trouble=NOT_ASKED)
        self.prepared = PreparedRows(self.snapshot)
        self.changes: tuple[Change, ...] = ()
        self.rates = RateHistory()
        self.scraped: ScrapedPage | None = None
        self.refusals = 0
        """Looks one after the other at which a broker did not take user and password."""

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

    def scrape(self) -> None:
        """Look now, at everything, and make the page of metrics of it."""
        self._scrape_wanted = True
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
        besides: asyncio.Task[None] | None = None
        tidied_s = time.monotonic()
        while not self._closed:
            self._wake.clear()
            begun_s, cpu_s = time.monotonic(), time.thread_time()
            if await self._look(client):
                failures = 0
                if (besides is None or besides.done()) and (self._scrape_wanted or self._is_full(begun_s)):
                    besides = asyncio.create_task(self._look_on_besides(client, begun_s))
                    besides.add_done_callback(self._looked_besides)
            else:
                failures += 1
                await _ended(besides)
                client.close()
                client = self._client(failures)
                if self._scrape_wanted:  # it is told that there is nothing to tell
                    self._scrape_wanted = False
                    self._make_metrics(self.snapshot, time.monotonic() - begun_s)
            if begun_s - tidied_s > TIDY_EVERY_S:
                gc.collect()
                tidied_s = begun_s
            wait_s = pause_s(
                looked_at=self.is_looked_at,
                took_s=time.monotonic() - begun_s,
                cpu_s=time.thread_time() - cpu_s,
                failures=failures,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        await _ended(besides)
        client.close()

    def _looked_besides(self, _: object) -> None:
        if self._scrape_wanted:  # it came too late for this one
            self._set_wake()

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
            security=self._security,
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
                        starts=before.starts,
                        groups=before.groups,
                        positions=before.positions,
                        min_isr=before.min_isr,
                    )
        except (HoldfastError, OSError, TimeoutError) as e:
            self.refusals = self.refusals + 1 if isinstance(e, AuthenticationError) else 0
            return self._failed(str(e) or type(e).__name__)
        except Exception:  # a mistake of ours: the pages that there are go on, and say that they are old
            log.exception("a look at the cluster has failed")
            return self._failed(OUR_MISTAKE)
        self.refusals = 0
        self._found(before, after)
        return True

    async def _look_on_besides(self, client: AdminClient, asked_s: float) -> None:
        """What a look leaves out, while the next ones go on: whoever does not answer holds up nobody. And the page of
        metrics, where somebody scrapes."""
        scrape, self._scrape_wanted = self._scrape_wanted, False
        self._full_s = begun_s = time.monotonic()
        try:
            async with asyncio.timeout(4 * REQUEST_TIMEOUT_S):
                found = await look_on(client, self.snapshot, self._turns, now_ms(), with_starts=scrape)
        except (HoldfastError, OSError, TimeoutError) as e:
            log.warning("ends of logs and groups are as they were: %s", str(e) or type(e).__name__)
        except Exception:
            log.exception("a look at ends of logs and groups has failed")
        else:
            self._full_took_s = time.monotonic() - begun_s
            before = self.snapshot
            after = found.within(before)
            self._count(after, found.asked_ms)
            self._found(before, after)
            del before, after, found  # of a large cluster they would be in memory with the page of metrics
        if scrape:
            self._make_metrics(self.snapshot, time.monotonic() - asked_s)

    def _found(self, before: Snapshot | None, after: Snapshot) -> None:
        """It counts from now on."""
        after = replace(after, number=1 if before is None else before.number + 1)
        self.changes = (*self.changes, *changes(before, after))[-MOST_CHANGES:]
        different = before is None or not before.says_the_same(after)
        self._show(after, different)
        self._seen(after, different)

    def _failed(self, why: str) -> bool:
        self._show(replace(self.snapshot, trouble=why), True)
        self._seen(self.snapshot, True)
        return False

    def _make_metrics(self, snapshot: Snapshot, took_s: float) -> None:
        """For who waits for them; pages go on whatever happens to it."""
        now = steady_ms()
        about = MetricsAbout(software=__version__, took_s=took_s)
        try:
            packed = packed_page(snapshot, lambda tp, offset: self._lags.lag_s(tp, offset, now), about)
        except Exception:
            log.exception("the page of metrics cannot be made")
        else:
            self.scraped = ScrapedPage(packed, time.monotonic())
            self._made()

    def _show(self, snapshot: Snapshot, different: bool) -> None:
        """From now on pages are made of this one; what they need of it is there already, if anybody looks."""
        prepared = PreparedRows(snapshot) if different else self.prepared.renewed(snapshot)
        if self.is_looked_at:
            prepared.prepare()
        self.prepared, self.snapshot = prepared, snapshot

    def _count(self, snapshot: Snapshot, at_ms: TimestampMs) -> None:
        """Counters of the cluster, its topics and groups, as they were at ``at_ms``; where logs end, for lag in
        seconds."""
        self._lags.looked(steady_ms(), snapshot.ends, (at.offsets for at in snapshot.positions.values()))
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
