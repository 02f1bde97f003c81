"""What brokers of `up --secure` are told, and what the option refuses."""

import pathlib

import pytest

from holdfast.cli.layout import BrokerLayout, LayoutError, Options, plan, write
from holdfast.cli.up_ports import certificates_port
from holdfast.model.config import read_properties


def options(*, secure: bool = True, brokers: int | None = None, store: str | None = None, **settings: str) -> Options:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return Options(brokers=brokers, log_dirs=None, port=None, settings=given, store=store, secure=secure)


def made(data_dir: pathlib.Path, chosen: Options) -> list[BrokerLayout]:
    nodes, _ = plan(str(data_dir), chosen)
    assert write(str(data_dir), nodes) == []
    return nodes


def test_brokers_are_told_kafkas_keys_and_no_secret(tmp_path: pathlib.Path) -> None:
    nodes = made(tmp_path, options())
    told = read_properties((tmp_path / "broker-2.properties").read_text())
    listeners = "SASL_SSL://127.0.0.1:9093,SSL://127.0.0.1:9143,INTERNAL://127.0.0.1:9293"
    assert told["listeners"] == told["advertised.listeners"] == listeners
    assert told["listener.security.protocol.map"] == "SASL_SSL:SASL_SSL,SSL:SSL,INTERNAL:SSL"
    assert told["operator.listener.names"] == "SASL_SSL,SSL"
    assert told["super.users"] == "User:CN=broker,O=holdfast;User:admin"
    assert told["ssl.keystore.location"] == f"{tmp_path}/secure/broker.pem"
    assert told["metrics.host"] == "127.0.0.1"
    assert not [key for key in told if "password" in key or "jaas" in key]
    assert nodes[1].address == "127.0.0.1:9093" and nodes[1].certificates_address == "127.0.0.1:9143"
    assert ("127.0.0.1", 9143) in nodes[1].listens


def test_a_cluster_that_was_secured_once_stays_it_and_one_that_was_not_becomes_it(tmp_path: pathlib.Path) -> None:
    assert not made(tmp_path, options(secure=False))[0].is_secured
    assert made(tmp_path, options())[0].is_secured
    assert made(tmp_path, options(secure=False))[0].is_secured


def test_it_is_moved_with_its_directory(tmp_path: pathlib.Path) -> None:
    made(tmp_path / "old", options())
    (tmp_path / "old").rename(tmp_path / "new")
    made(tmp_path / "new", options(secure=False))
    told = read_properties((tmp_path / "new/broker-1.properties").read_text())
    assert told["ssl.keystore.location"] == f"{tmp_path}/new/secure/broker.pem"


@pytest.mark.parametrize("store", ["zookeeper", "zk-1:2181/kafka"])
def test_another_store_is_refused_by_name(tmp_path: pathlib.Path, store: str) -> None:
    with pytest.raises(LayoutError, match=f"--store {store}: expected the embedded store with --secure"):
        made(tmp_path, options(store=store))


def test_keys_that_it_sets_are_nobody_elses(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LayoutError, match=r"--set super\.users: expected a key that --secure does not set"):
        made(tmp_path, options(super_users="User:me"))
    made(tmp_path, options(secure=False, super_users="User:me"))  # by hand it may be


@pytest.mark.parametrize(("brokers", "first"), [(3, 9142), (50, 9142), (51, 9442), (100, 9442)])
def test_the_port_of_certificates_is_beside_those_of_other_brokers(brokers: int, first: int) -> None:
    assert certificates_port((9092, 9292, 9192), brokers, "", lambda host, port: True) == first


def test_another_port_where_that_is_taken() -> None:
    assert certificates_port((9092, 9292, 9192), 3, "", lambda host, port: port != 9143) == 9442
