"""The registry's client against a registry that is served over real HTTP."""

import base64
import datetime
import ipaddress
import pickle
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.registry.client import (
    MAX_ANSWER,
    UNKNOWN_SECONDS,
    BasicAuth,
    BearerAuth,
    RegistryError,
    SchemaRegistry,
)
from tests.unit.registry.registry_server import Registered, serving


@pytest.fixture
def server() -> Iterator[Registered]:
    with serving() as registered:
        yield registered


def test_a_schema_is_asked_for_once(server: Registered) -> None:
    server.register(7, "a-value", '"long"')
    registry = SchemaRegistry(server.url + "/")
    for _ in range(3):
        found = registry.by_id(7)
        assert found is not None and (found.kind, found.text, found.references) == ("AVRO", '"long"', ())
    assert server.asked == ["/schemas/ids/7"]


def test_an_unknown_id_is_asked_for_again_after_a_while(server: Registered) -> None:
    now = [100.0]
    registry = SchemaRegistry(server.url, now=lambda: now[0])
    assert registry.by_id(7) is None and registry.by_id(7) is None
    assert len(server.asked) == 1
    server.register(7, "a-value", '"int"')
    now[0] += UNKNOWN_SECONDS
    assert registry.by_id(7) is not None
    assert len(server.asked) == 2


def test_what_is_remembered_is_bounded(server: Registered) -> None:
    for number in range(5):
        server.register(number, "s", '"int"')
    registry = SchemaRegistry(server.url, max_known=2)
    for number in (0, 1, 0, 2, 0, 1):
        assert registry.by_id(number) is not None
    assert [path[-1] for path in server.asked] == ["0", "1", "2", "1"]


def test_references_come_before_what_uses_them(server: Registered) -> None:
    def refers(*subjects: str) -> list[dict[str, object]]:
        return [{"name": f"n.{subject}", "subject": subject, "version": 1} for subject in subjects]

    server.register(1, "base/x", '"x"')
    server.register(2, "middle", '"m"', references=refers("base/x"))
    server.register(3, "top", '"t"', references=refers("middle", "base/x"))
    found = SchemaRegistry(server.url).by_id(3)
    assert found is not None and found.references == (("n.base/x", '"x"'), ("n.middle", '"m"'))
    server.register(4, "round", '"r"', references=refers("round"))
    with pytest.raises(RegistryError, match="version 1 of round refers to itself"):
        SchemaRegistry(server.url).by_id(4)
    server.register(5, "lost", '"l"', references=refers("nowhere"))
    with pytest.raises(RegistryError, match="has no /subjects/nowhere/versions/1"):
        SchemaRegistry(server.url).by_id(5)


def test_protobuf_is_asked_for_in_the_form_without_a_parser(server: Registered) -> None:
    server.register(1, "p", 'syntax = "proto3";', schemaType="PROTOBUF", serialized="Cg==")
    found = SchemaRegistry(server.url).by_id(1)
    assert found is not None and (found.kind, found.text) == ("PROTOBUF", "Cg==")
    latest = SchemaRegistry(server.url).latest("p")
    assert latest is not None and latest.schema == found


def test_the_latest_version_of_a_subject(server: Registered) -> None:
    server.register(1, "s", '"int"')
    server.register(9, "s", '"long"')
    found = SchemaRegistry(server.url).latest("s")
    assert found is not None and (found.id, found.version, found.schema.text) == (9, 2, '"long"')
    assert SchemaRegistry(server.url).latest("other") is None


def test_credentials_are_sent_and_never_shown(server: Registered) -> None:
    server.register(1, "s", '"int"')
    basic = "Basic " + base64.b64encode(b"lake:p:w d").decode()
    host = server.url.removeprefix("http://")
    for registry, expected in (
        (SchemaRegistry(server.url, auth=BasicAuth(user="lake", password="p:w d")), basic),
        (SchemaRegistry(f"http://lake:p%3Aw%20d@{host}"), basic),
        (SchemaRegistry(server.url, auth=BearerAuth(token="tok.en")), "Bearer tok.en"),
    ):
        server.authorization = expected
        assert registry.by_id(1) is not None
        server.authorization = "Basic other"
        with pytest.raises(RegistryError, match=r"answers /schemas/ids/2 with 401 \(authentication\)") as caught:
            registry.by_id(2)
        assert server.url in str(caught.value) and "p:w" not in str(caught.value) and "lake" not in str(caught.value)
    assert "secret" not in repr(BasicAuth(user="u", password="secret")) + repr(BearerAuth(token="secret"))


def test_a_registry_that_is_not_there_is_an_error_with_its_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RegistryError, match=f"schema registry http://127.0.0.1:{port} cannot be asked"):
        SchemaRegistry(f"http://127.0.0.1:{port}").by_id(1)


def test_a_registry_that_says_nothing_is_an_error_with_its_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryError, match=f"schema registry {url} cannot be asked .*timed out"):
            SchemaRegistry(url, timeout=0.05).by_id(1)


def test_the_next_address_is_asked_where_one_does_not_answer(server: Registered) -> None:
    server.register(1, "s", '"int"')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert SchemaRegistry(f"http://127.0.0.1:{port}, {server.url}").by_id(1) is not None


@pytest.mark.parametrize(
    ("code", "headers", "body", "message"),
    [
        (500, {}, b'{"error_code": 50001, "message": "store is down"}', "with 500: store is down"),
        (404, {}, b"<html>not here</html>", "with 404: <html>not here"),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", "with 302"),
        (200, {}, b"[]", "is not a JSON object"),
        (200, {}, b'{"id": 1}', "has no schema"),
        (200, {"Content-Length": "99"}, b'{"schema": ', "is not a JSON object"),
        (200, {}, b" " * (MAX_ANSWER + 1), "more than"),
    ],
)
def test_other_answers_are_errors_and_not_unknown_ids(
    server: Registered, code: int, headers: dict[str, str], body: bytes, message: str
) -> None:
    server.answers["/schemas/ids/1"] = (code, headers | {"Connection": "close"}, body)
    with pytest.raises(RegistryError) as caught:
        SchemaRegistry(server.url).by_id(1)
    assert message in str(caught.value) and server.url in str(caught.value)


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate for 127.0.0.1, and the PEM text that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(pem + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context, pem.decode()


def test_tls_trusts_the_given_ca_and_no_other(tmp_path: Path) -> None:
    context, pem = certificate(tmp_path)
    with serving(context) as server:
        server.register(1, "s", '"int"')
        registry = pickle.loads(pickle.dumps(SchemaRegistry(server.url, ca=pem)))
        assert registry.by_id(1) is not None
        with pytest.raises(RegistryError, match=r"cannot be asked .*CERTIFICATE_VERIFY_FAILED"):
            SchemaRegistry(server.url).by_id(1)


@pytest.mark.parametrize("url", ["", "ftp://host", "host:8081", "http://", "file:///etc/passwd", "http://h?x=1"])
def test_what_is_no_url_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected http://host:port"):
        SchemaRegistry(url)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="no PEM text"):
        SchemaRegistry("http://h", ca="nonsense")
    with pytest.raises(ValueError, match="expected more than 0"):
        SchemaRegistry("http://h", timeout=0)
    with pytest.raises(ValueError, match="bearer token"):
        BearerAuth(token="a\nb")
