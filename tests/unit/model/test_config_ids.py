"""The keys of a broker's id (KIP-426): what they take, and what is told of them."""

import pytest

from holdfast.model.config import BrokerConfig
from holdfast.model.config_notes import ineffective
from holdfast.model.errors import ConfigError

FIXED_PORT = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def test_a_configuration_needs_no_id_and_can_be_given_one() -> None:
    config = BrokerConfig.parse({"log.dirs": "/d"})
    assert config.given_id is None
    assert BrokerConfig.parse({"broker.id": "-1"}).given_id is None
    assert BrokerConfig.parse({"broker.id": "0"}).given_id == 0
    found = config.identified(1001)
    assert (found.given_id, found.node_id, found.log_dirs) == (1001, 1001, ("/d",))
    assert BrokerConfig.parse({"broker.id": "-1"}).identified(7).node_id == 7


@pytest.mark.parametrize("key", ["hostname", "host:port", "log.dir", "mac", "none", "fixed:rack7-slot3"])
def test_K426_15_the_key_of_a_host_is_one_of_these(key: str) -> None:
    assert BrokerConfig.parse({**FIXED_PORT, "broker.id.host.key": key}).str("broker.id.host.key") == key


@pytest.mark.parametrize("key", ["hostnme", "fixed:", "fixed:two words", "10.0.0.1", "host"])
def test_another_key_of_a_host_is_refused_with_those_that_are(key: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.id\.host\.key.*hostname, host:port, log\.dir, mac, none or fixed:"):
        BrokerConfig.parse({**FIXED_PORT, "broker.id.host.key": key})


def test_a_port_that_changes_is_no_key() -> None:
    with pytest.raises(ConfigError, match=r"host:port of broker\.id\.host\.key.*127\.0\.0\.1:0.*expected a fixed one"):
        BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "broker.id.host.key": "host:port"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reserved.broker.max.id", "-1"),
        ("reserved.broker.max.id", "2000000001"),
        ("broker.id", "-2"),
        ("node.id", "-1"),
    ],
)
def test_numbers_that_no_broker_has_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{value} .*{key}"):
        BrokerConfig.parse({key: value})


def test_a_given_id_that_a_new_broker_may_get_is_told() -> None:
    def told(**keys: str) -> list[str]:
        lines = ineffective(BrokerConfig.parse({name.replace("_", "."): value for name, value in keys.items()}))
        return [line for line in lines if "id" in line]

    assert told(node_id="1000") == []
    assert told(node_id="1001") == [
        "node.id=1001 is above reserved.broker.max.id=1000: brokers without one get numbers from there on. "
        "Expected 1000 at most, or broker.id.generation.enable=false"
    ]
    assert told(node_id="1001", reserved_broker_max_id="1001") == []
    assert told(node_id="1001", broker_id_generation_enable="false") == []
    assert told(node_id="1", broker_id_adopt_missing="true") == [
        "broker.id.adopt.missing=true has no effect: node.id=1 is given"
    ]
    assert told(broker_id_adopt_missing="true") == []
