"""What all pages of a console share: the poller, the stream of changes, templates, clients, acts.

Owns how a page is made: from the last snapshot, as a whole or as the part that a script swaps. The poller tells of a
new snapshot on its own thread; everything else is on the loop of the pages.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast import __version__
from holdfast.client.admin import AdminClient
from holdfast.client.security import SecuritySettings
from holdfast.console import words
from holdfast.console.acts import LOG_NAME, Act, ActLog
from holdfast.console.directory_acts import AddDirectory, RemoveDirectory
from holdfast.console.disk_acts import (
    CancelMoves,
    CordonDirectory,
    DirectoryOffline,
    HealDirectory,
    MoveReplicas,
    ThrottleMoves,
)
from holdfast.console.group_acts import ResetOffsets
from holdfast.console.guard import AccessRules
from holdfast.console.poller import CONNECT_TIMEOUT_S, NOT_ASKED, ClusterPoller, now_ms
from holdfast.console.prepared import PreparedRows
from holdfast.console.registered_values import RegisteredValues
from holdfast.console.replica_acts import CancelReassignment, ReassignReplicas
from holdfast.console.snapshot import Snapshot
from holdfast.console.stream import NewsStream, event
from holdfast.console.topic_acts import ChangeConfig, CreateTopic, DeleteTopic, ElectByHand
from holdfast.console.windows import WindowAsked
from holdfast.model.errors import HoldfastError
from holdfast.registry.client import SchemaRegistry

OLD_S = 5.0
"""Where nobody has looked for a while, a page waits a moment for a newer snapshot than that."""
WAIT_S = 0.3
FIRST_WAIT_S = 2.0
FRESH_S = 1.0
"""How old a page of metrics may be that is sent again."""
CALL_TIMEOUT_S = 10.0
MENU = (
    ("/", "Disks"),
    ("/brokers", "Brokers"),
    ("/topics", "Topics"),
    ("/partitions", "Partitions"),
    ("/groups", "Groups"),
    ("/reassignments", "Under way"),
    ("/configs", "Configuration"),
    ("/acts", "Acts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """``data_dir`` has the token and the log of acts; none is needed with ``read_only``. ``metrics_only``: no pages.
    ``registry``: of schemas."""

    bootstrap: tuple[str, ...]
    rules: AccessRules
    data_dir: Path | None
    metrics_only: bool = False
    registry: SchemaRegistry | None = None
    security: SecuritySettings | None = None
    """How brokers are spoken to, and in whose name; ``user``: who has logged in for that."""
    user: str = ""

    @property
    def servers(self) -> str:
        """As --bootstrap-server takes them."""
        return ",".join(self.bootstrap)


class ConsoleHost:
    """One a process. ``start`` and ``close`` on the loop of the pages."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.rules = settings.rules
        self.poller = ClusterPoller(settings.bootstrap, self._seen, settings.security, self._made)
        self.news = NewsStream(self.poller.stream)
        self.log = ActLog(None if settings.data_dir is None else settings.data_dir / LOG_NAME)
        self.acts = {act.name: act for act in _acts(settings.servers)}
        self.registered = None if settings.registry is None else RegisteredValues(settings.registry.by_id)
        self._version = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewed = asyncio.Event()
        self._templates = environment()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.poller.start()

    def close(self) -> None:
        self.news.close()
        self.poller.close()

    # -- news --------------------------------------------------------------------------------------------------

    def _seen(self, snapshot: Snapshot, different: bool) -> None:
        """On the poller's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._tell, snapshot, different)

    def _made(self) -> None:
        """On the poller's thread: who waits for metrics has them now."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        self._renewed.set()
        self._renewed = asyncio.Event()

    def _tell(self, snapshot: Snapshot, different: bool) -> None:
        self._version += different
        self._renew()
        data = {"version": self._version, "taken": words.moment_words(snapshot.taken_ms), "trouble": snapshot.trouble}
        self.news.tell(event("news", data))

    async def snapshot(self) -> Snapshot:
        """The last one; where nobody has looked for a while, or never, the next one if it comes soon."""
        followed = self.poller.is_looked_at
        self.poller.fetched()
        before = self.poller.snapshot
        is_first = before.number == 0 and before.trouble == NOT_ASKED
        if is_first or (not followed and now_ms() - before.taken_ms > OLD_S * 1000):
            limit_s = time.monotonic() + (FIRST_WAIT_S if is_first else WAIT_S)
            while self.poller.snapshot is before and (left_s := limit_s - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._renewed.wait()
        return self.poller.snapshot

    async def scraped(self, patience_s: float) -> bytes | None:
        """The page of metrics, compressed, of a look that begins now or began a moment ago; None: none in time."""
        asked_s = time.monotonic()
        fresh_s = asked_s - FRESH_S
        limit_s = asked_s + patience_s
        if self.poller.scraped is None or self.poller.scraped.made_s < fresh_s:
            self.poller.scrape()
        while (found := self.poller.scraped) is None or found.made_s < fresh_s:
            left_s = limit_s - time.monotonic()
            if left_s <= 0:
                return None
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._renewed.wait()
        return found.packed

    def prepared(self, now: Snapshot) -> PreparedRows:
        """Rows of its tables: those that were made with it, if it is still the last one."""
        made = self.poller.prepared
        return made if made.snapshot is now else PreparedRows(now)

    # -- asking ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(self, timeout_s: float = CALL_TIMEOUT_S) -> AsyncIterator[AdminClient]:
        """A client for one page or act; those brokers that answered last are asked first. HoldfastError."""
        now = self.poller.snapshot
        good = [
            node.address
            for broker, node in now.view.brokers.items()
            if broker in now.alive and (broker not in now.disks or now.disks[broker].error is None)
        ]
        servers = list(dict.fromkeys((*good, *self.settings.bootstrap)))
        client = AdminClient(
            servers,
            client_id="holdfast-console",
            timeout_s=timeout_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            security=self.settings.security,
        )
        try:
            await client.refresh(())
            yield client
        finally:
            client.close()

    # -- pages -------------------------------------------------------------------------------------------------

    async def page(self, request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
        """A page as a whole, or the part of it that follows the cluster, for a script that swaps it."""
        part = request.headers.get("hx-request") == "true" and request.headers.get("hx-request-type") == "partial"
        now = self.poller.snapshot
        query = request.url.query
        text = self._templates.get_template(template).render(
            layout="part.html" if part else "whole.html",
            here=request.url.path + (f"?{query}" if query else ""),
            path=request.url.path,
            menu=MENU,
            now=now,
            now_ms=now_ms(),
            version=self._version,
            read_only=self.rules.read_only,
            may_act=self.rules.may_act(request.headers.get("cookie")),
            software=__version__,
            user=self.settings.user,
            **context,
        )
        return HTMLResponse(text, status, headers={"vary": "hx-request"})

    def render(self, template: str, **context: Any) -> str:
        """A piece of a page, for a stream."""
        return self._templates.get_template(template).render(**context)

    async def trouble(self, request: Request, error: HoldfastError | str, *, status: int = 502) -> HTMLResponse:
        """A page that says what went wrong."""
        return await self.page(request, "trouble.html", status=status, text=str(error))


def asked_of(request: Request) -> WindowAsked:
    """The window that an address asks for."""
    return WindowAsked.of(request.query_params)


def _acts(servers: str) -> Sequence[Act]:
    return (
        MoveReplicas(servers),
        CancelMoves(servers),
        HealDirectory(servers),
        DirectoryOffline(servers),
        CordonDirectory(servers, on=True),
        CordonDirectory(servers, on=False),
        AddDirectory(servers),
        RemoveDirectory(servers),
        ThrottleMoves(servers),
        ReassignReplicas(servers),
        CancelReassignment(servers),
        ElectByHand(servers),
        CreateTopic(servers),
        DeleteTopic(servers),
        ChangeConfig(servers),
        ResetOffsets(servers),
    )


def environment() -> Environment:
    """Everything is escaped; a name that a template does not get is an error."""
    found = Environment(
        loader=PackageLoader("holdfast.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "bytes": words.bytes_words,
        "count": words.count_words,
        "moment": words.moment_words,
        "age": words.age_words,
        "state_class": words.state_class,
    }
    found.globals["address"] = address
    return found


def address(path: str, /, **query: Any) -> str:
    """A path and its query, whatever characters a name has."""
    kept = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path
