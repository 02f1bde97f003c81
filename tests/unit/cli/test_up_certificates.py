"""Certificates of `up --secure`: who trusts them, when they are made anew, and who may read them."""

import datetime
import os
import pathlib
import ssl
import stat
import threading
from socket import socketpair

import pytest

from holdfast.cli.up_certificates import Authority, ensure_certificates, user_subject, write_secret

NOW = datetime.datetime.now(datetime.UTC)
ALL = ["ca.pem", "broker.pem", "admin.pem", "client.pem"]


def ensured(folder: pathlib.Path, hosts: tuple[str, ...] = (), days: float = 0) -> list[str]:
    return ensure_certificates(folder, hosts, ("admin", "client"), NOW + datetime.timedelta(days=days))


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """What the server knows of the client after a handshake; ssl.SSLError."""
    ours, theirs = socketpair()
    with ours, theirs:
        failed: list[Exception] = []

        def connect() -> None:
            try:
                with client.wrap_socket(theirs, server_hostname=name) as connected:
                    connected.recv(1)
            except (ssl.SSLError, OSError) as e:
                failed.append(e)

        thread = threading.Thread(target=connect)
        thread.start()
        try:
            with server.wrap_socket(ours, server_side=True) as accepted:
                certificate = accepted.getpeercert() or {}
                accepted.sendall(b"x")
        finally:
            thread.join(10)
        if failed:
            raise failed[0]
        return str(certificate.get("subject"))


def contexts(folder: pathlib.Path, user: str = "client") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "broker.pem")
    server.load_verify_locations(folder / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.load_cert_chain(folder / f"{user}.pem")
    for each in (server, client):
        each.verify_flags |= ssl.VERIFY_X509_STRICT
    return server, client


def test_both_sides_take_them_under_each_name_of_this_machine(tmp_path: pathlib.Path) -> None:
    assert ensured(tmp_path, ("10.1.2.3", "log.example")) == ALL
    server, client = contexts(tmp_path)
    for name in ("localhost", "127.0.0.1", "::1", "10.1.2.3", "log.example"):
        assert "client" in shaken(server, client, name)
    with pytest.raises(ssl.SSLError):
        shaken(server, client, "elsewhere.example")
    broker = contexts(tmp_path, "broker")[1]
    assert "holdfast" in shaken(server, broker, "localhost")  # brokers are clients of each other


def test_a_user_cannot_pass_for_a_broker(tmp_path: pathlib.Path) -> None:
    ensured(tmp_path)
    _, client = contexts(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "client.pem")
    with pytest.raises(ssl.SSLError):
        shaken(server, client, "localhost")


def test_another_start_reuses_them(tmp_path: pathlib.Path) -> None:
    ensured(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert ensured(tmp_path) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert set(before) == {*ALL, "ca.key"}


def test_what_ends_soon_is_made_anew_and_the_authority_stays(tmp_path: pathlib.Path) -> None:
    ensured(tmp_path)
    authority = (tmp_path / "ca.pem").read_bytes()
    assert ensured(tmp_path, days=790) == []
    assert ensured(tmp_path, days=800) == ["broker.pem", "admin.pem", "client.pem"]
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert ensured(tmp_path, days=3640) == ALL


def test_what_does_not_fit_is_made_anew(tmp_path: pathlib.Path) -> None:
    ensured(tmp_path)
    assert ensured(tmp_path, ("log.example",)) == ["broker.pem"]
    assert ensured(tmp_path) == []  # more names than needed do no harm
    (tmp_path / "client.pem").write_text((tmp_path / "admin.pem").read_text())
    assert ensured(tmp_path) == ["client.pem"]
    (tmp_path / "client.pem").write_text("nothing of the kind")
    assert ensured(tmp_path) == ["client.pem"]
    foreign = Authority.make(NOW).issue(user_subject("client"), (), NOW)
    (tmp_path / "client.pem").write_text(foreign)
    assert ensured(tmp_path) == ["client.pem"]
    (tmp_path / "ca.key").unlink()
    assert ensured(tmp_path) == ALL


def test_only_its_owner_reads_a_secret_whatever_the_mask_is(tmp_path: pathlib.Path) -> None:
    mask = os.umask(0)
    try:
        ensured(tmp_path)
        (tmp_path / "left.tmp").write_text("of a start that was killed")
        write_secret(tmp_path / "left", "new")
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert (tmp_path / "left").read_text() == "new"
