"""Readers of logins by PLAIN and SCRAM on both sides, of what strangers send before one, and of requests about ACLs."""

import asyncio
import base64
import struct
from typing import Any

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.scram import ScramError
from tests.fuzz import samples
from tests.fuzz.reader import Reader, Run
from tests.fuzz.readers.wire import FuzzLoop, FuzzSocket

_USER, _PASSWORD, _NONCE, _OURS = "alice", "secret of alice", "client-nonce", "and-ours"
_BETWEEN = b"\n"
"""Between messages of an input: no message of a mechanism has it."""
_SALT = b"a salt of sixteen"
_ITERATIONS = 4096
_LIMIT = 4096


def _credential(number: int) -> Any:
    import hashlib

    from holdfast.security.scram_credential import ScramCredential, ScramMechanism

    mechanism = ScramMechanism(number)
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, _PASSWORD.encode(), _SALT, _ITERATIONS)
    return ScramCredential.of_salted(mechanism, _SALT, salted, _ITERATIONS)


def _listener() -> Any:
    from holdfast.security.plain import PlainServer
    from holdfast.security.sasl_server import SaslListener
    from holdfast.security.scram_credential import ScramMechanism
    from holdfast.security.scram_forms import CredentialForms
    from holdfast.security.scram_server import ScramServer

    users = {mechanism: {_USER: _credential(mechanism)} for mechanism in ScramMechanism}
    secret = bytes(32)

    def scram(mechanism: Any) -> Any:
        return lambda: ScramServer(mechanism, users[mechanism].get, secret, _OURS, CredentialForms())

    mechanisms = {mechanism.sasl_name: scram(mechanism) for mechanism in ScramMechanism}
    plain = {"PLAIN": lambda: PlainServer({_USER: _PASSWORD.encode()})}
    return SaslListener({**plain, **mechanisms}, {})


_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _make_logins() -> Run:
    """Whatever a client says, it is challenged, refused for good, or it is alice and has proved that."""
    from holdfast.security.sasl_server import LoginState, SaslServer

    listener = _listener()

    def run(data: bytes) -> Any:
        if not data:
            return None
        server = SaslServer(listener)
        mechanism = _MECHANISMS[data[0] % len(_MECHANISMS)]
        assert server.handshake(mechanism, 0) is None
        for message in data[1:].split(_BETWEEN)[:4]:
            said = server.token(message, 1, 1)
            if said.refusal is not None:
                assert server.state is LoginState.REFUSED and not server.is_known and not said.token
                return server.state.value
            if server.is_known:
                assert server.principal.name == _USER
                assert mechanism != "PLAIN" or _PASSWORD.encode() in message
                break
        return server.state.value

    return run


def _logins_corpus() -> list[bytes]:
    password = _PASSWORD.encode()
    found = [b"\0\0alice\0" + password, b"\0alice\0alice\0" + password, b"\0bob\0alice\0" + password, b"\0\0bob\0x"]
    for kind, mechanism in enumerate(_MECHANISMS[1:], 1):
        for first, last in _conversations(mechanism):
            found += [bytes((kind,)) + first, bytes((kind,)) + first + _BETWEEN + last]
    return found


def _conversations(mechanism: str) -> list[tuple[bytes, bytes]]:
    from holdfast.protocol.scram import ScramClient
    from holdfast.security.sasl_server import SaslServer

    found = []
    for user, password in ((_USER, _PASSWORD), (_USER, "wrong"), ("nobody", "x"), ("a,b=c", "x")):
        server, client = SaslServer(_listener()), ScramClient(mechanism, user, password, _NONCE)
        server.handshake(mechanism, 0)
        first = client.first()
        found.append((first, client.final(server.token(first, 1, 1).token)))
    return found


def _make_answers() -> Run:
    """Whatever a server says to a client by SCRAM, it proves that it knows the password, or is not believed."""
    from holdfast.protocol.scram import ScramClient

    signatures = {(mechanism, *_signed(mechanism)) for mechanism in _MECHANISMS[1:]}

    def run(data: bytes) -> Any:
        if not data:
            return None
        mechanism = _MECHANISMS[1 + data[0] % 2]
        client = ScramClient(mechanism, _USER, _PASSWORD, _NONCE)
        challenge, _, answer = data[1:].partition(_BETWEEN)
        client.first()
        client.final(challenge)
        try:
            client.check(answer)
        except ScramError:
            return "not believed"
        assert (mechanism, challenge, answer.split(b",")[0]) in signatures, "believed without a signature"
        return "believed"

    return run


def _signed(mechanism: str) -> tuple[bytes, bytes]:
    """A server's two messages."""
    from holdfast.protocol.scram import ScramClient
    from holdfast.security.sasl_server import SaslServer

    server, client = SaslServer(_listener()), ScramClient(mechanism, _USER, _PASSWORD, _NONCE)
    server.handshake(mechanism, 0)
    challenge = server.token(client.first(), 1, 1).token
    return challenge, server.token(client.final(challenge), 1, 1).token


def _answers_corpus() -> list[bytes]:
    found = []
    for kind, mechanism in enumerate(_MECHANISMS[1:]):
        challenge, answer = _signed(mechanism)
        head = bytes((kind,)) + challenge + _BETWEEN
        found += [head + answer, head + answer + b",x=y", head + b"e=other-error", bytes((kind,)) + b"e=unknown-user"]
    return found


# -- before a login ------------------------------------------------------------------------------------------


class _Clock(FuzzLoop):
    """Failed logins are answered when the input is over."""

    def call_at(self, when: float, callback: Any) -> Any:
        self.soon.append(callback)
        return self

    def cancel(self) -> None: ...


def _make_strangers() -> Run:
    """Frames on a listener with SASL: nobody is let in without having proved who it is, no body of a stranger is read,
    and whoever has failed is closed. The first byte says how large the pieces are."""
    from holdfast.broker import connection, gate
    from holdfast.broker.connection import Connection
    from holdfast.broker.exchange import BufferPool
    from holdfast.broker.gate import Gate
    from holdfast.model.listeners import ListenerUse, SecurityProtocol

    connection.log.setLevel("CRITICAL")
    gate.log.setLevel("CRITICAL")
    use = ListenerUse(
        name="C", for_brokers=False, for_operators=False, security_protocol=SecurityProtocol.SASL_PLAINTEXT
    )
    pieces = (5000, 300, 100, 64, 40, 17, 7, 3)

    def run(data: bytes) -> Any:
        if not data:
            return None
        loop, sock, pool = _Clock(), FuzzSocket(data[1:], pieces[data[0] & 7]), BufferPool()
        passed: list[int] = []
        asked: list[int] = []

        def admit(exchange: Any) -> None:
            assert served.session.sasl.is_known and str(served.session.principal) == f"User:{_USER}"
            passed.append(exchange.header.api_key)
            exchange.finish([b"\0\0\0\1x"])

        def dispatch(exchange: Any) -> None:
            assert exchange.header.api_key == 18, "ApiVersions, and nothing else"
            asked.append(18)
            exchange.finish([b"\0\0\0\1x"])

        door = Gate(
            listeners={"C": _LISTENERS[0]}, admit=admit, dispatch=dispatch, now_ms=lambda: 1, failure_delay_ms=0
        )
        peer: Any = ("fuzz", 1)
        served: Any = Connection(sock, peer, loop, pool, door.admit, lambda c: None, _LIMIT, use)  # type: ignore[arg-type]
        asyncio.events._set_running_loop(loop)  # type: ignore[arg-type]
        try:
            while sock.has_more and not served.closed:
                served._on_readable()
                while loop.soon:
                    loop.soon.pop()()
        finally:
            asyncio.events._set_running_loop(None)
        assert served.closed or pool.running_bytes == 0
        return len(passed) & 3, len(asked) & 3, served.closed

    if not _LISTENERS:
        _LISTENERS.append(_listener())
    return run


_LISTENERS: list[Any] = []


def _strangers_corpus() -> list[bytes]:
    from holdfast.protocol.framing import encode_request_raw
    from holdfast.protocol.sasl_codec import encode_authenticate, encode_handshake

    versions = encode_request_raw(18, 0, 1, "c", b"")
    metadata = encode_request_raw(3, 1, 9, "c", b"\0\0\0\0")
    plain = b"\0alice\0" + _PASSWORD.encode()
    raw = struct.pack(">i", len(plain)) + plain
    found = [
        versions + encode_request_raw(17, 1, 2, "c", encode_handshake("PLAIN"))
        + encode_request_raw(36, 1, 3, "c", encode_authenticate(1, plain)) + metadata,
        encode_request_raw(17, 0, 2, "c", encode_handshake("PLAIN")) + raw + metadata,
        metadata, versions + metadata, encode_request_raw(17, 1, 2, "c", encode_handshake("GSSAPI")),
        encode_request_raw(17, 0, 2, "c", encode_handshake("PLAIN")) + struct.pack(">i", 5) + b"\0a\0bc" + metadata,
    ]  # fmt: skip
    for mechanism in _MECHANISMS[1:]:
        first, last = _conversations(mechanism)[0]
        head = encode_request_raw(17, 1, 2, "c", encode_handshake(mechanism))
        tokens = [encode_request_raw(36, 1, 3, "c", encode_authenticate(1, each)) for each in (first, last)]
        found += [head + b"".join(tokens) + metadata, head + tokens[0] + head, head + b"".join(tokens) * 2]
    return [bytes((number & 7,)) + each for number, each in enumerate(found)]


# -- requests about access control lists ---------------------------------------------------------------------


def _make_acl_requests() -> Run:
    """Bodies of DescribeAcls, CreateAcls and DeleteAcls: what may become an entry is found by its own filter and
    decides as it says; what may not is refused before it is one."""
    from holdfast.broker.handlers.acls import bindings, filters, wanted
    from holdfast.protocol.framing import decode_request
    from holdfast.security.acls import AclFilter, filter_refusal, refusal
    from holdfast.security.authorizer import Authorizer
    from holdfast.security.principal import ANONYMOUS
    from holdfast.security.resources import Operation, PatternKind, Permission

    kinds = _acl_kinds()

    def created(request: Any) -> Any:
        acls = [acl for acl in bindings(request) if refusal(acl) is None]
        authorizer = Authorizer().with_changes(acls)
        for acl in acls:
            resource, entry = acl.resource, acl.entry
            assert resource.pattern in (PatternKind.LITERAL, PatternKind.PREFIXED)
            assert AclFilter(resource.kind, resource.name, resource.pattern, entry.principal, entry.host).matches(acl)
            found = authorizer.decide(ANONYMOUS, "h", Operation.READ, resource.kind, resource.name)
            assert not found.allowed or found.acl.entry.permission is Permission.ALLOW  # type: ignore[union-attr]
        assert authorizer.with_changes((), acls) == Authorizer().with_changes(())
        return len(acls) & 3

    def run(data: bytes) -> Any:
        if not data:
            return None
        api, version = kinds[data[0] % len(kinds)]
        request = decode_request(api, version, data[1:])
        if api == 30:
            return created(request)
        asked = [wanted(request)] if api == 29 else filters(request)
        return sum(filter_refusal(each) is None for each in asked) & 3

    return run


def _acl_kinds() -> list[tuple[int, int]]:
    from holdfast.protocol.apis import SPOKEN, ApiKey

    apis = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
    return [(int(api), version) for api in apis for version in SPOKEN[api]]


def _acl_requests_corpus() -> list[bytes]:
    from holdfast.protocol.apis import request_type
    from holdfast.protocol.framing import encode_body

    found = [
        bytes((number,)) + encode_body(samples.message(request_type(*kind), variant))
        for number, kind in enumerate(_acl_kinds())
        for variant in range(3)
    ]
    kinds = _acl_kinds()
    head = bytes((kinds.index((30, 3)),))
    # One entry: a topic named t, literal, User:a from everywhere may read.
    found.append(head + b"\x02\x02\x02t\x03\x07User:a\x02*\x03\x03\x00\x00")
    return found


_WORDS = (b"n,,", b"n=", b"r=", b"a=", b"=2C", b"=3D", b"c=biws", b",p=", b"s=", b"i=4096", b"v=", b"e=", b"m=",
          _BETWEEN, b"9" * 4400, b"alice", b"tokenauth=true", base64.b64encode(_SALT), b"\0", b"\xff")  # fmt: skip
READERS = (
    Reader(
        name="logins",
        reads="what a client says in logins by PLAIN and SCRAM",
        make=_make_logins,
        corpus=_logins_corpus,
        refusals=(),
        kinds=3,
        prefix=1,
        tokens=_WORDS,
        max_size=600,
    ),
    Reader(
        name="login-answers",
        reads="what a broker says to our client in a login by SCRAM",
        make=_make_answers,
        corpus=_answers_corpus,
        refusals=(ScramError,),
        kinds=2,
        prefix=1,
        tokens=_WORDS,
        max_size=6000,
    ),
    Reader(
        name="strangers",
        reads="frames before a login, through a broker's connection and gate",
        make=_make_strangers,
        corpus=_strangers_corpus,
        refusals=(),
        kinds=8,
        prefix=1,
        tokens=(b"\0\x11", b"\0\x24", b"\0\x12", b"\0\x03", *_WORDS),
        max_size=900,
        memory_base=4 << 20,
    ),
    Reader(
        name="acl-requests",
        reads="requests that describe, make and delete access control entries",
        make=_make_acl_requests,
        corpus=_acl_requests_corpus,
        refusals=(InvalidRequestError,),
        prefix=1,
        tokens=(b"User:*", b"\2*", b"\3\3", b"\2\4", b"kafka-cluster", b"\xff\xff\xff\xff\x0f"),
        max_size=500,
    ),
)
