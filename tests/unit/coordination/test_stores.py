"""The store that a configuration means."""

from pathlib import Path

import pytest

from holdfast.broker.platform import Platform
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.stores import open_store
from holdfast.coordination.zookeeper import ZooKeeperStore
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


def test_B3_the_zookeeper_store_is_the_ensemble_that_is_configured(tmp_path: Path) -> None:
    given = config(metadata_store="zookeeper", zookeeper_connect="one:2181/kafka", log_dirs=str(tmp_path / "log"))
    store = open_store(given, Platform.real())
    assert isinstance(store, ZooKeeperStore)
    assert store.directories == () and store.copies() == []
    assert list(tmp_path.iterdir()) == []
    store.close()


def test_B3_keys_of_an_ensemble_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    given = config(metadata_store="zookeeper", zookeeper_connect="one:2181", zookeeper_set_acl="true")
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl=true, but nothing says who this broker is"):
        open_store(given, Platform.real())
