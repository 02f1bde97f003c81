"""Readers of what comes over a socket: frames, headers, requests, answers."""

from typing import Any

from holdfast.model.errors import InvalidRequestError, RequestError
from tests.fuzz import samples
from tests.fuzz.fixups import Fixup
from tests.fuzz.reader import Reader, Run

_LIMIT = 1 << 20
_HEADER = 8  # key, version, correlation id of a request without its client id


def _frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _body(recorded: samples.Recorded) -> bytes:
    from holdfast.protocol.framing import parse_request_header

    return recorded.request[parse_request_header(recorded.request).body_offset :]


def _answer_body(recorded: samples.Recorded) -> bytes | None:
    from holdfast.protocol.framing import parse_response_header

    if recorded.response is None:
        return None
    return recorded.response[parse_response_header(recorded.api_key, recorded.version, recorded.response)[1] :]


# -- frames --------------------------------------------------------------------------------------------------


def _make_frames() -> Run:
    """Frames are split and their headers read; what is taken and what is left make up the whole."""
    from holdfast.model.errors import InvalidRequestError
    from holdfast.protocol.framing import parse_request_header, parse_response_header, split_frames

    def run(data: bytes) -> Any:
        frames, consumed, needed = split_frames(data, _LIMIT)
        assert consumed == sum(map(len, frames)) + 4 * len(frames)
        assert needed is None or needed > len(data) - consumed
        error = None
        for frame in frames:
            try:
                header = parse_request_header(frame)
                assert header.body_offset <= len(frame)
            except InvalidRequestError as e:
                error = e
            try:
                _, at = parse_response_header(3, 9, frame)
                assert at <= len(frame)
            except InvalidRequestError as e:
                error = e
        if error is not None:
            raise error
        return len(frames) & 7

    return run


def _frames_corpus() -> list[bytes]:
    found = [_frame(r.request[:200]) for r in samples.recorded_messages()[::5]]
    found += [_frame(r.response[:200]) for r in samples.recorded_messages()[::9] if r.response]
    return [*found, found[0][:40] + found[1], found[0] + found[1], b"".join(found[:4]), b""]


# -- connections ---------------------------------------------------------------------------------------------


class FuzzLoop:
    """What a Connection asks of its event loop, without one: readiness is what the reader under test makes it."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def time(self) -> float:
        return 0.0

    def add_reader(self, fd: int, callback: Any) -> None: ...

    def remove_reader(self, fd: int) -> None: ...

    def add_writer(self, fd: int, callback: Any) -> None: ...

    def remove_writer(self, fd: int) -> None: ...

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)


class FuzzSocket:
    """A socket that gives the input in pieces of one size, and takes everything."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data, self._piece, self._at = data, piece, 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def fileno(self) -> int:
        return 3

    def recv_into(self, buffer: memoryview) -> int:
        size = min(self._piece, len(buffer), len(self._data) - self._at)
        if not size:
            raise BlockingIOError
        buffer[:size] = self._data[self._at : self._at + size]
        self._at += size
        return size

    def send(self, data: Any) -> int:
        return len(data)

    def sendmsg(self, buffers: Any) -> int:
        return sum(map(len, buffers))

    def close(self) -> None: ...


def _make_connections() -> Run:
    """A broker's connection, fed in pieces; requests come out as they would from the whole at once, and a client's
    connection answers or gives up. The first byte says how large the pieces are."""
    from holdfast.broker import connection
    from holdfast.broker.connection import Connection
    from holdfast.broker.exchange import BufferPool
    from holdfast.client.connection import BrokerConnection
    from holdfast.model.errors import InvalidRequestError
    from holdfast.model.listeners import ListenerUse
    from holdfast.protocol.framing import FrameError, parse_request_header, split_frames

    connection.log.setLevel("ERROR")
    use = ListenerUse(name="PLAINTEXT", for_brokers=True, for_operators=True)
    pieces = (5000, 300, 100, 64, 40, 17, 7, 3)

    def expected(data: bytes) -> list[bytes]:
        found = []
        at = 0
        while True:
            try:
                frames, consumed, _ = split_frames(data[at : at + 4 + int.from_bytes(data[at : at + 4], "big")], _LIMIT)
            except FrameError:
                return found
            if not frames:
                return found
            try:
                parse_request_header(frames[0])
            except InvalidRequestError:
                return found
            found.append(bytes(frames[0]))
            at += consumed

    def run(data: bytes) -> Any:
        if not data:
            return None
        piece, data = pieces[data[0] & 7] if len(data) > 64 else 1 + (data[0] & 7), data[1:]
        loop, sock, pool, got = FuzzLoop(), FuzzSocket(data, piece), BufferPool(), []

        def dispatch(exchange: Any) -> None:
            header = exchange.header
            got.append((header.api_key, header.api_version, header.correlation_id, bytes(exchange.body)))
            exchange.finish([b"\0\0\0\1x"])

        peer: Any = ("fuzz", 1)
        served: Any = Connection(sock, peer, loop, pool, dispatch, lambda c: None, _LIMIT, use)  # type: ignore[arg-type]
        while sock.has_more and not served.closed:
            served._on_readable()
            while loop.soon:
                loop.soon.pop()()
        wanted = []
        for frame in expected(data):
            header = parse_request_header(frame)
            wanted.append((header.api_key, header.api_version, header.correlation_id, frame[header.body_offset :]))
        assert got == wanted, (got, wanted)
        assert served.closed or pool.running_bytes == 0
        if piece > 64:
            return len(got) & 3, served.closed
        client = BrokerConnection("fuzz", 1, "c", max_response_bytes=_LIMIT)
        at = 0
        while at < len(data) and not client._closed:
            buffer = client.get_buffer(-1)
            size = min(piece * 4, len(buffer), len(data) - at)
            buffer[:size] = data[at : at + size]
            client.buffer_updated(size)
            at += size
        return len(got) & 3, served.closed, client._closed

    return run


def _connections_corpus() -> list[bytes]:
    frames = _frames_corpus()
    return [bytes((i & 7,)) + frame for i, frame in enumerate(frames)]


# -- requests and answers through kio --------------------------------------------------------------------------


def _requests() -> list[tuple[int, int]]:
    from holdfast.protocol.apis import INTERNAL, SPOKEN

    return samples.spoken(SPOKEN, INTERNAL)


def _make_requests() -> Run:
    """A request body of the API and version that the first byte chooses, checked and decoded as dispatch does."""
    from holdfast.protocol.framing import decode_request

    table = _requests()
    count = len(table)

    def run(data: bytes) -> None:
        if data:
            key, version = table[data[0] % count]
            decode_request(key, version, data[1:])

    return run


def _requests_corpus() -> list[bytes]:
    from holdfast.protocol.apis import request_type
    from holdfast.protocol.framing import encode_body

    table = _requests()
    found = [
        bytes((i,)) + encode_body(samples.message(request_type(*table[i]), variant))
        for i in range(len(table))
        for variant in range(3)
    ]
    places = {entry: i for i, entry in enumerate(table)}
    for recorded in samples.recorded_messages():
        place = places.get((recorded.api_key, recorded.version))
        if place is not None and len(recorded.request) < 400:
            found.append(bytes((place,)) + _body(recorded))
    return found


def _make_responses() -> Run:
    """As a client reads answers: the body of the API and version that the first byte chooses."""
    from holdfast.protocol.framing import decode_response

    table = _requests()
    count = len(table)

    def run(data: bytes) -> None:
        if data:
            key, version = table[data[0] % count]
            decode_response(key, version, data[1:])

    return run


def _responses_corpus() -> list[bytes]:
    from holdfast.protocol.apis import response_type
    from holdfast.protocol.framing import encode_body

    table = _requests()
    found = [
        bytes((i,)) + encode_body(samples.message(response_type(*table[i]), variant))
        for i in range(len(table))
        for variant in range(3)
    ]
    places = {entry: i for i, entry in enumerate(table)}
    for recorded in samples.recorded_messages():
        place, body = places.get((recorded.api_key, recorded.version)), _answer_body(recorded)
        if place is not None and body is not None and len(body) < 400:
            found.append(bytes((place,)) + body)
    return found


# -- orders between brokers ------------------------------------------------------------------------------------

_ORDERS = ((4, 7), (5, 4), (6, 8))


def _make_orders() -> Run:
    """LeaderAndIsr, StopReplica, UpdateMetadata with our tagged fields, and what is made of them."""
    from holdfast.protocol.framing import decode_request, encode_body
    from holdfast.protocol.interbroker import partition_states

    def run(data: bytes) -> Any:
        if not data:
            return None
        key, version = _ORDERS[data[0] % 3]
        request = decode_request(key, version, data[1:])
        if key == 4:
            return sum(1 for _ in partition_states(request)) & 3
        if key == 6:
            again = encode_body(request)
            assert encode_body(decode_request(key, version, again)) == again
        return key

    return run


def _orders_corpus() -> list[bytes]:
    from holdfast.protocol.apis import request_type
    from holdfast.protocol.framing import encode_body

    return [
        bytes((i,)) + encode_body(samples.message(request_type(*order), variant))
        for i, order in enumerate(_ORDERS)
        for variant in range(3)
    ]


# -- the hand-written codecs -----------------------------------------------------------------------------------

_PRODUCE_VERSIONS = tuple(range(3, 14))
_FETCH_VERSIONS = tuple(range(4, 19))


def _make_produce() -> Run:
    """A Produce body of the version that the first byte chooses; its records are within it."""
    from holdfast.protocol.produce_codec import decode_produce_request

    count = len(_PRODUCE_VERSIONS)

    def run(data: bytes) -> Any:
        if not data:
            return None
        view = memoryview(data)[1:]
        request = decode_produce_request(_PRODUCE_VERSIONS[data[0] % count], view)
        size = sum(len(records) for _, parts in request.topics for _, records in parts if records is not None)
        assert size <= len(view)
        return len(request.topics) & 3

    return run


def _produce_corpus() -> list[bytes]:
    from holdfast.protocol.apis import request_type
    from holdfast.protocol.framing import encode_body

    recorded = [r for r in samples.recorded_messages() if r.api_key == 0 and r.version in _PRODUCE_VERSIONS]
    found = [bytes((r.version - 3,)) + _body(r) for r in recorded]
    for i, version in enumerate(_PRODUCE_VERSIONS):
        found += [bytes((i,)) + encode_body(samples.message(request_type(0, version), v)) for v in range(3)]
    return [item for item in found if len(item) < 600]


def _make_fetch() -> Run:
    """A Fetch request body, or (odd first byte) an answer as a follower reads it, of the version in that byte."""
    from holdfast.protocol.fetch_codec import decode_fetch_request, decode_fetch_response

    count = len(_FETCH_VERSIONS)

    def run(data: bytes) -> Any:
        if not data:
            return None
        view = memoryview(data)[1:]
        kind = data[0] % (2 * count)
        version = _FETCH_VERSIONS[kind >> 1]
        if not kind & 1:
            return len(decode_fetch_request(version, view).topics) & 3
        answer = decode_fetch_response(version, view)
        assert sum(len(part.records) for _, parts in answer.topics for part in parts) <= len(view)
        return len(answer.topics) & 3

    return run


def _fetch_corpus() -> list[bytes]:
    from holdfast.protocol.apis import request_type, response_type
    from holdfast.protocol.framing import encode_body

    found = []
    for i, version in enumerate(_FETCH_VERSIONS):
        for variant in range(3):
            found.append(bytes((2 * i,)) + encode_body(samples.message(request_type(1, version), variant)))
            found.append(bytes((2 * i + 1,)) + encode_body(samples.message(response_type(1, version), variant)))
    for recorded in samples.recorded_messages():
        if recorded.api_key == 1 and recorded.version in _FETCH_VERSIONS:
            found.append(bytes((2 * (recorded.version - 4),)) + _body(recorded))
            body = _answer_body(recorded)
            if body is not None:
                found.append(bytes((2 * (recorded.version - 4) + 1,)) + body)
    return [item for item in found if len(item) < 600]


_TOPIC_WORDS = (b"t1", b"\x03t1", b"\0\2t1", b"\xff\xff", b"\xff\xff\xff\xff", b"\xff" * 8)

READERS = (
    Reader(
        name="frames",
        reads="frames of a connection, headers of requests and answers",
        make=_make_frames,
        corpus=_frames_corpus,
        refusals=(RequestError,),
        fixup=Fixup.FRAME,
        max_size=600,
    ),
    Reader(
        name="connections",
        reads="the same through the connections of broker and client, in pieces",
        make=_make_connections,
        corpus=_connections_corpus,
        refusals=(),
        fixup=Fixup.FRAME,
        prefix=1,
        max_size=300,
        memory_base=4 << 20,
    ),
    Reader(
        name="requests",
        reads="request bodies of every API and version, clients' and brokers'",
        make=_make_requests,
        corpus=_requests_corpus,
        refusals=(InvalidRequestError,),
        kinds=250,
        prefix=1,
        tokens=_TOPIC_WORDS,
        max_size=400,
    ),
    Reader(
        name="answers",
        reads="answers of every API and version, as a client reads them",
        make=_make_responses,
        corpus=_responses_corpus,
        refusals=(InvalidRequestError,),
        kinds=250,
        prefix=1,
        tokens=_TOPIC_WORDS,
        max_size=400,
    ),
    Reader(
        name="orders",
        reads="LeaderAndIsr, StopReplica and UpdateMetadata with our tagged fields",
        make=_make_orders,
        corpus=_orders_corpus,
        refusals=(InvalidRequestError,),
        kinds=3,
        prefix=1,
        tokens=_TOPIC_WORDS,
        max_size=600,
    ),
    Reader(
        name="produce",
        reads="Produce requests by the hand-written codec, versions 3 to 13",
        make=_make_produce,
        corpus=_produce_corpus,
        refusals=(InvalidRequestError,),
        kinds=len(_PRODUCE_VERSIONS),
        prefix=1,
        tokens=_TOPIC_WORDS,
        max_size=600,
    ),
    Reader(
        name="fetch",
        reads="Fetch requests and answers by the hand-written codec, versions 4 to 18",
        make=_make_fetch,
        corpus=_fetch_corpus,
        refusals=(InvalidRequestError,),
        kinds=2 * len(_FETCH_VERSIONS),
        prefix=1,
        tokens=_TOPIC_WORDS,
        max_size=600,
    ),
)
