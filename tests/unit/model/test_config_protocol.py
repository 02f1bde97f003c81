"""inter.broker.protocol.version: which there are, and what is refused with an older one (K112-97)."""

import pytest

from holdfast.model.config import BrokerConfig
from holdfast.model.config_notes import ineffective
from holdfast.model.errors import ConfigError

OLD = {"inter.broker.protocol.version": "0.1-IV0"}
TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9292",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


def test_K112_97_the_newest_protocol_is_spoken_unless_an_older_one_is_given() -> None:
    assert BrokerConfig.parse({}).protocol_is_newest
    assert BrokerConfig.parse({"inter.broker.protocol.version": "0.1-IV1"} | TWO).protocol_is_newest
    assert not BrokerConfig.parse(OLD).protocol_is_newest
    with pytest.raises(ConfigError, match=r"3\.9-IV0.*inter\.broker\.protocol\.version.*0\.1-IV0, 0\.1-IV1"):
        BrokerConfig.parse({"inter.broker.protocol.version": "3.9-IV0"})


def test_K112_97_what_the_software_before_would_not_know_is_refused_with_its_protocol() -> None:
    with pytest.raises(ConfigError, match=r"0\.1-IV0 knows one listener, PLAINTEXT, .*9092,? .*9292: expected"):
        BrokerConfig.parse(OLD | TWO)
    named = {"listeners": "INTERNAL://127.0.0.1:9092"}
    with pytest.raises(ConfigError, match=r"knows one listener, PLAINTEXT, .*INTERNAL://127\.0\.0\.1:9092: expected"):
        BrokerConfig.parse(OLD | {k: v for k, v in TWO.items() if k != "listeners"} | named)
    with pytest.raises(ConfigError, match=r"0\.1-IV0 knows the store embedded, and metadata\.store is zookeeper"):
        BrokerConfig.parse(OLD | {"metadata.store": "zookeeper", "zookeeper.connect": "h:2181"})
    # A listener that is told to nobody is nobody's business.
    assert BrokerConfig.parse(
        OLD | TWO | {"advertised.listeners": "PLAINTEXT://h:9092", "inter.broker.listener.name": "PLAINTEXT"}
    )


def test_K112_97_a_key_that_the_protocol_makes_idle_is_told() -> None:
    given = OLD | {"node.id": "1", "broker.id.host.key": "hostname"}
    assert "broker.id.host.key has no effect: inter.broker.protocol.version is 0.1-IV0" in ineffective(
        BrokerConfig.parse(given)
    )
    assert [line for line in ineffective(BrokerConfig.parse(OLD | {"node.id": "1"})) if "host" in line] == []
