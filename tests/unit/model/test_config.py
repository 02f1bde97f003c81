"""Configuration keys against Kafka's own tables, values, layers, and what a wrong value is answered with."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.addresses import plain_address
from holdfast.model.config import (
    KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigType,
    LogConfig,
    UpdateMode,
    parse_value,
    read_properties,
    validate_topic_config,
)
from holdfast.model.config_connection_keys import OVERRIDES, overrides_per_ip
from holdfast.model.config_docs import configuration_markdown
from holdfast.model.config_entries import ConfigSource, describe_broker, describe_topic
from holdfast.model.config_keys import ConfigKey
from holdfast.model.config_notes import ineffective
from holdfast.model.errors import ConfigError

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/configs"
TABLES = json.loads((GOLDEN / "configdef_4.3.0.json").read_text())
KAFKA_BROKER = {row["name"]: row for row in TABLES["broker"]}
# Kafka keeps the replication throttles beside its table; they may be set for one broker and for all.
KAFKA_BROKER |= {row["name"]: row | {"update_mode": "cluster-wide"} for row in TABLES["quota_broker_dynamic"]}
KAFKA_TOPIC = {row["name"]: row for row in TABLES["topic"]}
BOUND_ONCE = {"listeners", "listener.security.protocol.map"}
"""Kafka binds others while it runs."""
LISTENERS_COME_LATER = {"sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol"}
"""In Kafka, which takes these for them while it runs; those that are there go on as before."""
OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka's authorizers read them; its table does not have them."""
ONLY_IN_3_9 = {
    "leader.imbalance.per.broker.percentage", "control.plane.listener.name", "broker.id.generation.enable",
    "reserved.broker.max.id",
} | {name for name, key in KEYS.items() if name.startswith("zookeeper.") and not key.ours}  # fmt: skip


def allowed(valid: str | None) -> tuple[float | None, float | None, set[str]]:
    """(low, high, choices) of Kafka's own words for what is allowed."""
    if not valid:
        return None, None, set()
    if (
        "or -1" in valid or "[partitionId]" in valid or valid == "non-null string"
    ):  # said by the only value that is taken, or by the form
        return None, None, set()
    bounds = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\]", valid)
    if bounds:
        return float(bounds[1]), float(bounds[2]) if bounds[2] else None, set()
    return None, None, set(valid.strip("[]").split(", "))


def assert_same(key: ConfigKey, row: dict[str, str]) -> None:
    low, high, choices = allowed(row["valid"])
    assert key.type.value == row["type"]
    assert key.default == row["default"]
    assert (key.low, key.high, set(key.choices)) == (low, high, choices)


@pytest.mark.parametrize(
    "name", sorted(n for n, k in KEYS.items() if not k.ours and n not in ONLY_IN_3_9 | OF_THE_AUTHORIZER)
)
def test_broker_key_is_kafkas(name: str) -> None:
    row = KAFKA_BROKER[name]
    assert_same(KEYS[name], row)
    assert KEYS[name].update.value == ("read-only" if name in BOUND_ONCE | LISTENERS_COME_LATER else row["update_mode"])
    assert KEYS[name].internal == row["internal"]


@pytest.mark.parametrize("name", sorted(TOPIC_KEYS))
def test_topic_key_is_kafkas(name: str) -> None:
    row = KAFKA_TOPIC[name]
    assert_same(TOPIC_KEYS[name].key, row)
    assert ",".join(n for n, _ in TOPIC_KEYS[name].synonyms) == (row["server_synonyms"] or "")


def test_keys_that_kafka_4_dropped_are_as_in_3_9() -> None:
    told = {e["name"]: e for e in json.loads((GOLDEN / "describe_configs_3.9.1.json").read_text())["broker"]}
    for name in ONLY_IN_3_9:
        defaults = [s["value"] for s in told[name]["synonyms"] if s["source"] == 5]
        assert KEYS[name].default == (defaults[0] if defaults else None)
        assert told[name]["read_only"] and told[name]["is_sensitive"] == KEYS[name].sensitive
    assert {name for name in told if name.startswith("zookeeper.")} <= ONLY_IN_3_9


def test_our_own_keys_are_unknown_to_kafka() -> None:
    ours = {name for name, key in KEYS.items() if key.ours}
    assert ours == {
        "metadata.store", "metadata.log.dirs", "metadata.log.dir.timeout.ms", "metadata.witness.dirs",
        "metadata.log.dir.probe.interval.ms",
        "log.dir.probe.interval.ms", "log.dir.degraded.probe.ms", "log.dir.degraded.action",
        "log.dir.placement", "log.file", "log.file.backups", "log.file.max.bytes", "log.format",
        "leader.election.wait.ms", "metrics.host", "metrics.port", "metrics.level",
        "operator.listener.names", "sasl.oauthbearer.allowed.urls",
        "zookeeper.auth.digest", "zookeeper.sasl.mechanism", "zookeeper.sasl.username", "zookeeper.sasl.password",
        "zookeeper.sasl.principal", "zookeeper.sasl.service.name",
        "connections.login.timeout.ms", "connections.login.max", "connections.login.max.bytes",
        "socket.request.timeout.ms",
        "broker.id.host.key", "broker.id.adopt.missing", "inter.broker.protocol.version",
    }  # fmt: skip
    assert not ours & set(KAFKA_BROKER)


def test_configuration_page_is_made_from_the_table() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == configuration_markdown()


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("num.partitions", "abc", "Not a number of type INT"),
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "99999999999", "Not a number of type INT"),
        ("offsets.topic.replication.factor", "40000", "Not a number of type SHORT"),
        ("log.retention.bytes", str(2**63), "Not a number of type LONG"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("metrics.level", "record", "String must be one of: broker, topic, partition"),
        ("metadata.store", "etcd", "String must be one of: embedded, zookeeper"),
        *(
            ("zookeeper.connect", text, "Value must be HOST:PORT[,HOST:PORT]...[/CHROOT]")
            for text in (
                "",
                "one",
                "one:",
                ":2181",
                "one:2181,",
                "one:2181/a,two:2181/a",
                "one:2181/",
                "one:2181//a",
                "one:65536",
            )
        ),
    ],
)
def test_C_5_a_wrong_value_is_answered_in_kafkas_words(name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({name: text})
    assert str(caught.value) == f"Invalid value {text} for configuration {name}: {expected}"


def test_doubles_have_ranges_too() -> None:
    key = ConfigKey(name="share", type=ConfigType.DOUBLE, default="0.5", doc="", low=0, high=1)
    assert parse_value(key, "0.25") == 0.25
    assert key.range == "0 to 1"
    with pytest.raises(ConfigError, match="no more than 1"):
        parse_value(key, "1.5")
    with pytest.raises(ConfigError, match="Not a number"):
        parse_value(key, "half")


def test_passwords_are_sensitive() -> None:
    assert ConfigKey(name="p", type=ConfigType.PASSWORD, default=None, doc="").sensitive
    assert {name for name, key in KEYS.items() if key.sensitive and key.inert is None} == {
        "sasl.jaas.config", "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key",
        "ssl.keystore.password", "ssl.truststore.certificates", "ssl.truststore.password",
        "zookeeper.auth.digest", "zookeeper.sasl.password", "zookeeper.ssl.keystore.password",
    }  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({"listeners": "SSL://localhost:1", "ssl.key.password": "hush"})
    assert "hush" not in str(caught.value)


def test_typed_access() -> None:
    config = BrokerConfig.parse({"num.partitions": " 3 ", "log.dirs": "/a, /b", "delete.topic.enable": "FALSE"})
    assert config.int("num.partitions") == 3
    assert config.long("log.retention.bytes") == -1
    assert config.list("log.dirs") == ("/a", "/b")
    assert config.bool("delete.topic.enable") is False
    assert config.str("compression.type") == "producer"
    assert config.optional_int("log.retention.ms") is None
    assert config.optional_int("num.partitions") == 3
    assert config.optional_str("broker.rack") is None
    assert config.optional_str("compression.type") == "producer"
    assert config.get("log.roll.ms") is None
    for accessor, name in (
        (config.int, "delete.topic.enable"),
        (config.bool, "num.partitions"),
        (config.str, "num.partitions"),
        (config.list, "num.partitions"),
    ):
        with pytest.raises(TypeError, match=name):
            accessor(name)
    with pytest.raises(KeyError):
        config.get("no.such.key")


def test_unknown_keys_are_kept_apart() -> None:
    config = BrokerConfig.parse({"no.such.key": "8", "node.id": "1"})
    assert config.unknown == {"no.such.key": "8"}
    assert config.node_id == 1


# -- rules between keys ------------------------------------------------------------------------------------


def test_node_id_and_broker_id_are_one_thing() -> None:
    assert BrokerConfig.parse({"broker.id": "4"}).node_id == 4
    assert BrokerConfig.parse({"broker.id": "4", "node.id": "4"}).node_id == 4
    with pytest.raises(ConfigError, match=r"broker\.id"):
        BrokerConfig.parse({"broker.id": "4", "node.id": "5"})
    with pytest.raises(ConfigError, match=r"node\.id is not set"):
        _ = BrokerConfig.parse({}).node_id


def test_log_dirs_or_log_dir() -> None:
    assert BrokerConfig.parse({}).log_dirs == ("/tmp/kafka-logs",)
    assert BrokerConfig.parse({"log.dir": "/x"}).log_dirs == ("/x",)
    assert BrokerConfig.parse({"log.dir": "/x", "log.dirs": "/y,/z"}).log_dirs == ("/y", "/z")
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        BrokerConfig.parse({"log.dirs": "/y,,/z"})
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        BrokerConfig.parse({"log.dir": ""})


DIRS = {"log.dirs": "/a,/b"}


def cordoned(value: str, dirs: str = "/a,/b") -> list[str]:
    config = BrokerConfig.parse({"log.dirs": dirs, "cordoned.log.dirs": value})
    return [path for path in config.log_dirs if config.is_cordoned(path)]


def test_C7_K1066_01_cordoned_dirs_are_a_list_of_log_dirs_all_or_none() -> None:
    assert cordoned("/b") == ["/b"]
    assert cordoned("/b,/a,/b") == ["/a", "/b"], "the same twice is no mistake"
    assert cordoned("*") == ["/a", "/b"]
    assert cordoned("") == []
    assert not any(map(BrokerConfig.parse(DIRS).is_cordoned, ("/a", "/b")))


@pytest.mark.parametrize(("value", "named"), [("*,/a", "alone"), ("/c", "'/c'"), ("/a,/c", "'/c'"), ("/a,", "''")])
def test_K1066_02_a_file_that_names_an_unknown_directory_is_refused(value: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named}.*cordoned.log.dirs|cordoned.log.dirs.*{named}"):
        cordoned(value)


def test_C28_K1066_15_entries_are_compared_as_absolute_normalised_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cordoned("/x/../a/,/b/.") == ["/a", "/b"]
    assert cordoned(f"{tmp_path}/one,two/", "./one,two,three") == ["./one", "two"]
    with pytest.raises(ConfigError, match="four"):
        cordoned("four", "one,two")


def test_K1066_15_what_was_set_at_run_time_wins_and_may_name_what_is_gone() -> None:
    config = BrokerConfig.parse({**DIRS, "cordoned.log.dirs": "/a"})
    later = config.with_dynamic(default={}, broker={"cordoned.log.dirs": "/b,/gone"})
    assert [path for path in later.log_dirs if later.is_cordoned(path)] == ["/b"]
    none = config.with_dynamic(default={}, broker={"cordoned.log.dirs": ""})
    assert not any(map(none.is_cordoned, none.log_dirs))
    again = later.with_dynamic(default={}, broker={})
    assert again.is_cordoned("/a")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("10.0.0.7:100", {"10.0.0.7": 100}),
        ("10.0.0.7:1, 10.0.0.8:0", {"10.0.0.7": 1, "10.0.0.8": 0}),
        ("::1:5,[fe80::1]:6", {"0:0:0:0:0:0:0:1": 5, "fe80:0:0:0:0:0:0:1": 6}),
        ("::ffff:10.0.0.7:3", {"10.0.0.7": 3}),
    ],
)
def test_limits_of_single_addresses(text: str, found: dict[str, int]) -> None:
    assert overrides_per_ip(BrokerConfig.parse({"max.connections.per.ip.overrides": text}).str(OVERRIDES)) == found


@pytest.mark.parametrize(
    "text", ["host:1", "10.0.0.7", "10.0.0.7:", "10.0.0.7:x", "10.0.0.7:1,", "10.0.0:1", "10.0.0.7:1,10.0.0.7:2",
             "10.0.0.7:-1", "10.0.0.7:9999999999", "::ffff:10.0.0.7:3,10.0.0.7:2"]
)  # fmt: skip
def test_what_is_no_list_of_addresses_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerConfig.parse({"max.connections.per.ip.overrides": text})


def test_none_per_address_is_for_those_alone_that_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({"max.connections.per.ip": "0"})
    assert str(caught.value) == (
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    )
    BrokerConfig.parse({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.7:1"})


def test_an_address_is_compared_in_one_form() -> None:
    same = ("10.0.0.7", "::ffff:10.0.0.7", "::FFFF:a00:7", "0:0:0:0:0:ffff:a00:7")
    assert {plain_address(each) for each in same} == {"10.0.0.7"}
    assert plain_address("fe80::1%eth0") == plain_address("FE80:0::0001") == "fe80:0:0:0:0:0:0:1"
    assert plain_address("::1") == "0:0:0:0:0:0:0:1"
    assert plain_address("2001:0db8::00ff") == "2001:db8:0:0:0:0:0:ff"
    assert plain_address("::10.0.0.7") == "0:0:0:0:0:0:a00:7"
    for no_address in ("not one", "*", "", "/127.0.0.1", "[::1]", " 10.0.0.7", "10.0.0.07"):
        assert plain_address(no_address) == no_address


def test_a_listener_has_values_of_its_own() -> None:
    config = BrokerConfig.parse({
        "listeners": "CLIENTS://:9092,BROKERS://localhost:9093", "inter.broker.listener.name": "BROKERS",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT", "advertised.listeners":
        "CLIENTS://a:9092,BROKERS://localhost:9093", "max.connections": "10",
        "listener.name.clients.max.connections": "7", "listener.name.others.max.connections": "3",
        "listener.name.CLIENTS.max.connections": "8", "listener.name.clients.num.partitions": "4",
    })  # fmt: skip
    assert [config.on_listener(n).int("max.connections") for n in ("CLIENTS", "BROKERS")] == [7, 10]
    assert config.unknown.keys() == {"listener.name.CLIENTS.max.connections", "listener.name.clients.num.partitions"}
    assert "listener.name.others.max.connections has no effect: listener OTHERS is none of CLIENTS, BROKERS" in (
        ineffective(config)
    )
    later = config.with_dynamic(default={"listener.name.brokers.max.connections": "5", "max.connections": "9"},
                                broker={"listener.name.clients.max.connections": "6"})  # fmt: skip
    assert [later.on_listener(n).int("max.connections") for n in ("CLIENTS", "BROKERS")] == [6, 5]
    told = {entry.key.name: entry for entry in describe_broker(later)}
    assert [(s.name, s.value, s.source) for s in told["listener.name.clients.max.connections"].synonyms] == [
        ("listener.name.clients.max.connections", "6", ConfigSource.DYNAMIC_BROKER),
        ("listener.name.clients.max.connections", "7", ConfigSource.STATIC_BROKER),
        ("max.connections", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("max.connections", "10", ConfigSource.STATIC_BROKER),
        ("max.connections", "2147483647", ConfigSource.DEFAULT),
    ]
    with pytest.raises(ConfigError, match=r"listener\.name\.clients\.max\.connections"):
        BrokerConfig.parse({"listener.name.clients.max.connections": "-1"})


def test_a_follower_waits_less_than_its_lag() -> None:
    with pytest.raises(ConfigError, match=r"replica\.fetch\.wait\.max\.ms"):
        BrokerConfig.parse({"replica.fetch.wait.max.ms": "40000"})


# -- layers ------------------------------------------------------------------------------------------------


def test_dynamic_layers_win_and_read_only_keys_stay() -> None:
    static = BrokerConfig.parse({"log.segment.bytes": "2000000", "num.partitions": "2"})
    config = static.with_dynamic(
        default={"log.segment.bytes": "3000000", "message.max.bytes": "5", "num.partitions": "9"},
        broker={"log.segment.bytes": "4000000", "no.such.key": "1"},
    )
    assert config.int("log.segment.bytes") == 4_000_000
    assert config.int("message.max.bytes") == 5
    assert config.int("num.partitions") == 2
    assert config.with_dynamic(default={}, broker={}).values == static.values
    told = {entry.key.name: entry for entry in describe_broker(config)}
    segment = told["log.segment.bytes"]
    assert [(s.value, s.source) for s in segment.synonyms] == [
        ("4000000", ConfigSource.DYNAMIC_BROKER),
        ("3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("2000000", ConfigSource.STATIC_BROKER),
        ("1073741824", ConfigSource.DEFAULT),
    ]
    assert (segment.value, segment.source, segment.read_only) == ("4000000", ConfigSource.DYNAMIC_BROKER, False)
    assert told["num.partitions"].read_only


def told_by_kafka(section: str) -> dict[str, dict[str, Any]]:
    rows = json.loads((GOLDEN / "describe_configs_4.3.0.json").read_text())[section]
    return {row["name"]: row for row in rows}


def recorded_broker() -> BrokerConfig:
    """The configuration of the recorded broker; its listeners have a controller's among them."""
    rows = {n: r for n, r in told_by_kafka("broker").items() if n in KEYS and n not in ("listeners", "broker.id")}

    def layer(source: ConfigSource) -> dict[str, str]:
        return {
            name: synonym["value"]
            for name, row in rows.items()
            for synonym in row["synonyms"]
            if synonym["source"] == source.value and synonym["name"] == name
        }

    return BrokerConfig.parse(layer(ConfigSource.STATIC_BROKER)).with_dynamic(
        default=layer(ConfigSource.DYNAMIC_DEFAULT_BROKER), broker=layer(ConfigSource.DYNAMIC_BROKER)
    )


def test_describing_a_broker_as_kafka_does() -> None:
    kafka = told_by_kafka("broker")
    for entry in describe_broker(recorded_broker()):
        row = kafka.get(entry.key.name)
        if row is None or entry.key.name == "listeners":
            continue
        assert entry.value == row["value"], entry.key.name
        assert entry.source.value == row["config_source"], entry.key.name
        assert entry.read_only == (row["read_only"] or entry.key.name in BOUND_ONCE | LISTENERS_COME_LATER)
        synonyms = [{"name": s.name, "value": s.value, "source": s.source.value} for s in entry.synonyms]
        assert synonyms == row["synonyms"], entry.key.name


@pytest.mark.parametrize("section", ["topic_without_overrides", "topic_with_overrides"])
def test_describing_a_topic_as_kafka_does(section: str) -> None:
    kafka = told_by_kafka(section)
    overrides = {n: str(r["value"]) for n, r in kafka.items() if r["config_source"] == 1 and n in TOPIC_KEYS}
    for entry in describe_topic(recorded_broker(), overrides):
        row = kafka[entry.key.name]
        assert entry.value == row["value"], entry.key.name
        assert entry.source.value == row["config_source"], entry.key.name
        synonyms = [{"name": s.name, "value": s.value, "source": s.source.value} for s in entry.synonyms]
        assert synonyms == row["synonyms"], entry.key.name


# -- topics ------------------------------------------------------------------------------------------------


def test_log_config_defaults_are_those_of_the_table() -> None:
    assert LogConfig.of(BrokerConfig(), {}) == LogConfig()


def test_log_config_overrides() -> None:
    overrides = {
        "retention.ms": "-1",
        "retention.bytes": "100",
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "true",
        "a.key.of.the.future": "1",
    }
    config = LogConfig.of(BrokerConfig(), overrides)
    assert config.retention_ms is None
    assert config.retention_bytes == 100
    assert config.compact
    assert config.delete
    assert config.log_append_time
    assert config.unclean_leader_election_enable
    assert not LogConfig().log_append_time


@pytest.mark.parametrize(
    ("properties", "field", "value"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, "retention_ms", 5),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.flush.interval.ms": "7"}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush_ms", 9),
        ({"log.message.timestamp.type": "LogAppendTime"}, "message_timestamp_type", "LogAppendTime"),
    ],
)
def test_broker_keys_give_a_topics_defaults(properties: dict[str, str], field: str, value: object) -> None:
    assert getattr(LogConfig.of(BrokerConfig.parse(properties), {}), field) == value


def test_validating_a_topics_configuration() -> None:
    assert validate_topic_config("retention.ms", "5") == 5
    for key, value, expected in (
        ("no.such.key", "1", "no.such.key"),
        ("retention.ms", None, "retention.ms"),
        ("retention.ms", "abc", "abc"),
        ("segment.bytes", "10", "at least 1048576"),
    ):
        with pytest.raises(ConfigError, match=re.escape(expected)):
            validate_topic_config(key, value)


def test_every_topic_key_may_change() -> None:
    assert {item.key.update for item in TOPIC_KEYS.values()} == {UpdateMode.CLUSTER_WIDE}


# -- files -------------------------------------------------------------------------------------------------


def test_properties_files() -> None:
    text = "\n".join(
        [
            "# a comment",
            "! another",
            "",
            "node.id=1",
            " log.dirs = /a,\\",
            "     /b ",
            "listeners: PLAINTEXT://h:1",
            "path=C:\\\\x",
            "alone",
            "last=x\\",
        ]
    )
    assert read_properties(text) == {
        "node.id": "1",
        "log.dirs": "/a,/b",
        "listeners": "PLAINTEXT://h:1",
        "path": "C:\\x",
        "alone": "",
        "last": "x",
    }


# -- keys without effect -----------------------------------------------------------------------------------


# The last three have names of settings of clients, some of which are also keys of a broker.
TABLE_MODULES = {
    "config_key.py", "config_keys.py", "config_inert.py", "config_cleaner_keys.py", "config_transaction_keys.py",
    "config_log_keys.py", "config_logging_keys.py", "config_topic_keys.py", "config_zookeeper.py",
    "config_docs.py", "option_names.py", "sasl_options.py", "security_options.py",
    "up_secure.py", "up_secrets.py",
}  # fmt: skip


def names_in_the_code() -> set[str]:
    """Every string in the sources but those of the tables, and every key that is put together of one and an ending."""
    sources = [p for p in (ROOT / "src/holdfast").rglob("*.py") if p.name not in TABLE_MODULES]
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    names = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    endings = {
        str(node.values[1].value)
        for node in nodes
        if isinstance(node, ast.JoinedStr) and len(node.values) == 2 and isinstance(node.values[1], ast.Constant)
    }
    beginnings = {name for name in names if any(key.startswith(f"{name}.") for key in KEYS)}
    return names | {beginning + ending for beginning in beginnings for ending in endings} & KEYS.keys()


@pytest.mark.no_cover  # it parses all sources, and is four times as long when it is traced
def test_B1_every_key_is_read_somewhere_or_says_that_it_has_no_effect() -> None:
    read = names_in_the_code()
    topic = {name for name, item in TOPIC_KEYS.items() if name in read}
    through_topics = {synonym for name in topic for synonym, _ in TOPIC_KEYS[name].synonyms}
    assert {name for name, item in TOPIC_KEYS.items() if item.key.inert is None} == topic
    dead = {name for name, key in KEYS.items() if key.inert is None} - read - through_topics
    assert not dead, f"{sorted(dead)}: read them, or say in model/config_inert.py why nothing does"
    assert not {name for name, key in KEYS.items() if key.inert is not None} & (read | through_topics)


def test_C_7_what_has_no_effect_is_listed_with_its_reason() -> None:
    page = configuration_markdown().partition("## Accepted and without effect")[2]
    inert = [key for key in KEYS.values() if key.inert] + [i.key for i in TOPIC_KEYS.values() if i.key.inert]
    assert len(inert) > 50
    for key in inert:
        assert f"| `{key.name}`" in page and str(key.inert) in page
    wanted = {row["name"] for row in TABLES["broker"] if row["update_mode"] != "read-only"}
    assert wanted <= set(KEYS)
    assert {row["name"] for row in TABLES["topic"]} == set(TOPIC_KEYS)


@pytest.mark.parametrize(
    ("name", "value"),
    [("log.preallocate", "true"), ("ssl.provider", "BC"), ("zookeeper.ssl.crl.enable", "true"),
     ("metric.reporters", "com.example.Reporter")],
)  # fmt: skip
def test_C_7_a_value_that_asks_for_what_is_not_there_is_refused(name: str, value: str) -> None:
    default = KEYS[name].default or ""
    assert BrokerConfig.parse({name: default}).get(name) is not None
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.parse({name: value})


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,12:3", "0:1, 1:2"])
def test_C_2_lists_of_throttled_replicas(text: str) -> None:
    validate_topic_config("leader.replication.throttled.replicas", text)


@pytest.mark.parametrize("text", ["0", "0:", "a:1", "0:1,*", "0:1,,1:2", "0:-1", "none"])
def test_C_2_lists_that_name_no_replicas(text: str) -> None:
    with pytest.raises(ConfigError, match="the literal"):
        validate_topic_config("follower.replication.throttled.replicas", text)


def test_B1_keys_without_effect_are_told_with_the_nearest_name() -> None:
    given = {
        "log.retention.mss": "5",
        "process.roles": "broker",
        "num.io.threads": "4",
        "log.cleanup.policy": "compact",  # has one
    }
    lines = ineffective(BrokerConfig.parse(given))
    assert lines[0] == "log.retention.mss is not a key of a broker, it has no effect: did you mean log.retention.ms?"
    assert lines[1].startswith("process.roles is not a key of a broker, it has no effect")
    assert lines[2] == "num.io.threads=4 has no effect: " + str(KEYS["num.io.threads"].inert)
    assert len(lines) == 3


def test_B1_keys_of_the_other_metadata_store_are_told() -> None:
    of_one = {"metadata.log.dirs": "/a,/b", "metadata.witness.dirs": "/c", "metadata.log.dir.timeout.ms": "300"}
    of_other = {"zookeeper.connect": "one:2181"}
    assert ineffective(BrokerConfig.parse(of_one)) == []
    assert ineffective(BrokerConfig.parse({**of_other, "metadata.store": "zookeeper"})) == []
    assert ineffective(BrokerConfig.parse({**of_one, **of_other})) == [
        "zookeeper.connect=one:2181 has no effect: metadata.store is embedded"
    ]
    assert ineffective(BrokerConfig.parse({**of_one, **of_other, "metadata.store": "zookeeper"})) == [
        "metadata.log.dir.timeout.ms=300 has no effect: metadata.store is zookeeper",
        "metadata.log.dirs=/a,/b has no effect: metadata.store is zookeeper",
        "metadata.witness.dirs=/c has no effect: metadata.store is zookeeper",
    ]


def test_dead_keys_are_refused_or_not_dynamic() -> None:
    with pytest.raises(ConfigError, match=r"metadata\.store=zookeeper without zookeeper\.connect: expected HOST:PORT"):
        BrokerConfig.parse({"metadata.store": "zookeeper"})
    for ensemble in ("one:2181", "one:2181,10.0.0.2:2182,[::1]:2183/kafka/one"):
        config = BrokerConfig.parse({"metadata.store": "zookeeper", "zookeeper.connect": ensemble})
        assert config.optional_str("zookeeper.connect") == ensemble
        assert ineffective(config) == []
        told = ineffective(BrokerConfig.parse({"zookeeper.connect": ensemble}))
        assert told == [f"zookeeper.connect={ensemble} has no effect: metadata.store is embedded"]
    told = ineffective(BrokerConfig.parse({"zookeeper.auth.digest": "u:hush", "zookeeper.clientCnxnSocket": "c"}))
    assert told == [
        "zookeeper.auth.digest=[hidden] has no effect: metadata.store is embedded",
        f"zookeeper.clientCnxnSocket=c has no effect: {KEYS['zookeeper.clientCnxnSocket'].inert}",
    ]
    assert KEYS["listeners"].update is UpdateMode.READ_ONLY


def test_a_key_of_a_listeners_mechanism_is_described_by_its_own_key_without_its_value() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    config = BrokerConfig.parse({"listener.name.clients.plain.sasl.jaas.config": line})
    told = {entry.key.name: entry for entry in describe_broker(config)}
    entry = told["listener.name.clients.plain.sasl.jaas.config"]
    assert [s.name for s in entry.synonyms] == ["listener.name.clients.plain.sasl.jaas.config"]
    assert entry.key.sensitive
