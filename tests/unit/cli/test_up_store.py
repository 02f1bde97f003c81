"""``--store``: what it may be, and what a data directory is started with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.cli.layout import BrokerLayout, LayoutError, Options, plan, write
from holdfast.cli.up_store import ChosenStore, ChosenStoreError, checked
from holdfast.model.config import read_properties


def nodes(data_dir: Path, store: str | None = None, host: str | None = None) -> list[BrokerLayout]:
    made, _ = plan(str(data_dir), Options(brokers=2, log_dirs=1, port=9092, settings={}, store=store, host=host))
    write(str(data_dir), made)
    return made


def read(data_dir: Path, broker: int = 1) -> dict[str, str]:
    return read_properties((data_dir / f"broker-{broker}.properties").read_text())


@pytest.mark.parametrize(
    "text", ["embedded", "zookeeper", "a:2181", "a:2181,10.0.0.2:2182/holdfast/x", "[fd00::1]:2181"]
)
def test_a_store_has_one_of_three_forms(text: str) -> None:
    assert checked(f" {text} ") == text


@pytest.mark.parametrize(
    "text", ["", "Zookeeper", "a", "a:", "a:2181;b:2181", "zookeeper/x", "a:2181,/x", "a:2181/x,b:2181"]
)
def test_a_store_of_another_form_is_refused_by_its_value(text: str) -> None:
    expected = "expected embedded, zookeeper, or an ensemble as HOST:PORT[,HOST:PORT]...[/CHROOT]"
    with pytest.raises(ChosenStoreError, match=re.escape(f"{text!r}: {expected}")):
        checked(text)


def test_a_server_of_its_own_has_a_port_beside_the_brokers_and_keeps_it(tmp_path: Path) -> None:
    assert [node.store for node in nodes(tmp_path, "zookeeper")] == [
        ChosenStore(connect="127.0.0.1:9492", port=9492)
    ] * 2
    assert read(tmp_path, 2)["metadata.store"] == "zookeeper"
    assert read(tmp_path, 2)["zookeeper.connect"] == "127.0.0.1:9492"
    (tmp_path / "zookeeper").mkdir()
    again, _ = plan(str(tmp_path), Options(brokers=None, log_dirs=None, port=9192, settings={}))
    assert again[0].store.port == 9492 and again[0].port == 9192
    high, _ = plan(str(tmp_path / "x"), Options(brokers=1, log_dirs=1, port=65500, settings={}, store="zookeeper"))
    assert high[0].store.port == 65100


def test_an_ensemble_is_named_to_the_brokers_and_brokers_elsewhere_reach_them(tmp_path: Path) -> None:
    """With the embedded store, and with a server of its own, nobody else can be a broker of the cluster."""
    given = "10.0.0.1:2181,10.0.0.2:2181/holdfast"
    assert nodes(tmp_path / "a", given)[0].store == ChosenStore(connect=given)
    assert read(tmp_path / "a")["zookeeper.connect"] == given
    for name, store, between in (
        ("b", given, "10.0.0.5"), ("c", "zookeeper", "127.0.0.1"), ("d", None, "127.0.0.1"),
    ):  # fmt: skip
        data_dir = tmp_path / name
        nodes(data_dir, store, host="10.0.0.5")
        assert read(data_dir)["advertised.listeners"] == f"PLAINTEXT://10.0.0.5:9092,INTERNAL://{between}:9292"


def test_a_directory_keeps_its_store(tmp_path: Path) -> None:
    """Another one would begin without the metadata that is there."""
    nodes(tmp_path / "e")
    for other in ("zookeeper", "a:2181"):
        with pytest.raises(LayoutError, match=f"--store {other}: .* holds a cluster whose metadata is in its own dir"):
            nodes(tmp_path / "e", other)
    assert nodes(tmp_path / "e", "embedded")[0].store == ChosenStore()
    nodes(tmp_path / "z", "a:2181/x")
    assert (
        nodes(tmp_path / "z")[0].store == nodes(tmp_path / "z", "a:2181/x")[0].store == ChosenStore(connect="a:2181/x")
    )
    for other in ("embedded", "zookeeper", "a:2181/y"):
        with pytest.raises(LayoutError, match="holds a cluster whose metadata is in a:2181/x, and would be without it"):
            nodes(tmp_path / "z", other)


def test_all_log_directories_empty_is_told_with_a_server_of_its_own_too(tmp_path: Path) -> None:
    nodes(tmp_path, "zookeeper")
    logs = tmp_path / "zookeeper" / "data" / "version-2"
    logs.mkdir(parents=True)
    assert nodes(tmp_path)
    (logs / "log.100000001").touch()
    with pytest.raises(LayoutError, match="holds the metadata of a cluster, and no log directory of its brokers"):
        nodes(tmp_path)


def test_no_broker_is_at_the_port_of_the_server(tmp_path: Path) -> None:
    for metrics, brokers in ((9492, 1), (9491, 2)):
        given = Options(
            brokers=brokers, log_dirs=1, port=9092, settings={}, store="zookeeper", metrics_port=metrics
        )  # fmt: skip
        with pytest.raises(LayoutError, match="port 9492 of the ZooKeeper server is that of a broker"):
            plan(str(tmp_path / "x"), given)


def test_directories_of_the_embedded_store_are_not_taken_with_another(tmp_path: Path) -> None:
    given = Options(brokers=1, log_dirs=1, port=9092, settings={}, store="a:2181", metadata_dirs=("/elsewhere",))
    with pytest.raises(LayoutError, match=r"--metadata-dir /elsewhere: expected none.*in a:2181"):
        plan(str(tmp_path / "y"), given)
