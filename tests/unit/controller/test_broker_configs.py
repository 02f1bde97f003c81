"""Configurations of a broker that the controller keeps: what of them may be set, and what may be taken away."""

from __future__ import annotations

import pytest

from holdfast.controller import events
from holdfast.metadata.records import ConfigRecord, ResourceType
from holdfast.model.config import BrokerConfig
from holdfast.model.config_sasl_keys import AT_A_START
from holdfast.model.errors import HoldfastError, InvalidRequestError
from tests.unit.controller.test_elections import Cluster

KEYS = (*AT_A_START, *(f"listener.name.clients.{key}" for key in AT_A_START[:2]))


def alter(cluster: Cluster, key: str, value: str | None) -> HoldfastError | None:
    change = events.ConfigChange(resource_type=ResourceType.BROKER, resource_name="1", values=((key, value),))
    error: HoldfastError | None = cluster.ask(events.AlterConfigs(changes=(change,))).resources[0].error
    return error


@pytest.mark.parametrize("key", KEYS)
def test_what_a_listener_takes_cannot_be_set_while_it_is_there(key: str) -> None:
    error = alter(Cluster(), key, "PLAIN")
    assert isinstance(error, InvalidRequestError)
    assert error.message == (
        f"Cannot update these configs dynamically: [{key}]; expected in the file of the broker, which is started again "
        "then"
    )


@pytest.mark.parametrize("key", KEYS)
def test_what_an_earlier_version_has_taken_of_it_has_no_effect_and_can_be_removed(key: str) -> None:
    cluster = Cluster()
    stored = ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name=key, value="PLAIN")
    cluster.controller.replay([stored], cluster.image.next_offset)
    assert dict(cluster.image.broker_configs(1)) == {key: "PLAIN"}
    assert BrokerConfig().with_dynamic(default={}, broker=cluster.image.broker_configs(1)).dynamic == {}
    assert alter(cluster, "log.retention.ms", "100") is None, "another key can be set beside it"
    assert alter(cluster, key, None) is None
    assert dict(cluster.image.broker_configs(1)) == {"log.retention.ms": "100"}
    assert isinstance(alter(cluster, key, None), InvalidRequestError), "there is nothing to remove"
