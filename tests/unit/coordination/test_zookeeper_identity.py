"""Why an ensemble does not let a broker in, or does not answer: in words that name the keys, and no password."""

from __future__ import annotations

import pytest

from holdfast.coordination import zookeeper_identity
from holdfast.coordination.zookeeper_settings import Digest, Sasl, Tls, ZooKeeperSettings

DIGEST = Digest(user="hf", password="hush")
SASL = Sasl(mechanism="DIGEST-MD5", user="kafka", password="hush")
KERBEROS = Sasl(mechanism="GSSAPI", service="zk")
TLS = Tls(keystore="/k.pem", keystore_password="hush", truststore="/t.pem")
OF_DIGEST = "user hf with the password that is given (zookeeper.auth.digest)"
OF_TLS = "the subject of the certificate in /k.pem (zookeeper.ssl.keystore.location)"
ONE_SUBJECT = "certificates of several hosts are one only with one subject"
ALERT = "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)"
VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


def of(digest: Digest | None = None, sasl: Sasl | None = None, tls: Tls | None = None) -> ZooKeeperSettings:
    return ZooKeeperSettings(servers="one:1", digest=digest, sasl=sasl, tls=tls)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (of(), "nobody: it has no zookeeper.sasl.mechanism, zookeeper.auth.digest or zookeeper.ssl.keystore.location"),
        (of(tls=Tls(truststore="/t.pem")), "nobody: it has no zookeeper.sasl.mechanism"),
        (of(digest=DIGEST), OF_DIGEST),
        (of(sasl=SASL), "user kafka (zookeeper.sasl.username)"),
        (of(sasl=KERBEROS), "whom the Kerberos tickets of this process are of (zookeeper.sasl.mechanism=GSSAPI)"),
        (of(sasl=Sasl(mechanism="GSSAPI", principal="b@R")), "principal b@R (zookeeper.sasl.principal)"),
        (of(digest=DIGEST, tls=TLS), f"{OF_DIGEST} and {OF_TLS}"),
    ],
)
def test_an_acl_of_others_says_who_this_one_is(settings: ZooKeeperSettings, expected: str) -> None:
    said = zookeeper_identity.not_allowed(settings)
    assert said.startswith(f"its ACL does not allow it. This client is {expected}")
    assert "all brokers of a cluster need one identity" in said
    assert ONE_SUBJECT not in said and "hush" not in said


def test_certificates_of_several_hosts_are_several_identities() -> None:
    said = zookeeper_identity.not_allowed(of(tls=TLS))
    assert f"This client is {OF_TLS}: " in said and ONE_SUBJECT in said
    assert said.endswith("else zookeeper.sasl.mechanism or zookeeper.auth.digest beside them")


@pytest.mark.parametrize(
    ("settings", "who", "expected"),
    [
        (
            of(sasl=SASL),
            "user kafka (zookeeper.sasl.username)",
            "user_NAME), with its password in zookeeper.sasl.passw",
        ),
        (of(sasl=KERBEROS), "whom the Kerberos tickets", "the principal zk/HOST (zookeeper.sasl.service.name)"),
        (
            of(),
            "nobody: it has no",
            "expected zookeeper.sasl.mechanism, if its servers let in only who logs in by SASL",
        ),
    ],
)
def test_credentials_that_are_not_accepted(settings: ZooKeeperSettings, who: str, expected: str) -> None:
    said = zookeeper_identity.not_accepted(settings)
    assert said.startswith(f"the ensemble does not accept the credentials of {who}")
    assert expected in said and "hush" not in said


@pytest.mark.parametrize(
    ("tls", "trouble", "expected"),
    [
        (None, "socket connection broken", "zookeeper.ssl.client.enable=true for such a port"),
        (None, "[Errno 104] Connection reset by peer", "zookeeper.ssl.client.enable=true for such a port"),
        (None, "[Errno 111] Connection refused", None),
        (TLS, "[Errno 111] Connection refused", None),
        (TLS, "", None),
        (TLS, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol", "that takes TLS (secureCli"),
        (TLS, "[SSL: WRONG_VERSION_NUMBER] wrong version number", "zookeeper.ssl.client.enable=true: expected a port"),
        (Tls(), "socket connection broken", "its server may ask for a certificate: zookeeper.ssl.keystore.location is"),
        (Tls(), ALERT, "the servers ask for a certificate: expected zookeeper.ssl.keystore.location, which is not set"),
        (TLS, ALERT, "do not take the certificate in /k.pem (zookeeper.ssl.keystore.location): expected"),
        (TLS, "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version", None),
        (TLS, f"{VERIFY}unable to get local issuer", "in zookeeper.ssl.truststore.location, which is /t.pem"),
        (Tls(), f"{VERIFY}self-signed certificate", "in zookeeper.ssl.truststore.location, which is not set"),
        (TLS, f"{VERIFY}Hostname mismatch, certificate", "an empty zookeeper.ssl.endpoint.identification.algorithm"),
        (TLS, f"{VERIFY}IP address mismatch, certificate", "for the name that zookeeper.connect has"),
    ],
)
def test_a_server_that_does_not_answer(tls: Tls | None, trouble: str, expected: str | None) -> None:
    said = zookeeper_identity.no_answer(of(tls=tls), trouble)
    assert (said == "") if expected is None else (expected in said)
