"""SET, DELETE, APPEND and SUBTRACT, by the layer that a list comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from holdfast.broker.handlers.config_operations import APPEND, DELETE, SET, SUBTRACT, override
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError, InvalidRequestError
from holdfast.model.types import BrokerId

TOPIC, BROKER, GROUP = 2, 4, 32


@dataclass
class Metadata:
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[BrokerId | None, Mapping[str, str]] = field(default_factory=dict)


@dataclass
class Broker:
    broker_id: BrokerId = 1
    config: BrokerConfig = field(default_factory=BrokerConfig)
    metadata: Metadata = field(default_factory=Metadata)


@dataclass
class Asked:
    """One key of a request."""

    name: str
    config_operation: int
    value: str | None


def result(
    operation: int, value: str | None, *, key: str = "cleanup.policy", kind: int = TOPIC, name: str = "t",
    broker: Broker | None = None,
) -> str | None:  # fmt: skip
    found, text = override(broker or Broker(), kind, name, Asked(key, operation, value))
    assert found == key
    return text


def test_set_and_delete_look_at_nothing() -> None:
    assert result(SET, "compact") == "compact"
    assert result(DELETE, None) is None
    assert result(DELETE, None, key="no.such.key") is None


def test_a_topics_list_is_its_override_or_what_its_broker_keys_give() -> None:
    assert result(APPEND, "compact") == "delete,compact"
    assert result(APPEND, "delete") == "delete"
    assert result(SUBTRACT, "delete") == ""
    own = Broker(metadata=Metadata(topic_configs={"t": {"cleanup.policy": "compact"}}))
    assert result(APPEND, "delete", broker=own) == "compact,delete"
    assert result(SUBTRACT, "delete", broker=own) == "compact"
    everywhere = Broker(config=BrokerConfig.parse({"log.cleanup.policy": "compact"}))
    assert result(APPEND, "delete", broker=everywhere) == "compact,delete"
    assert result(APPEND, "0:1, 1:2", key="leader.replication.throttled.replicas") == "0:1,1:2"


POLICY = "log.cleanup.policy"


@pytest.mark.parametrize(
    ("name", "kept", "expected"),
    [
        ("", {}, "delete,compact"),
        ("", {None: {POLICY: ""}}, "compact"),
        ("1", {}, "compact"),  # its own properties file
        ("2", {}, "delete,compact"),
        ("2", {None: {POLICY: ""}}, "compact"),
        ("2", {BrokerId(2): {POLICY: "compact"}, None: {POLICY: ""}}, "compact"),
        ("9" * 5000, {}, "delete,compact"),
        ("two", {}, "delete,compact"),
    ],
)
def test_a_brokers_list_is_that_of_the_broker_that_is_meant(
    name: str, kept: Mapping[BrokerId | None, Mapping[str, str]], expected: str
) -> None:
    broker = Broker(config=BrokerConfig.parse({POLICY: "compact"}), metadata=Metadata(broker_configs=kept))
    assert result(APPEND, "compact", key=POLICY, kind=BROKER, name=name, broker=broker) == expected


@pytest.mark.parametrize(
    ("kind", "key"),
    [(TOPIC, "retention.ms"), (TOPIC, "no.such"), (BROKER, "num.partitions"), (GROUP, "cleanup.policy")],
)
def test_what_is_no_list_is_refused_in_kafkas_words(kind: int, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^Can't SUBTRACT to key {key} because its type is not LIST.$"):
        result(SUBTRACT, "5", key=key, kind=kind)


def test_no_value_and_no_such_operation() -> None:
    with pytest.raises(InvalidRequestError, match=r"Null value not supported for : cleanup\.policy"):
        result(SET, None)
    with pytest.raises(InvalidRequestError, match=r"Null value not supported for : cleanup\.policy"):
        result(APPEND, None)
    with pytest.raises(InvalidRequestError, match=r"operation 9 on cleanup\.policy"):
        result(9, "x")
