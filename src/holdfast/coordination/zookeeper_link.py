"""The session of one broker process with an ensemble, and the next one when that has expired.

Owns the client (zookeeper_client.py), what is known of its state, and a thread on which everything is done that the
ensemble's news asks for: callbacks of a client only leave a note, which ``Errands`` turns into work.

    no session -> connected <-> suspended -> expired -> no session -> ...

An errand is a look at the ensemble that may be repeated at any time (who is the controller, does my node live). One
that failed because no server answered is done again when one does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from holdfast.coordination.zookeeper_client import (
    ConnectionLostError,
    Node,
    SessionExpiredError,
    SessionState,
    ZooKeeperClient,
    ZooKeeperError,
)
from holdfast.model.errors import FencedControllerError

log = logging.getLogger(__name__)

T = TypeVar("T")
PATIENCE_S: Final = 0.5
RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 1.0
REFUSED_S: Final = 5.0
"""Until what the ensemble refused is asked for again."""
CLOSED: Final = "The metadata store is closed"


class Begin(Protocol):
    """A thread that does one thing after the other (Lanes.begin)."""

    def begin(self, key: str, job: Callable[[], Any]) -> Any: ...


class Errands:
    """Named pieces of work, one at a time, in a thread of their own. One that is asked for again before it has begun is
    done once."""

    def __init__(self, lanes: Begin) -> None:
        self._lanes = lanes
        self._mutex = threading.Lock()
        self._waiting: set[str] = set()
        self._ended = threading.Event()

    def post(self, name: str, work: Callable[[], None]) -> None:
        """Do it soon, and again until the ensemble has not failed it. Returns at once."""
        with self._mutex:
            if self._ended.is_set() or name in self._waiting:
                return
            self._waiting.add(name)
        self._lanes.begin("zookeeper", lambda: self._do(name, work))

    def post_later(self, delay_s: float, name: str, work: Callable[[], None]) -> None:
        """As ``post``, after a while. Returns at once."""

        def wait() -> None:
            if not self._ended.wait(delay_s):
                self.post(name, work)

        self._lanes.begin("zookeeper-later", wait)

    def aside(self, work: Callable[[], None]) -> None:
        """Do it once, beside all others: it may take long. Returns at once."""
        self._lanes.begin("zookeeper-aside", work)

    def _do(self, name: str, work: Callable[[], None]) -> None:
        with self._mutex:
            self._waiting.discard(name)
        if self._ended.is_set():
            return
        try:
            work()
        except (ConnectionLostError, SessionExpiredError) as e:
            log.info("ZooKeeper: %s: %s", name, e)
            if not self._ended.wait(RETRY_S):
                self.post(name, work)
        except FencedControllerError:
            return  # closed meanwhile
        except ZooKeeperError as e:  # an ACL, a quota, a node that somebody removed by hand: may be put right
            log.warning("ZooKeeper: %s: %s; again in %g s", name, e, REFUSED_S)
            self.post_later(REFUSED_S, name, work)
        except Exception:
            log.exception("ZooKeeper: %s failed", name)

    def wait(self, timeout_s: float) -> bool:
        """True: no more errands are done."""
        return self._ended.wait(timeout_s)

    def end(self) -> None:
        """Nothing more is begun."""
        self._ended.set()


def settled(future: Future[T], errands: Errands) -> T:
    """What became of a write, or its error; FencedControllerError when the store was closed meanwhile."""
    if not future.done():
        is_done = threading.Event()
        future.add_done_callback(lambda _: is_done.set())
        while not is_done.wait(PATIENCE_S):
            if errands.wait(0):
                raise FencedControllerError(CLOSED)
    return future.result()


class Link:
    """See the module's docstring. ``told`` hears of every session's state (from any thread, also while calls wait), and
    ``client`` gives the session that is good now."""

    def __init__(
        self,
        connect: Callable[[], ZooKeeperClient],
        errands: Errands,
        told: Callable[[ZooKeeperClient, SessionState], None],
        *,
        connect_timeout_s: float,
    ) -> None:
        self._connect = connect
        self._errands = errands
        self._told = told
        self._connect_timeout_s = connect_timeout_s
        self._changed = threading.Condition()
        self._making = threading.Lock()
        self._client: ZooKeeperClient | None = None
        self._state = SessionState.SUSPENDED
        self._closed = False

    @property
    def present(self) -> ZooKeeperClient | None:
        """The session if there is one that is not known to have expired."""
        return self._client

    def client(self) -> ZooKeeperClient:
        """The session; a new one when there is none. ConnectionLostError when no server answers in time, AccessError,
        FencedControllerError once closed."""
        found = self._client
        if found is not None:
            return found
        with self._making:
            self._refuse_closed()
            if self._client is not None:
                return self._client
            client = self._new()
            with self._changed:
                is_good = not self._closed and self._state is not SessionState.EXPIRED
                self._client = client if is_good else None
            if not is_good:
                client.close()
                self._refuse_closed()
                raise SessionExpiredError("The ZooKeeper session has expired")
            self._told(client, SessionState.CONNECTED)
            return client

    def _new(self) -> ZooKeeperClient:
        client = self._connect()
        self._state = SessionState.CONNECTED
        client.listen(lambda state: self._hear(client, state))
        try:
            client.start(self._connect_timeout_s)
        except BaseException:
            client.close()
            raise
        log.info("ZooKeeper session 0x%x of %.1f s", client.session_id, client.session_timeout_s)
        return client

    def waiting_client(self) -> ZooKeeperClient:
        """As ``client``, for as long as it takes."""
        delay_s, said = RETRY_S, False
        while True:
            try:
                return self.client()
            except (ConnectionLostError, SessionExpiredError) as e:
                if not said:
                    log.warning("ZooKeeper does not answer: %s", e)
                    said = True
            if self._errands.wait(delay_s):
                raise FencedControllerError(CLOSED)
            delay_s = min(MAX_RETRY_S, delay_s * 2)

    def _hear(self, client: ZooKeeperClient, state: SessionState) -> None:
        with self._changed:
            if self._client is not None and client is not self._client:
                return  # of a session before
            self._state = state
            if state is SessionState.EXPIRED:
                self._client = None
            self._changed.notify_all()
        if state is SessionState.EXPIRED:
            self._errands.aside(client.close)  # not here, in a thread of its own, which it ends
        log.log(logging.INFO if state is SessionState.CONNECTED else logging.WARNING, "ZooKeeper: %s", state.value)
        self._told(client, state)

    def wait_connected(self, client: ZooKeeperClient) -> None:
        """Return when a server answers this session again. SessionExpiredError, FencedControllerError once closed."""
        with self._changed:
            while True:
                self._refuse_closed()
                if self._client is not client:
                    raise SessionExpiredError("The ZooKeeper session has expired")
                if self._state is SessionState.CONNECTED:
                    return
                self._changed.wait(MAX_RETRY_S)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise FencedControllerError(CLOSED)

    def close(self) -> None:
        """End the session, if there is one, and make no other."""
        with self._changed:
            self._closed = True
            client, self._client = self._client, None
            self._changed.notify_all()
        if client is not None:
            try:
                client.close()
            except ZooKeeperError as e:
                log.info("ZooKeeper: the session was not ended: %s", e)


class Watched:
    """One node that is looked at again whenever it changes: never more than one watch of a session is set.

    ``look_again`` is called from a client's thread, once for each change."""

    def __init__(self, path: str, look_again: Callable[[], None]) -> None:
        self.path = path
        self._look_again = look_again
        self._mutex = threading.Lock()
        self._set: tuple[ZooKeeperClient, object] | None = None

    def _watch(self, client: ZooKeeperClient) -> Callable[[], None] | None:
        with self._mutex:
            if self._set is not None and self._set[0] is client:
                return None
            mark = object()
            self._set = (client, mark)

        def fired() -> None:
            with self._mutex:
                if self._set is None or self._set[1] is not mark:
                    return
                self._set = None
            self._look_again()

        return fired

    def _unset(self) -> None:
        with self._mutex:
            self._set = None

    def node(self, client: ZooKeeperClient) -> Node | None:
        """The node as it is, and have the next change told."""
        try:
            return client.get(self.path, watch=self._watch(client))
        except ZooKeeperError:
            self._unset()
            raise

    def names(self, client: ZooKeeperClient) -> list[str]:
        """The names below it, and have the next one that comes or goes told."""
        try:
            return client.children(self.path, watch=self._watch(client)) or []
        except ZooKeeperError:
            self._unset()
            raise
