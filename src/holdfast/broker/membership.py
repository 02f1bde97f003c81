"""This broker's link to the active controller: registration, heartbeats, and what must be asked of it.

Owns the connection over which this broker registers and heartbeats. Its end is news (DESIGN 11): the controller
fences a broker whose connection closed and whose port refuses. Here the other half: when the controller's connection
closes, the next controller is looked for at once.

    locate -> connect -> register (or go on with the epoch we have) -> heartbeat ... -> closed -> locate

What brokers ask (AlterPartition) and what clients ask (forwarded) have a lane each beside it: a connection answers
one request after the other, and a CreateTopics that waits for a slow broker must not hold up a heartbeat.

Never decides anything about partitions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from holdfast.broker.controller_lane import Lane
from holdfast.broker.entity import build
from holdfast.broker.link_troubles import LinkTroubles
from holdfast.broker.signs_of_life import is_dead
from holdfast.client.errors import AuthenticationError, BrokerUnreachable
from holdfast.model.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    HoldfastError,
    InconsistentClusterIdError,
    NetworkError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from holdfast.model.fates import ReplicaFates, ReplicaTurn
from holdfast.model.features import REGISTERED
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.error_codes import error_of
from holdfast.protocol.framing import encode_response_raw
from holdfast.protocol.interbroker import listener_choice

if TYPE_CHECKING:
    from holdfast.broker.exchange import Answering
    from holdfast.client.connection import BrokerConnection
    from holdfast.client.outgoing import Outgoing
    from holdfast.metadata.store import ControllerLocation
    from holdfast.model.listeners import Endpoints
    from holdfast.storage.incarnation import Past

log = logging.getLogger(__name__)

LOCATE_INTERVAL_S = 0.02
CONNECT_TIMEOUT_S = 1.0
FORWARD_RETRY_S = 0.02
UNEXPECTED_RETRY_S = 1.0
NOTE_TIMEOUT_S = 2.0
"""How long a log directory that hangs may hold up the first heartbeat."""
REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a broker says of itself when it registers."""

    broker_id: int
    endpoints: Endpoints
    rack: str | None
    cluster_id: str
    incarnation_id: UUID
    host: str | None = None
    """The key of its host (KIP-426); None: it has none."""


class OwnDirectories(Protocol):
    """What a broker says of its log directories, asked for each time: ids."""

    def all(self) -> tuple[UUID, ...]:
        """Those that have one."""

    def known_cordoned(self) -> tuple[UUID, ...]:
        """Those that are cordoned, as far as is known at a registration."""

    def cordoned(self) -> tuple[UUID, ...] | None:
        """The same, once all is known; None before."""


class Membership:
    """See the module's docstring. One task; everything on the loop."""

    def __init__(
        self,
        identity: Identity,
        locate: Callable[[], Awaitable[ControllerLocation | None]],
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        on_fatal: Callable[[str], None],
        offline_dirs: Callable[[], tuple[UUID, ...]],
        on_lost: Callable[[int], None],
        on_refused: Callable[[ControllerLocation], None],
        on_registered: Callable[[], None],
        past: Past,
        turns: Callable[[], Mapping[TopicPartition, ReplicaTurn]],
        on_told: Callable[[Mapping[TopicPartition, ReplicaTurn]], None],
        directories: OwnDirectories,
        outgoing: Outgoing,
    ) -> None:
        """``locate``: where the controller is, by the metadata store; ``on_refused``: nothing listens there; ``turns``:
        what the controller is to hear of replicas, asked for when a heartbeat is made; ``on_told``: it has recorded
        these, which the last one carried."""
        self.identity = identity
        self.broker_epoch = -1
        """The newest that is known; -1 before the first registration."""
        self.unfenced = asyncio.Event()
        """Set while the controller counts this broker as alive."""
        self._current_until_s = 0.0
        """By the loop's clock: a session after the last good heartbeat was sent, so never later than the controller's
        own count. Until then nobody can have been elected in this broker's place without its knowledge."""
        self._locate = locate
        self._interval_s = heartbeat_interval_ms / 1000
        self._timeout_s = session_timeout_ms / 1000
        self._on_fatal = on_fatal
        self._offline_dirs = offline_dirs
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._on_registered = on_registered
        self._past = past
        self._turns = turns
        self._heartbeats = 0
        self._on_told = on_told
        self._directories = directories
        self._outgoing = outgoing
        self._hearing: list[tuple[int, asyncio.Future[None]]] = []
        self._is_registered = False
        self._troubles = LinkTroubles(outgoing)
        self._asked: ControllerLocation | None = None
        """Whom it connects or has connected to."""
        self._connection: BrokerConnection | None = None
        self._has_taken_us = False
        """Whether this connection's controller has taken a heartbeat."""
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._controller: ControllerLocation | None = None
        self._ended: ControllerLocation | None = None
        """A controller whose connection ended by itself."""
        self._asks, self._forwards = Lane("asks"), Lane(_FORWARDS)
        self._task: asyncio.Task[None] | None = None
        self._beat_now = asyncio.Event()
        self._want_shutdown = False
        self.may_shut_down = asyncio.Event()
        self.reported_dirs: frozenset[UUID] = frozenset()
        """Log directories that the controller knows to be offline."""

    def start(self) -> None:
        """Begin to look for the controller."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="membership")

    async def close(self) -> None:
        """Close the link. The controller sees the connection end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_links()

    # -- the link ----------------------------------------------------------------------------------------------

    def controller_seen(self, epoch: int) -> None:
        """A request of a controller with this epoch arrived: if it is newer than ours, look it up again."""
        if self._controller is not None and epoch > self._controller.epoch and self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
                await self._stay()
            except (HoldfastError, OSError) as e:
                wait_s = self._troubles.ended(e, self._asked, asyncio.get_running_loop().time())
                if wait_s:
                    await asyncio.sleep(wait_s)
            except Exception:
                log.exception("controller link: unexpected error")
                await asyncio.sleep(UNEXPECTED_RETRY_S)
            finally:
                self._close_links()
            await asyncio.sleep(LOCATE_INTERVAL_S)

    def _close_links(self) -> None:
        self._connected.clear()
        for lane in (self._asks, self._forwards):
            lane.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self) -> None:
        while True:
            location = await self._locate()
            if location is not None and location == self._ended and await is_dead(self._outgoing, location.endpoint):
                self._on_refused(location)
                self._ended = None  # once: the next try is a connection
            elif location is not None:
                self._lost.clear()
                self._asked = location
                connection = self._outgoing.connection(
                    location.endpoint, f"broker-{self.identity.broker_id}-to-controller",
                    on_close=functools.partial(self._closed, location.broker_id),
                )  # fmt: skip
                try:
                    await connection.open(CONNECT_TIMEOUT_S)
                except HoldfastError as e:
                    if isinstance(e, BrokerUnreachable) and e.refused:
                        self._on_refused(location)
                    if isinstance(e, AuthenticationError):
                        raise
                    await asyncio.sleep(LOCATE_INTERVAL_S)
                    continue
                self._connection = connection
                self._has_taken_us = False
                self._controller = location
                self._ended = None
                return
            await asyncio.sleep(LOCATE_INTERVAL_S)

    def _closed(self, controller_id: int, error: Exception | None) -> None:
        if error is not None:
            self._ended = self._controller
            self._on_lost(controller_id)
        self._lost.set()

    async def _stay(self) -> None:
        assert self._connection is not None
        if not self._is_registered:
            await self._register()
        while not self._lost.is_set():
            self._beat_now.clear()
            if not await self._heartbeat():
                return
            self._connected.set()
            waiters = [asyncio.ensure_future(self._lost.wait()), asyncio.ensure_future(self._beat_now.wait())]
            _, pending = await asyncio.wait(waiters, timeout=self._interval_s, return_when=asyncio.FIRST_COMPLETED)
            for waiter in pending:
                waiter.cancel()

    async def _register(self) -> None:
        me = self.identity
        response = await self._ask(
            ApiKey.BROKER_REGISTRATION, REGISTRATION_VERSION, self._timeout_s,
            broker_id=me.broker_id, cluster_id=me.cluster_id, incarnation_id=me.incarnation_id,
            listeners=[
                {"name": e.name, "host": e.host, "port": e.port, "security_protocol": int(e.security_protocol)}
                for e in me.endpoints.listeners
            ],
            **listener_choice(me.endpoints),
            host=me.host or "", rack=me.rack,
            features=[
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, low, high in REGISTERED
            ],
            log_dirs=self._directories.all(), cordoned_log_dirs=self._directories.known_cordoned(),
            **_what_became(self._fates()),
        )  # fmt: skip
        error = error_of(int(response.error_code))
        if isinstance(error, (DuplicateBrokerRegistrationError, InconsistentClusterIdError)):
            self._on_fatal(
                f"the controller refuses broker {me.broker_id} at {me.endpoints}: {type(error).__name__}: "
                f"node.id is in use by a live broker, or the log directories are of another cluster"
            )
            raise error
        if isinstance(error, UnsupportedVersionError):
            self._on_fatal(
                f"the controller refuses broker {me.broker_id}: a feature of the cluster is at a level that "
                f"this version of Holdfast does not know"
            )
        if error is not None:
            raise error
        self.broker_epoch = response.broker_epoch
        noted = asyncio.Event()
        self._past.note(self.broker_epoch, noted.set)
        try:
            async with asyncio.timeout(NOTE_TIMEOUT_S):
                await noted.wait()
        except TimeoutError:
            log.warning("a log directory has not noted epoch %d: after a crash it counts as damaged", self.broker_epoch)
        self._is_registered = True
        self._on_registered()
        log.info("registered as broker %d with epoch %d", me.broker_id, self.broker_epoch)

    def _fates(self) -> ReplicaFates:
        """What became of our replicas: nothing, if it is only the controller that has forgotten us."""
        return self._past.fates if self.broker_epoch < 0 else ReplicaFates(continues=self.broker_epoch)

    async def _heartbeat(self) -> bool:
        """One heartbeat. False when this link is of no more use."""
        sent_s = asyncio.get_running_loop().time()
        offline_dirs, turns = self._offline_dirs(), dict(self._turns())
        self._heartbeats += 1
        number = self._heartbeats
        response = await self._ask(
            ApiKey.BROKER_HEARTBEAT, HEARTBEAT_VERSION, self._timeout_s,
            broker_id=self.identity.broker_id, broker_epoch=self.broker_epoch,
            current_metadata_offset=max(self.broker_epoch, 0), want_fence=False,
            want_shut_down=self._want_shutdown, offline_log_dirs=offline_dirs, turns=_grouped(turns),
            number=number, cordoned_log_dirs=self._directories.cordoned(), log_dirs=self._directories.all(),
        )  # fmt: skip
        error = error_of(int(response.error_code))
        if isinstance(error, (StaleBrokerEpochError, BrokerIdNotRegisteredError)):
            self._is_registered = False
            self._fenced()
            await self._register()
            self._beat_now.set()
            return True
        if isinstance(error, NotControllerError) and self._has_taken_us:
            # It reigned and does not any more: whoever reigns now may have given away what we lead.
            self._current_until_s = 0.0
        if error is not None:
            raise error
        self._has_taken_us = True
        self._troubles.is_up()
        if response.is_caught_up:  # else it took nothing of this heartbeat but that we live
            self.reported_dirs = frozenset(offline_dirs)
            self._heard(number)
            if turns:
                self._on_told(turns)
        if response.is_fenced:
            self._fenced()
        else:
            self.unfenced.set()
            self._current_until_s = sent_s + self._timeout_s
        if response.should_shut_down:
            self.may_shut_down.set()
        return True

    def _fenced(self) -> None:
        self.unfenced.clear()
        self._current_until_s = 0.0

    @property
    def is_leaving(self) -> bool:
        """It has asked for a controlled shutdown."""
        return self._want_shutdown

    @property
    def is_current(self) -> bool:
        """Whether what this broker leads is led by nobody else: it has heard of its session in time."""
        return asyncio.get_running_loop().time() < self._current_until_s

    async def tell(self) -> None:
        """Return when the controller has recorded what a heartbeat from now on says."""
        heard = asyncio.get_running_loop().create_future()
        self._hearing.append((self._heartbeats + 1, heard))
        self._beat_now.set()
        try:
            await heard
        finally:
            self._hearing = [each for each in self._hearing if each[1] is not heard]

    def _heard(self, number: int) -> None:
        for wanted, heard in self._hearing:
            if wanted <= number and not heard.done():
                heard.set_result(None)

    def beat(self) -> None:
        """Send a heartbeat now: something changed that the controller should know."""
        self._beat_now.set()

    def want_shutdown(self) -> None:
        """Ask for a controlled shutdown; ``may_shut_down`` is set when the leaders are gone."""
        self._want_shutdown = True
        self._beat_now.set()

    # -- asking ------------------------------------------------------------------------------------------------

    async def _ask(self, api: ApiKey, version: int, timeout_s: float, **values: Any) -> Any:
        if self._connection is None:
            raise NotControllerError("no controller is known now")
        return await self._connection.request(build(request_type(api, version), values), timeout_s=timeout_s)

    async def _open_lane(self, lane: Lane) -> BrokerConnection:
        controller = self._controller
        if controller is None or not self._connected.is_set():
            raise NotControllerError("no controller is known now")
        return await lane.open(controller, self._outgoing, self.identity.broker_id)

    def _is_found_here(self) -> bool:
        return self._controller is not None and self._controller.broker_id == self.identity.broker_id

    async def connected(self) -> None:
        """Return when there is a controller that knows us."""
        await self._connected.wait()

    async def ask(self, api: ApiKey, version: int, timeout_s: float, **values: Any) -> Any:
        """One request to the active controller, once; NetworkError, RequestTimedOutError or NotControllerError."""
        connection = await self._open_lane(self._asks)
        return await connection.request(build(request_type(api, version), values), timeout_s=timeout_s)

    async def forward(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        body: bytes,
        timeout_s: float,
        *,
        is_here: Callable[[], bool] | None = None,
    ) -> bytes | None:
        """A client's request as it is to the controller; the answer frame for the client.

        Tries until the time is up while there is no controller or it has just changed; raises RequestTimedOutError.
        ``is_here``: whether this broker reigns, for a request that it would only forward again. It is not sent to this
        broker then, and None is the answer as soon as it reigns.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._connected.wait()
                if is_here is not None and self._is_found_here():
                    if is_here():
                        return None
                    raise NotControllerError("this broker does not reign yet, or does not any more")
                connection = await self._open_lane(self._forwards)
                answer = await connection.request_raw(api_key, version, body, timeout_s=left)
                return encode_response_raw(api_key, version, correlation_id, answer)
            except TimeoutError:
                break
            except (NetworkError, NotControllerError) as e:
                log.info("forwarding API key %d: %s", api_key, e)
            await asyncio.sleep(FORWARD_RETRY_S)
        raise RequestTimedOutError(f"no controller answered within {timeout_s:.1f} s")


def _what_became(fates: ReplicaFates) -> dict[str, Any]:
    """The fates of replicas as the registration has them."""
    return {
        "previous_broker_epoch": -1 if fates.continues is None else fates.continues,
        "rest": fates.rest.value,
        "fates": _grouped(fates.others, "fate"),
    }


def _grouped(of: Mapping[TopicPartition, Enum], key: str = "turn") -> list[dict[str, Any]]:
    """What replicas have in common, by topic."""
    groups: dict[tuple[Any, str], list[int]] = {}
    for tp in sorted(of):
        groups.setdefault((of[tp].value, tp.topic), []).append(tp.partition)
    return [{key: value, "topic_name": topic, "partitions": numbers} for (value, topic), numbers in groups.items()]


_FORWARDS: Final = "forwards"


def is_forwarded(connection: Answering, client_id: str | None) -> bool:
    """Whether a request came by another broker, as its client id tells, on a listener where that can be believed; that
    one has checked what it alone knows."""
    return (
        connection.listener.for_brokers
        and client_id is not None
        and re.fullmatch(rf"broker-\d+-{_FORWARDS}", client_id) is not None
    )
