"""What a person hears of a configuration when a broker starts."""

import re

import pytest

from holdfast.model.config import BrokerConfig
from holdfast.model.config_notes import ineffective, open_to_strangers
from holdfast.model.errors import ConfigError


@pytest.mark.parametrize(
    ("listeners", "told"),
    [
        ("PLAINTEXT://127.0.0.1:9092", 0),
        ("PLAINTEXT://localhost:9092", 0),
        ("PLAINTEXT://[::1]:9092", 0),
        ("PLAINTEXT://:9092", 1),
        ("PLAINTEXT://0.0.0.0:9092", 1),
        ("PLAINTEXT://10.0.0.1:9092,INTERNAL://127.0.0.1:9093", 1),
        ("PLAINTEXT://10.0.0.1:9092,INTERNAL://10.0.0.1:9093", 2),
    ],
)
def test_a_listener_that_others_reach_without_a_login_is_told(listeners: str, told: int) -> None:
    properties = {
        "node.id": "1",
        "log.dirs": "/d",
        "listeners": listeners,
        "advertised.listeners": "PLAINTEXT://h:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    lines = open_to_strangers(BrokerConfig.parse(properties))
    assert len(lines) == told
    assert all("nobody logs in" in line and "docs/security.md" in line for line in lines)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "speaks as User:ANONYMOUS"),
        ({"super.users": "User:a;User:ANONYMOUS"}, "may do everything"),
        ({"listener.security.protocol.map": "CLIENTS:SSL"}, "speaks as User:ANONYMOUS"),
        ({"listener.security.protocol.map": "CLIENTS:SSL", "listener.name.clients.ssl.client.auth": "required"}, None),
        ({"listener.security.protocol.map": "CLIENTS:SASL_SSL"}, None),
    ],
)
def test_what_a_stranger_may_is_told(more: dict[str, str], told: str | None) -> None:
    properties = {
        "node.id": "1",
        "log.dirs": "/d",
        "listeners": "CLIENTS://10.0.0.1:9092",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        **more,
    }
    lines = open_to_strangers(BrokerConfig.parse(properties))
    assert [told in line for line in lines if told is not None] == ([] if told is None else [True])
    assert len(lines) == (told is not None)


def test_brokers_that_could_not_register_are_told() -> None:
    values = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "listeners": "PLAINTEXT://:9092"}
    why = (
        "super.users does not name User:ANONYMOUS, who every broker is on listener PLAINTEXT, which is PLAINTEXT: "
        "no broker can register"
    )
    assert why in ineffective(BrokerConfig.parse(values))
    assert why not in ineffective(BrokerConfig.parse(values | {"super.users": "User:a; User:ANONYMOUS"}))
    assert "super.users=User:a has no effect: authorizer.class.name is not given" in (
        ineffective(BrokerConfig.parse({"super.users": "User:a"}))
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("authorizer.class.name", "com.other.Authorizer"), ("super.users", "alice"), ("super.users", "User:a,b;c")],
)
def test_other_authorizers_and_what_is_no_principal_are_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{re.escape(value)}.* {re.escape(key)}|{re.escape(key)}.*{re.escape(value)}"
    ):
        BrokerConfig.parse({key: value})
