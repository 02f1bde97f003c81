"""The files that `up --secure` gives to clients."""

import datetime
import json
import pathlib
import stat

import confluent_kafka
import pytest

from holdfast.cli.up_certificates import ensure_certificates
from holdfast.cli.up_secrets import SecretsError, users_of, write_client_files
from holdfast.client.security_options import parse_security
from holdfast.model.config import read_properties
from holdfast.model.listeners import SecurityProtocol

FILES = {
    "client.properties", "client-mtls.properties", "admin.properties", "librdkafka.properties",
    "librdkafka-mtls.properties",
}  # fmt: skip


def made(data_dir: pathlib.Path) -> dict[str, dict[str, str]]:
    folder = data_dir / "secure"
    folder.mkdir(exist_ok=True, parents=True)
    ensure_certificates(folder, (), ("admin", "client"), datetime.datetime.now(datetime.UTC))
    write_client_files(data_dir, users_of(folder), by_scram=["127.0.0.1:9092"], by_certificate=["127.0.0.1:9142"])
    return {path.name: read_properties(path.read_text()) for path in data_dir.glob("*.properties")}


def test_passwords_are_made_once(tmp_path: pathlib.Path) -> None:
    first = users_of(tmp_path)
    assert set(first) == {"admin", "client"}
    assert len({*first.values()}) == 2
    assert all(len(password) >= 32 for password in first.values())
    assert users_of(tmp_path) == first
    (tmp_path / "users.json").write_text(json.dumps({"admin": "mine"}))
    assert users_of(tmp_path)["admin"] == "mine"
    (tmp_path / "users.json").write_text("[]")
    with pytest.raises(SecretsError, match=r"users\.json: expected"):
        users_of(tmp_path)


def test_our_client_takes_the_files_as_they_are(tmp_path: pathlib.Path) -> None:
    files = made(tmp_path / "a directory")
    assert set(files) == FILES
    passwords = users_of(tmp_path / "a directory/secure")
    for name, user in (("client.properties", "client"), ("admin.properties", "admin")):
        security = parse_security(files[name])
        assert security is not None and security.sasl is not None and security.tls is not None
        assert (security.protocol, security.sasl.mechanism) == (SecurityProtocol.SASL_SSL, "SCRAM-SHA-512")
        assert (security.sasl.user, security.sasl.password) == (user, passwords[user])
    security = parse_security(files["client-mtls.properties"])
    assert security is not None and security.tls is not None and security.tls.key is not None
    assert security.protocol is SecurityProtocol.SSL and security.sasl is None
    assert files["client-mtls.properties"]["bootstrap.servers"] == "127.0.0.1:9142"


def test_librdkafka_takes_the_files_as_they_are(tmp_path: pathlib.Path) -> None:
    files = made(tmp_path)
    for name in ("librdkafka.properties", "librdkafka-mtls.properties"):
        assert confluent_kafka.Producer(files[name])  # it reads keys and certificates now, and refuses a wrong name


def test_only_the_owner_reads_them(tmp_path: pathlib.Path) -> None:
    made(tmp_path)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FILES} == {0o600}
