"""What the keys zookeeper.* mean together, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from holdfast.coordination.zookeeper_settings import Digest, Sasl, Tls, ZooKeeperSettings
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError

BASE = {"metadata.store": "zookeeper", "zookeeper.connect": "one:2181,two:2182,[::1]:2183/kafka/a"}


def settings(**given: str) -> ZooKeeperSettings:
    keys = {"zookeeper." + name.replace("_", "."): value for name, value in given.items()}
    return ZooKeeperSettings.of(BrokerConfig.parse(BASE | keys))


def test_servers_chroot_and_kafkas_defaults() -> None:
    assert settings() == ZooKeeperSettings(
        servers="one:2181,two:2182,[::1]:2183",
        chroot="/kafka/a",
        session_timeout_ms=18_000,
        connection_timeout_ms=18_000,
        max_in_flight=10,
    )
    assert settings().number_of_servers == 3
    assert settings(connect="one:1").chroot == ""


def test_a_connection_is_waited_for_as_long_as_a_session_lasts_unless_said() -> None:
    assert settings(session_timeout_ms="4000").connection_timeout_ms == 4000
    both = settings(session_timeout_ms="4000", connection_timeout_ms="100", max_in_flight_requests="3")
    assert (both.connection_timeout_ms, both.max_in_flight) == (100, 3)


def test_credentials_are_read_and_never_shown() -> None:
    found = settings(auth_digest="holdfast:hu:sh", set_acl="true")
    assert found.digest == Digest(user="holdfast", password="hu:sh") and found.set_acl
    sasl = settings(sasl_mechanism="DIGEST-MD5", sasl_username="u", sasl_password="hush")
    assert sasl.sasl == Sasl(mechanism="DIGEST-MD5", user="u", password="hush")
    tls = settings(
        ssl_client_enable="true", ssl_keystore_location="/k.pem", ssl_keystore_password="hush",
        ssl_truststore_location="/t", ssl_truststore_type="PEM",
    )  # fmt: skip
    assert tls.tls == Tls(keystore="/k.pem", keystore_password="hush", truststore="/t")
    assert all("hush" not in repr(each) and "hu:sh" not in repr(each) for each in (found, sasl, tls))


def test_other_credentials() -> None:
    kerberos = settings(sasl_mechanism="GSSAPI", sasl_principal="b@REALM", sasl_service_name="zk").sasl
    assert kerberos == Sasl(mechanism="GSSAPI", principal="b@REALM", service="zk")
    lax = settings(ssl_client_enable="true", ssl_endpoint_identification_algorithm="").tls
    assert lax == Tls(check_hostname=False)


def test_what_is_secret_as_with_kafka() -> None:
    found = settings()
    secret = [
        "/config/users",
        "/config/users/u",
        "/config/brokers/1",
        "/delegation_token/tokens",
        "/holdfast/scram_secret",
    ]
    every = ("/config/users2", "/brokers", "/holdfast/brokers", "/delegation_token", *secret)
    assert [path for path in every if found.is_sensitive(path)] == secret


def test_what_is_anybodys_as_with_kafka() -> None:
    every = ["/", "/consumers", "/consumers/c", "/config/users"]
    assert all(map(settings().is_open, every))
    assert list(filter(settings(auth_digest="u:p", set_acl="true").is_open, every)) == ["/consumers"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"set_acl": "true"}, "zookeeper.set.acl=true, but nothing says who this broker is: expected zookeeper.auth"),
        ({"auth_digest": "hush"}, "[hidden] for configuration zookeeper.auth.digest: expected USER:PASSWORD"),
        ({"auth_digest": ":hush"}, "[hidden] for configuration zookeeper.auth.digest: expected USER:PASSWORD"),
        ({"sasl_mechanism": "PLAIN"}, "String must be one of: DIGEST-MD5, GSSAPI"),
        ({"sasl_mechanism": "DIGEST-MD5"}, "zookeeper.sasl.mechanism=DIGEST-MD5 without zookeeper.sasl.username"),
        ({"sasl_username": "u"}, "zookeeper.sasl.username is set: expected nothing with no zookeeper.sasl.mechanism"),
        (
            {"sasl_mechanism": "GSSAPI", "sasl_password": "hush"},
            "zookeeper.sasl.password is set: expected nothing with zookeeper.sasl.mechanism=GSSAPI",
        ),
        (
            {"ssl_keystore_location": "/k.pem"},
            "zookeeper.ssl.keystore.location=/k.pem without zookeeper.ssl.client.enable=true: nothing would be",
        ),
        (
            {"ssl_client_enable": "true", "ssl_truststore_location": "/t.jks"},
            "Invalid value /t.jks for configuration zookeeper.ssl.truststore.location: expected a file *.pem",
        ),
        ({"ssl_keystore_type": "JKS"}, "String must be one of: PEM"),
        ({"session_timeout_ms": "0"}, "Value must be at least 1"),
        ({"max_in_flight_requests": "0"}, "Value must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
        settings(**given)
    assert "hush" not in str(caught.value)


def test_without_an_ensemble_there_are_no_settings() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is not set: expected HOST:PORT"):
        ZooKeeperSettings.of(BrokerConfig.parse({}))


def test_a_broker_does_not_load_kazoo_before_it_is_asked_for_an_ensemble() -> None:
    code = "import sys, holdfast.broker.process, holdfast.coordination.stores; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
