import os
import pathlib
import re

import pytest

from holdfast.cli.layout import BrokerLayout, LayoutError, Options, plan, write
from holdfast.cli.up_ports import other_port
from holdfast.model.config import read_properties


def options(
    brokers: int | None = None, log_dirs: int | None = None, port: int | None = None, **settings: str
) -> Options:
    return Options(brokers=brokers, log_dirs=log_dirs, port=port, settings=settings)


def made(data_dir: pathlib.Path, chosen: Options) -> list[BrokerLayout]:
    nodes, _ = plan(str(data_dir), chosen)
    assert write(str(data_dir), nodes) == []
    return nodes


def read(data_dir: pathlib.Path, broker: int) -> dict[str, str]:
    return read_properties((data_dir / f"broker-{broker}.properties").read_text())


def test_a_new_cluster_has_three_brokers_with_two_log_dirs(tmp_path: pathlib.Path) -> None:
    nodes = made(tmp_path, options())
    assert [(n.broker_id, n.port) for n in nodes] == [(1, 9092), (2, 9093), (3, 9094)]
    assert read(tmp_path, 2) == {
        "node.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:9093,INTERNAL://127.0.0.1:9293",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9093,INTERNAL://127.0.0.1:9293",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "operator.listener.names": "PLAINTEXT",
        "log.dirs": f"{tmp_path}/broker-2/log-dir-1,{tmp_path}/broker-2/log-dir-2",
        "metadata.log.dirs": f"{tmp_path}/metadata,{tmp_path}/metadata-2",
        "metrics.port": "9193",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "group.initial.rebalance.delay.ms": "0",
    }
    assert (tmp_path / "broker-3/log-dir-2").is_dir()


def test_one_broker_keeps_its_offsets_and_transactions_on_one_broker(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(brokers=1))
    found = read(tmp_path, 1)
    assert [found[f"{topic}.replication.factor"] for topic in ("offsets.topic", "transaction.state.log")] == ["1", "1"]


def copies(data_dir: pathlib.Path, broker: int = 1) -> tuple[str | None, ...]:
    found = read(data_dir, broker)
    keys = ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor")
    return tuple(found.get(key) for key in keys)


@pytest.mark.parametrize(("brokers", "expected"), [(1, ("1", None, "1")), (2, ("2", None, "2")), (5, ("3", "2", "3"))])
def test_B4_topics_have_as_many_copies_as_there_are_brokers_up_to_three(
    tmp_path: pathlib.Path, brokers: int, expected: tuple[str | None, ...]
) -> None:
    made(tmp_path, options(brokers=brokers))
    assert copies(tmp_path) == expected
    made(tmp_path, options(brokers=5))
    assert [copies(tmp_path, b) for b in (1, 5)] == [("3", "2", "3"), ("3", "2", "3")]  # it has grown


def test_B4_what_is_told_stays(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(**{"default.replication.factor": "1"}))
    made(tmp_path, options(brokers=4))
    assert [copies(tmp_path, b) for b in (1, 3)] == [("1", None, "3")] * 2
    other = tmp_path / "other"
    other.mkdir()
    made(other, options(**{"min.insync.replicas": "1"}))
    made(other, options())
    assert copies(other) == ("3", "1", "3")


def test_B4_a_cluster_from_before_keeps_the_brokers_defaults(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(brokers=3))
    for path in tmp_path.glob("*.properties"):
        kept = [x for x in path.read_text().splitlines() if not x.startswith(("default.repl", "min.insync"))]
        path.write_text("\n".join(kept) + "\n")
    made(tmp_path, options())
    assert copies(tmp_path) == (None, None, "3")


def test_a_second_start_needs_no_options_and_keeps_what_a_person_wrote(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(brokers=2, log_dirs=3, port=19000, **{"log.retention.ms": "60000"}))
    with open(tmp_path / "broker-1.properties", "a") as file:
        file.write("num.partitions=7\n")
    nodes = made(tmp_path, options(**{"log.segment.bytes": "1048576"}))
    assert [(n.port, len(n.log_dirs)) for n in nodes] == [(19000, 3), (19001, 3)]
    kept = read(tmp_path, 1)
    assert kept["num.partitions"] == "7"
    assert kept["log.retention.ms"] == "60000"
    assert kept["log.segment.bytes"] == "1048576"


def test_a_port_may_change_between_starts(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(port=19000))
    made(tmp_path, options(port=20000))
    assert read(tmp_path, 3)["listeners"] == "PLAINTEXT://127.0.0.1:20002,INTERNAL://127.0.0.1:20202"


def test_a_data_directory_of_brokers_with_one_listener_is_taken_over(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(port=19000))
    for path in tmp_path.glob("*.properties"):
        old = {
            key: value.partition(",INTERNAL")[0]
            for key, value in read_properties(path.read_text()).items()
            if "listener." not in key
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in {**old, "num.partitions": "7"}.items()))
    assert read(tmp_path, 2)["advertised.listeners"] == "PLAINTEXT://127.0.0.1:19001"
    nodes = made(tmp_path, options())
    assert [(n.port, n.brokers_port, n.metrics_port) for n in nodes] == [
        (19000 + i, 19200 + i, 19100 + i) for i in range(3)
    ]
    again = read(tmp_path, 2)
    assert again["listeners"] == "PLAINTEXT://127.0.0.1:19001,INTERNAL://127.0.0.1:19201"
    assert (again["inter.broker.listener.name"], again["num.partitions"]) == ("INTERNAL", "7")


@pytest.mark.parametrize(
    ("port", "metrics", "expected"), [(9092, 9291, 9392), (65500, 0, 65300), (65500, 65300, 65200)]
)
def test_ports_of_brokers_are_none_of_the_others(
    tmp_path: pathlib.Path, port: int, metrics: int, expected: int
) -> None:
    nodes, _ = plan(str(tmp_path), Options(brokers=2, log_dirs=1, port=port, settings={}, metrics_port=metrics))
    assert [n.brokers_port for n in nodes] == [expected, expected + 1]


def test_fewer_brokers_than_there_are_is_refused(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(brokers=3))
    with pytest.raises(LayoutError, match=r"cluster of 3 brokers.*--brokers 3"):
        plan(str(tmp_path), options(brokers=2))


def test_more_brokers_than_there_are_is_told(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(brokers=1))
    nodes, warnings = plan(str(tmp_path), options(brokers=3))
    assert len(nodes) == 3
    assert warnings == [
        f"{tmp_path} held 1 brokers: adding 2 that hold no data yet; topics stay where they are until"
        " `holdfast reassign` moves them"
    ]


def test_fewer_log_dirs_than_there_are_is_refused_and_more_are_added(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(log_dirs=2))
    with pytest.raises(LayoutError, match="has 2 log directories"):
        plan(str(tmp_path), options(log_dirs=1))
    made(tmp_path, options(log_dirs=3))
    assert read(tmp_path, 1)["log.dirs"].count("log-dir-") == 3


def test_files_of_other_brokers_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broker-2.properties").write_text("node.id=2\n")
    with pytest.raises(LayoutError, match="without a gap"):
        plan(str(tmp_path), options())
    (tmp_path / "broker-1.properties").write_text("node.id=7\n")
    with pytest.raises(LayoutError, match=r"node.id=7: expected 1"):
        plan(str(tmp_path), options())


@pytest.mark.parametrize("port", [0, 65534])
def test_ports_must_exist(tmp_path: pathlib.Path, port: int) -> None:
    with pytest.raises(LayoutError, match="expected 1 to 65533"):
        plan(str(tmp_path), options(port=port))


def test_settings_are_checked_before_anything_is_written(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LayoutError, match=r"broker 1: .*log.segment.bytes"):
        plan(str(tmp_path), options(**{"log.segment.bytes": "many"}))
    with pytest.raises(LayoutError, match=r"--set log\.dirs"):
        plan(str(tmp_path), options(**{"log.dirs": "/x"}))
    with pytest.raises(LayoutError, match=r"broker 1: .*xml for configuration log\.format"):
        plan(str(tmp_path), options(**{"log.format": "xml"}))
    with pytest.raises(LayoutError, match=r"--set log\.file: expected a key that none of the options"):
        plan(str(tmp_path), options(**{"log.file": "/x"}))
    assert os.listdir(tmp_path) == []


def test_a_log_dir_that_is_there_is_used_as_it_is(tmp_path: pathlib.Path) -> None:
    there = tmp_path / "broker-1/log-dir-1"
    there.mkdir(parents=True)
    (there / "keep").write_text("me")
    made(tmp_path, options(brokers=1))
    assert (there / "keep").read_text() == "me"


def test_a_log_dir_that_cannot_be_made_is_the_brokers_matter(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broker-1").write_text("a file where a directory should be")
    nodes, _ = plan(str(tmp_path), options(brokers=1))
    assert write(str(tmp_path), nodes) == [
        f"log directory {tmp_path}/broker-1/log-dir-{k} of broker 1: {'Not a directory'}" for k in (1, 2)
    ]


def test_backslashes_survive_the_properties_file(tmp_path: pathlib.Path) -> None:
    made(tmp_path, options(brokers=1, **{"broker.rack": "a\\b"}))
    assert read(tmp_path, 1)["broker.rack"] == "a\\b"


def test_ports_of_metrics_follow_the_listener_unless_told(tmp_path: pathlib.Path) -> None:
    def ports(**more: int) -> list[int]:
        chosen = Options(brokers=2, log_dirs=None, settings={}, **{"port": None, **more})
        return [node.metrics_port for node in made(tmp_path, chosen)]

    assert ports(port=19000) == [19100, 19101]
    assert ports(metrics_port=9500) == [9500, 9501]
    assert ports() == [9500, 9501]  # as its file says
    assert ports(port=20000) == [20100, 20101]
    assert ports(metrics_port=0) == [0, 0]
    assert ports() == [0, 0]
    assert ports(port=65_500) == [0, 0]
    with pytest.raises(LayoutError, match=r"--metrics-port 19001 for 2 brokers: these are ports of brokers"):
        ports(port=19000, metrics_port=19001)
    with pytest.raises(LayoutError, match="expected 0 to 65534"):
        ports(metrics_port=65_535)


def test_ports_that_are_taken(tmp_path: pathlib.Path) -> None:
    """What nobody has asked for is found elsewhere; what somebody has asked for is refused by name."""

    def planned(*taken: int, **more: int) -> tuple[list[tuple[int, int, int]], list[str]]:
        chosen = Options(brokers=2, log_dirs=1, settings={}, **{"port": None, **more})
        nodes, said = plan(str(tmp_path), chosen, lambda _, port: port not in taken)
        write(str(tmp_path), nodes)
        return [(node.port, node.metrics_port, node.brokers_port) for node in nodes], said

    assert planned(port=19000) == ([(19000, 19100, 19200), (19001, 19101, 19201)], [])
    moved, said = planned(19101, 19201, port=19000)
    assert moved == [(19000, 19500, 19300), (19001, 19501, 19301)]
    assert said == ["port 19100 for metrics is taken: they are on 19500"]
    assert planned(19500) == ([(19000, 19100, 19200), (19001, 19101, 19201)],
                              ["port 19500 for metrics is taken: they are on 19100"])  # fmt: skip
    with pytest.raises(LayoutError, match=r"^--metrics-port 19600 for 2 brokers: port 19601 is taken: expected free"):
        planned(19601, metrics_port=19600)
    assert planned(19601, metrics_port=0)[0][0][1] == 0
    everything = range(19002, 65535)
    nodes, said = planned(*everything, port=19000)
    assert nodes[0] == (19000, 19100, 18800)
    assert said == ["port 19100 for metrics is taken: there are none before it is free"]
    assert other_port(9092, 3, "", lambda _, port: port not in (9392, 9793)) == 9992
    assert other_port(9092, 3, "", lambda _, port: False) is None


def test_B1_a_setting_that_no_broker_has_is_refused_with_the_nearest_name(tmp_path: pathlib.Path) -> None:
    for key, meant in (("log.retention.mss", "log.retention.ms"), ("retention.ms", "log.retention.ms")):
        with pytest.raises(LayoutError, match=f"--set {key}: .*did you mean {meant}"):
            plan(str(tmp_path), options(**{key: "5"}))
    with pytest.raises(LayoutError, match=r"--set zookeeper\.connect"):
        plan(str(tmp_path), options(**{"zookeeper.connect": "x"}))
    assert list(tmp_path.iterdir()) == []


def test_clients_elsewhere_are_told_the_host_and_brokers_stay_among_themselves(tmp_path: pathlib.Path) -> None:
    """`up --host`, kept at the next start. What changes disks is not taken from elsewhere."""
    chosen = Options(brokers=1, log_dirs=1, port=9092, settings={}, host="10.0.0.5")
    made(tmp_path, chosen)
    (again,) = made(tmp_path, options())
    assert read(tmp_path, 1) == read(tmp_path, 1) | {
        "listeners": "PLAINTEXT://10.0.0.5:9092,INTERNAL://127.0.0.1:9292",
        "advertised.listeners": "PLAINTEXT://10.0.0.5:9092,INTERNAL://127.0.0.1:9292",
        "operator.listener.names": "",
    }
    assert again.address == "10.0.0.5:9092"
    assert again.listens == (("10.0.0.5", 9092), ("127.0.0.1", 9292))
    (named,) = made(tmp_path, Options(brokers=None, log_dirs=None, port=None, settings={}, host="log.example"))
    assert read(tmp_path, 1)["listeners"] == "PLAINTEXT://:9092,INTERNAL://127.0.0.1:9292"
    assert read(tmp_path, 1)["advertised.listeners"].startswith("PLAINTEXT://log.example:9092,")
    assert named.reach.local == "127.0.0.1"
    (back,) = made(tmp_path, Options(brokers=None, log_dirs=None, port=None, settings={}, host="localhost"))
    assert back.address == "localhost:9092" and read(tmp_path, 1)["operator.listener.names"] == "PLAINTEXT"
    (six,) = made(tmp_path, Options(brokers=None, log_dirs=None, port=None, settings={}, host="fd00::5"))
    assert six.address == "[fd00::5]:9092" and "PLAINTEXT://[fd00::5]:9092" in read(tmp_path, 1)["listeners"]


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("0.0.0.0", "--host 0.0.0.0: expected an address by which clients reach this machine"),
        ("a:9092", "--host 'a:9092': expected an address or a name of this machine, without port"),
        ("", "--host '': expected an address or a name"),
        ("a,b", "--host 'a,b': expected an address or a name"),
    ],
)
def test_a_host_that_is_none_is_refused(tmp_path: pathlib.Path, host: str, says: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(says)):
        plan(str(tmp_path), Options(brokers=1, log_dirs=1, port=9092, settings={}, host=host))
