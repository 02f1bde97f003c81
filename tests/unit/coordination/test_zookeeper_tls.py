"""Files for TLS to an ensemble that cannot be used: told before anything is connected, by key and by name."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.coordination import zookeeper_tls
from holdfast.coordination.stores import ensemble_clients
from holdfast.coordination.zookeeper_settings import Tls, ZooKeeperSettings
from holdfast.model.errors import ConfigError

CERTIFICATES = Path(__file__).parents[2] / "zookeeper" / "certificates"
AUTHORITY, CLIENT, LOCKED = (str(CERTIFICATES / f"{name}.pem") for name in ("authority", "client", "client-locked"))
KEYSTORE, TRUSTSTORE = "zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"


@pytest.mark.parametrize(
    "tls",
    [
        Tls(),
        Tls(truststore=AUTHORITY),
        Tls(keystore=CLIENT, truststore=AUTHORITY),
        Tls(keystore=CLIENT, keystore_password="needless"),
        Tls(keystore=LOCKED, keystore_password="hush"),
    ],
)
def test_what_can_be_used_is_not_refused(tls: Tls) -> None:
    zookeeper_tls.check(tls)


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        (
            Tls(keystore="/none.pem"),
            f"{KEYSTORE}=/none.pem: No such file or directory: expected a PEM file with a priv",
        ),
        (Tls(truststore="/none.pem"), f"{TRUSTSTORE}=/none.pem: No such file or directory: expected a PEM file with"),
        (Tls(truststore="/"), f"{TRUSTSTORE}=/: Is a directory: expected a PEM file"),
        (Tls(keystore=AUTHORITY), f"{KEYSTORE}={AUTHORITY} has no private key: expected a PEM file with a private key"),
        (
            Tls(truststore="{key}"),
            f"{TRUSTSTORE}={{key}} has no certificate: expected a PEM file with the certificates",
        ),
        (Tls(keystore="{key}"), f"{KEYSTORE}={{key}} has no certificate: expected"),
        (Tls(keystore="{other}"), f"{KEYSTORE}={{other}}: its key is not that of its first certificate: expected"),
        (Tls(keystore="{broken}"), f"{KEYSTORE}={{broken}} cannot be read ("),
        (Tls(truststore="{broken}"), f"{TRUSTSTORE}={{broken}} cannot be read ("),
        (Tls(keystore=LOCKED), f"{KEYSTORE}={LOCKED}: its key is encrypted: expected zookeeper.ssl.keystore.password"),
        (
            Tls(keystore=LOCKED, keystore_password="guess"),
            f"{KEYSTORE}={LOCKED}: zookeeper.ssl.keystore.password does not open its key: expected the password of",
        ),
        (
            Tls(keystore=LOCKED, keystore_password="guess" * 1000),
            f"{KEYSTORE}={LOCKED}: zookeeper.ssl.keystore.password does not open its key",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_key_and_name(tmp_path: Path, tls: Tls, expected: str) -> None:
    text = Path(CLIENT).read_text()
    key = re.findall(r"-----BEGIN [^-]*PRIVATE KEY-----.*?-----END [^-]*-----\n", text, re.DOTALL)[0]
    files = {
        "key": key,
        "other": key + Path(AUTHORITY).read_text(),
        "broken": key.replace("\n", "\n!", 1) + "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    }
    places = {name: str(tmp_path / f"{name}.pem") for name in files}
    for name, content in files.items():
        Path(places[name]).write_text(content)
    at = [path and path.format(**places) for path in (tls.keystore, tls.truststore)]
    given = Tls(keystore=at[0], truststore=at[1], keystore_password=tls.keystore_password)
    with pytest.raises(ConfigError, match=re.escape(expected.format(**places))) as caught:
        zookeeper_tls.check(given)
    assert "guess" not in str(caught.value)


def test_an_ensemble_is_refused_before_anything_connects() -> None:
    """Also where its client would be made anew for each session: a file that goes later is not looked for then."""
    with pytest.raises(ConfigError, match=re.escape(f"{TRUSTSTORE}=/none.pem")):
        ensemble_clients(ZooKeeperSettings(servers="none:1", tls=Tls(truststore="/none.pem")))


def test_nobody_is_asked_for_a_password_at_the_terminal() -> None:
    """Neither by the look before, nor by a connection to a server whose key was encrypted since."""
    code = f"""
import sys
from holdfast.coordination import zookeeper_tls
from holdfast.coordination.kazoo_session import OneSession
from holdfast.coordination.zookeeper_settings import Tls, ZooKeeperSettings
tls = Tls(keystore={LOCKED!r})
try:
    zookeeper_tls.check(tls)
except Exception as e:
    print(e)
session = OneSession(ZooKeeperSettings(servers="127.0.0.1:1", tls=tls), lambda state: None)
try:
    session.handler.create_connection(
        address=("127.0.0.1", 1), timeout=5, use_ssl=True, certfile=session.certfile, keyfile=session.keyfile,
        keyfile_password=session.keyfile_password,
    )
except Exception as e:
    print(type(e).__name__)
"""
    ours, theirs = pty.openpty()  # OpenSSL asks at the controlling terminal, which the child's is
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, timeout=60, check=False,
            start_new_session=True, text=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )  # fmt: skip
        os.set_blocking(ours, False)
        try:
            shown = os.read(ours, 4096)
        except BlockingIOError:
            shown = b""
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"pass phrase" not in shown
    refused, error = ran.stdout.splitlines()
    assert "its key is encrypted: expected zookeeper.ssl.keystore.password" in refused
    assert error == "SSLError", "it came as far as the key"
