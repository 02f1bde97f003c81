"""What a properties file says and perhaps does not mean."""

import os

import pytest

from holdfast.broker.properties_file import oddities
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.model.errors import ConfigError


def lines_of(text: str) -> list[str]:
    return oddities(text, BrokerConfig.parse(read_properties(text)))


def test_B13_what_is_given_twice_or_without_a_value_is_told() -> None:
    text = "node.id=1\nnum.partitions=3\n# x\nlog.dirs=/a\nnonsense\nnum.partitions=4\nmetadata.log.dir=/m\n"
    assert lines_of(text) == [
        "line 5: 'nonsense' has no value: expected KEY=VALUE",
        "line 6: num.partitions is given again: '4' counts, not '3'",
    ]


def test_B13_relative_log_dirs_are_told_with_the_place_where_they_are() -> None:
    (line,) = lines_of("node.id=1\nlog.dirs=rel/dir,/a\nmetadata.log.dir=/m\n")
    assert line == f"log.dirs: rel/dir is looked for in {os.getcwd()}: expected absolute paths"


def test_B7_a_broker_without_a_metadata_directory_says_that_it_is_alone() -> None:
    (line,) = lines_of("node.id=1\nlog.dirs=/a,/b\n")
    assert line.startswith("metadata.log.dir is not set: this broker is a cluster by itself, with its metadata in /a;")
    assert lines_of("node.id=1\nlog.dirs=/a\nmetadata.store=zookeeper\nzookeeper.connect=one:2181\n") == []


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_B8_an_address_that_nobody_can_reach_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners: expected an address that clients can reach"):
        BrokerConfig.parse({"node.id": "1", "log.dirs": "/a", "listeners": f"PLAINTEXT://{host}:9092"})
    BrokerConfig.parse(
        {
            "node.id": "1",
            "log.dirs": "/a",
            "listeners": f"PLAINTEXT://{host}:9092",
            "advertised.listeners": "PLAINTEXT://me:9092",
        }
    )


def test_operator_C6_a_directory_that_is_listed_twice_is_named() -> None:
    with pytest.raises(ConfigError, match=r"of log\.dirs: /a is listed twice"):
        BrokerConfig.parse({"node.id": "1", "log.dirs": "/a,/b,/a"})
