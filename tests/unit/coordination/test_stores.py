"""The store that a configuration means."""

from pathlib import Path

import pytest

from holdfast.broker.platform import Platform
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.stores import open_store
from holdfast.metadata.store import Candidate
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError


def config(**given: str) -> BrokerConfig:
    return BrokerConfig.parse({"node.id": "1"} | {name.replace("_", "."): text for name, text in given.items()})


def test_the_embedded_store_is_in_the_directories_that_are_configured(tmp_path: Path) -> None:
    paths = (str(tmp_path / "one"), str(tmp_path / "two"))
    store = open_store(config(metadata_log_dirs=",".join(paths), log_dirs=str(tmp_path / "log")), Platform.real())
    assert isinstance(store, EmbeddedStore)
    assert store.directories == paths
    assert list(tmp_path.iterdir()) == []  # nothing is made before it is asked for something
    store.claim(Candidate(broker_id=1, host="h", port=1))
    assert [state.path for state in store.copies()] == list(paths)
    store.close()


def test_B3_a_store_that_is_not_there_yet_is_refused_by_its_name(tmp_path: Path) -> None:
    given = config(metadata_store="zookeeper", zookeeper_connect="one:2181/kafka", log_dirs=str(tmp_path / "log"))
    with pytest.raises(ConfigError) as caught:
        open_store(given, Platform.real())
    assert str(caught.value) == (
        "metadata.store=zookeeper is not there yet, so the ensemble one:2181/kafka is not used: expected embedded"
    )
    assert list(tmp_path.iterdir()) == []
