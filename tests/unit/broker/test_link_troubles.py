"""What the log is told of a link to the controller that a person has to mend."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from holdfast.broker.link_troubles import RETRY_S, SAID_AGAIN_S, LinkTroubles
from holdfast.client.errors import AuthenticationError
from holdfast.client.outgoing import Outgoing
from holdfast.client.security import tls_error
from holdfast.metadata.store import ControllerLocation
from holdfast.model.errors import ClusterAuthorizationFailedError, NotControllerError
from holdfast.model.listeners import SecurityProtocol
from tests.certificates import Authority

AUTHORITY = Authority.make()
NOT_ALLOWED = ClusterAuthorizationFailedError("")
JAAS = "listener.name.internal.plain.sasl.jaas.config"


def controller(protocol: str, broker_id: int = 1) -> ControllerLocation:
    return ControllerLocation(
        broker_id=broker_id, host="h", port=9, epoch=1, listener="INTERNAL",
        security_protocol=SecurityProtocol[protocol],
    )  # fmt: skip


def warned(given: dict[str, str], error: Exception, protocol: str, caplog: pytest.LogCaptureFixture) -> str:
    """The one warning of a trouble that comes twenty times."""
    caplog.set_level(logging.INFO, "holdfast.broker.link_troubles")
    troubles = LinkTroubles(Outgoing(given))
    for number in range(20):
        troubles.ended(error, controller(protocol), number * RETRY_S)
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(found) == 1, found
    return found[0]


def test_a_right_that_is_missing_names_who_this_broker_is_and_by_which_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = AUTHORITY.issue("host-1").write(tmp_path / "keys.pem")
    store = {"ssl.keystore.location": path, "listener.name.internal.ssl.client.auth": "required"}
    expected = (
        "expected that name in super.users of every broker, as it stands here and with semicolons between names, or "
        "the right to ClusterAction on the cluster"
    )
    there = (
        "controller link: broker 1, the controller, at INTERNAL://h:9 does not let this broker take part, which comes"
    )
    for given, protocol, who in (
        (store, "SSL", f"User:CN=host-1 by ssl.keystore.location='{path}'"),
        (store | {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U"}, "SSL",
         f"User:HOST-1 by ssl.keystore.location='{path}' and ssl.principal.mapping.rules"),
        (store | {"listener.name.internal.ssl.client.auth": "none"}, "SSL",
         "User:ANONYMOUS by listener.name.internal.ssl.client.auth of listener INTERNAL: it asks nobody for a cert"),
        (store | {"ssl.principal.mapping.rules": "RULE:^OU=(.*)$/$1/"}, "SSL",
         "a principal that only they know by ssl.keystore.location"),
        ({}, "PLAINTEXT", "User:ANONYMOUS by listener INTERNAL, which is PLAINTEXT: nobody logs in there"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN",
          JAAS: 'PlainLoginModule required username="broker" password="hush";'}, "SASL_PLAINTEXT",
         f"User:broker by {JAAS}"),
    ):  # fmt: skip
        caplog.clear()
        line = warned(given, NOT_ALLOWED, protocol, caplog)
        assert line.startswith(f"{there} as {who}"), line
        assert line.endswith(expected) and "hush" not in line


def test_a_login_or_a_certificate_that_is_refused_names_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = 'PlainLoginModule required username="broker" password="hush";'
    given = {"sasl.mechanism.inter.broker.protocol": "PLAIN", JAAS: line}
    found = warned(
        given, AuthenticationError("broker h:9, mechanism PLAIN: the login is refused"), "SASL_PLAINTEXT", caplog
    )
    assert found.endswith(f"the login is refused; this broker comes as User:broker by {JAAS}")
    caplog.clear()
    path = AUTHORITY.issue("host-1").write(tmp_path / "keys.pem")
    given = {
        "listener.name.internal.ssl.keystore.location": path, "ssl.client.auth": "required",
        "ssl.truststore.location": AUTHORITY.write(tmp_path / "trust.pem"),
    }  # fmt: skip
    tls = Outgoing(given).settings(controller("SSL").endpoint).tls
    assert tls is not None
    broken = ssl.SSLCertVerificationError()
    broken.verify_message = "self-signed certificate"
    error = tls_error("h:9", broken, tls.names)
    assert error is not None
    found = warned(given, error, "SSL", caplog)
    assert f"one that ssl.truststore.location='{tmp_path}/trust.pem' vouches for" in found
    assert found.endswith(f"comes as User:CN=host-1 by listener.name.internal.ssl.keystore.location='{path}'")


def test_a_trouble_is_told_anew_once_the_link_was_up_or_the_reason_is_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.broker.link_troubles")
    troubles = LinkTroubles(Outgoing())

    def warnings(broker_id: int = 1) -> int:
        caplog.clear()
        for _ in range(10):
            troubles.ended(NOT_ALLOWED, controller("PLAINTEXT", broker_id), 0.0)
        return sum(record.levelno == logging.WARNING for record in caplog.records)

    assert [warnings(), warnings(), warnings(2), warnings()] == [1, 0, 1, 0]
    troubles.is_up()
    assert warnings() == 1


def test_what_ends_by_itself_is_no_warning_and_tried_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.broker.link_troubles")
    troubles = LinkTroubles(Outgoing())
    waits = [
        troubles.ended(NotControllerError("no"), controller("PLAINTEXT"), at * SAID_AGAIN_S / 5) for at in range(10)
    ]
    assert waits == [0.0] * 10
    assert [record.levelno for record in caplog.records] == [logging.INFO] * 2
    waits = [troubles.ended(NOT_ALLOWED, controller("PLAINTEXT"), 0.0) for _ in range(3)]
    assert waits == [0.0, RETRY_S, RETRY_S]
    assert troubles.ended(AuthenticationError("no"), controller("PLAINTEXT"), 0.0) == RETRY_S
