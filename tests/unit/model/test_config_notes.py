"""What a person hears of a configuration when a broker starts."""

import pytest

from holdfast.model.config import BrokerConfig
from holdfast.model.config_notes import open_to_strangers


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
