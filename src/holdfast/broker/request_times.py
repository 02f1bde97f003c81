"""How long requests take, by API and by stage, and what was answered with an error.

Owns the histograms and counters of one broker's requests. Everything here is called on the loop: one writer, no lock.
A request is counted when it is answered, and its times are noted once, when the socket has taken the last byte of its
answer:

    started --(queue: for its disk's thread)--> --(local)--> --(remote: for others)--> finished
            --(response_queue: for answers before it)--> --(response_send)--> sent

These are Kafka's stages where a broker has one loop and a thread for each disk. Only what took time is noted for the
queue, the remote stage and the response's queue: who reads adds the zeros.

Of an API that is asked often not every request is timed: the first EXACT in ten seconds are, and of the others one in
EVERY, which stands for those before it (model/histogram.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.model.errors import HoldfastError
from holdfast.model.histogram import EVERY, EXACT, NOTHING, Histogram, Observed
from holdfast.protocol.apis import ApiKey, is_spoken
from holdfast.protocol.framing import RequestHeader
from holdfast.replication.types import ProduceResult

STAGES: Final = ("total", "request_queue", "local", "remote", "response_queue", "response_send")
_SPARSE: Final = (1, 3, 4)
"""Of which only what is longer than 0 is noted."""
_KEPT: Final = 7
"""Earlier states: with one every ten seconds, the last one is a minute old."""
_FETCH: Final = int(ApiKey.FETCH)
_NAMES: Final = {int(key): "".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}
"""As Kafka's metrics call them."""
_UNKNOWN: Final = "Unknown"
Stages = tuple[Observed, ...]


class Timed(Protocol):
    """A request with its times; see Exchange."""

    header: RequestHeader
    is_follower: bool
    weight: int
    started_s: float
    finished_s: float
    remote_s: float
    appended: ProduceResult | HoldfastError | None


class ApiTimes:
    """The stages of one API."""

    __slots__ = ("exact", "local", "name", "queue", "remote", "response_queue", "response_send", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.exact = EXACT
        """So many more are timed, each of them."""
        self.total, self.queue, self.local = Histogram(), Histogram(), Histogram()
        self.remote, self.response_queue, self.response_send = Histogram(), Histogram(), Histogram()

    def now(self) -> Stages:
        """All stages, in the order of STAGES, with as many observations each."""
        every = (self.total, self.queue, self.local, self.remote, self.response_queue, self.response_send)
        found = [each.now() for each in every]
        count = found[0].observations
        for at in _SPARSE:
            found[at] = found[at].with_zeros(count - found[at].observations)
        return tuple(found)


class AnswerCount:
    """How often one version of an API was answered to one kind of asker."""

    __slots__ = ("_period", "_timed", "api", "left")

    def __init__(self, api: ApiTimes) -> None:
        self.api = api
        self.left = self._period = 1
        """So many more, the last of which is timed; counted down by who answers."""
        self._timed = 0
        """With that one, and those that it stands for."""

    @property
    def count(self) -> int:
        return self._timed + self._period - self.left

    def time_one(self) -> int:
        """It is due: for so many it stands, itself among them."""
        weight, api = self._period - self.left, self.api
        self._timed += weight
        if api.exact:
            api.exact -= 1
        self.left = self._period = 1 if api.exact else EVERY
        return weight

    def time_next(self) -> None:
        """The next one is due, however many were to come before."""
        self._period -= self.left - 1
        self.left = 1


class ApiVersion:
    """One version of an API."""

    __slots__ = ("api_key", "of_clients", "of_followers", "version")

    def __init__(self, api_key: int, version: int, api: ApiTimes, of_followers: ApiTimes) -> None:
        self.api_key = api_key
        self.version = version
        """-1: one that nobody speaks."""
        self.of_clients, self.of_followers = AnswerCount(api), AnswerCount(of_followers)


class ApiReading(NamedTuple):
    """One API as Prometheus is told: since the start, and what that was a minute ago."""

    name: str
    ever: Stages
    before: Stages

    @property
    def lately(self) -> Stages:
        """In the last minute. To be made off the loop: it takes its time."""
        return tuple(now.since(then) for now, then in zip(self.ever, self.before, strict=True))


class RequestTimes:
    """See the module's docstring."""

    __slots__ = ("_apis", "_before", "_versions", "errors")

    def __init__(self) -> None:
        self._apis: dict[str, ApiTimes] = {}
        self._versions: dict[int, ApiVersion] = {}
        self.errors: dict[tuple[str, int], int] = {}
        """API and Kafka's number of the error -> how often it was answered."""
        self._before: deque[Mapping[str, Stages]] = deque(maxlen=_KEPT)

    # -- on the path of requests -------------------------------------------------------------------------------

    def version_of(self, header: RequestHeader) -> ApiVersion:
        """Where requests with such a header are counted."""
        return self._versions.get(header.api_key << 16 | header.api_version) or self._meet(header)

    def sent(self, request: Timed, now_s: float, due_s: float) -> None:
        """The answer of one that is timed is with the socket; since ``due_s`` it was its turn."""
        version, weight = self.version_of(request.header), request.weight
        api = (version.of_followers if request.is_follower else version.of_clients).api
        finished_s = request.finished_s
        local = int((finished_s - request.started_s) * 1e6)
        send = int((now_s - due_s) * 1e6)
        total = local + send
        if due_s > finished_s:
            waited = int((due_s - finished_s) * 1e6)
            api.response_queue.add(waited, weight)
            total += waited
        remote = int(request.remote_s * 1e6)
        if isinstance(appended := request.appended, ProduceResult) and appended.began_ns:
            queued = appended.began_ns // 1000 - int(request.started_s * 1e6)
            if queued > 0:
                api.queue.add(queued, weight)
                local -= queued
            remote += appended.waited_ns // 1000
        if remote:
            api.remote.add(remote, weight)
            local -= remote
        api.total.add(total, weight)
        api.local.add(local, weight)
        api.response_send.add(send, weight)

    def failed(self, api_key: int, code: int) -> None:
        """A request, or a partition of it, was answered with this error of Kafka's numbers."""
        key = (_NAMES.get(api_key, _UNKNOWN), code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def _meet(self, header: RequestHeader) -> ApiVersion:
        """The first request of this version. What nobody speaks is counted as version -1: clients make numbers up."""
        api_key, number = header.api_key, header.api_version
        if not is_spoken(api_key, number):
            number = -1
        key = api_key << 16 | number & 0xFFFF
        found = self._versions.get(key)
        if found is None:
            name = _NAMES.get(api_key, _UNKNOWN)
            names = ("FetchConsumer", "FetchFollower") if api_key == _FETCH else (name, name)
            ours, theirs = (self._apis.setdefault(each, ApiTimes(each)) for each in names)
            found = self._versions[key] = ApiVersion(api_key, number, ours, theirs)
        return found

    # -- now and then ------------------------------------------------------------------------------------------

    def remember(self) -> None:
        """Keep how it is, for ``lately``; once in ten seconds."""
        latest = self._before[-1] if self._before else {}
        now = {}
        for name, api in self._apis.items():
            api.exact = EXACT
            known = latest.get(name)
            now[name] = known if known is not None and known[0].sum_us == api.total.sum_us else api.now()
        self._before.append(now)
        for version in self._versions.values():
            for each in (version.of_clients, version.of_followers):
                each.time_next()

    def read(self) -> list[ApiReading]:
        """Every API that was asked for."""
        before = self._before[0] if self._before else {}
        return [ApiReading(name, self._apis[name].now(), before.get(name, NO_STAGES)) for name in sorted(self._apis)]

    def requests(self) -> dict[tuple[str, int], int]:
        """API and version -> requests that were answered. A fetch counts as such and by who asked, as in Kafka."""
        found: dict[tuple[str, int], int] = {}
        for key, version in sorted(self._versions.items()):
            for name, count in (
                (version.of_clients.api.name, version.of_clients.count),
                (version.of_followers.api.name, version.of_followers.count),
                ("Fetch", version.of_clients.count + version.of_followers.count if key >> 16 == _FETCH else 0),
            ):
                if count:
                    found[name, version.version] = found.get((name, version.version), 0) + count
        return found


_NO_VERSION: Final = ApiVersion(1 << 16, 0, ApiTimes(_UNKNOWN), ApiTimes(_UNKNOWN))
"""A key that no header has room for."""


class Owed:
    """What is counted of one connection's requests, and the timed ones whose answers the socket has not taken whole."""

    __slots__ = ("_taken", "_times", "answers", "version")

    def __init__(self, times: RequestTimes) -> None:
        self._times = times
        self.version = _NO_VERSION
        """Of the last request."""
        self._taken = 0
        """Bytes that the socket has taken while there were answers."""
        self.answers: deque[tuple[int, Timed, float]] = deque()
        """Each with how much is taken by then, and since when it is its turn."""

    def turn_to(self, header: RequestHeader) -> ApiVersion:
        """A request of another version than the last one."""
        self.version = self._times.version_of(header)
        return self.version

    def time(self, request: Timed, counted: AnswerCount, loop: asyncio.AbstractEventLoop) -> None:
        """It is its turn, by ``counted``, which has no more left."""
        request.weight = counted.time_one()
        request.finished_s = loop.time()
        if request.remote_s < 0:
            request.remote_s += request.finished_s

    def took(
        self, turn: Sequence[tuple[int, Timed]], taken: int, due_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        """It was the turn of these that are timed, each with how many bytes had to be taken until its answer is there,
        and the socket took so many. One without an answer, 0, waits for none before it: a client that takes nothing
        could have any number of those."""
        now_s = loop.time()
        for ahead, request in turn:
            if ahead > taken:
                self.answers.append((self._taken + ahead - taken, request, due_s))
            else:
                self._times.sent(request, now_s, due_s)

    def sent(self, taken: int, loop: asyncio.AbstractEventLoop) -> None:
        """The socket has taken so many more bytes."""
        self._taken += taken
        answers = self.answers
        if answers[0][0] <= self._taken:
            now_s = loop.time()
            while answers and answers[0][0] <= self._taken:
                _, request, due_s = answers.popleft()
                self._times.sent(request, now_s, due_s)


def both(one: Stages, other: Stages) -> Stages:
    """Two APIs as one."""
    return tuple(a.plus(b) for a, b in zip(one, other, strict=True))


NO_STAGES: Final[Stages] = (NOTHING,) * len(STAGES)
