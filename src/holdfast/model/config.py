"""Configuration: text in, typed values out.

``BrokerConfig`` is one broker's configuration in its layers (properties file, dynamic default, dynamic per
broker); ``LogConfig`` is what one topic's logs go by. Both are values: a change makes a new one. The table
of keys is model/config_keys.py. Nothing here reads a file.
"""

import builtins
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.model import listeners
from holdfast.model.config_connection_keys import OVERRIDES, PER_IP, check_connection_limits
from holdfast.model.config_id_keys import HOST_KEY, KEY_LISTENER
from holdfast.model.config_key import ConfigKey, ConfigType, UpdateMode
from holdfast.model.config_keys import KEYS, LISTENER_PREFIX, key_of
from holdfast.model.config_protocol import NEWEST, PROTOCOL_VERSION
from holdfast.model.config_topic_keys import TOPIC_KEYS, TopicKey
from holdfast.model.config_value import Value, parse_value
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import Endpoint, Listening, listening
from holdfast.model.properties import property_lines, read_properties

__all__ = [
    "ALL_DIRS",
    "CORDONED_LOG_DIRS",
    "KEYS",
    "LISTENER_PREFIX",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigKey",
    "ConfigType",
    "LogConfig",
    "TopicKey",
    "UpdateMode",
    "absolute_path",
    "check_topic_configs",
    "cordoned_entries",
    "key_of",
    "parse_value",
    "property_lines",
    "read_properties",
    "topic_value",
    "validate_topic_config",
]

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
ALL_DIRS: Final = "*"
"""As the only entry of cordoned.log.dirs: every log directory, those to come included."""

STORE_EMBEDDED: Final = "embedded"
"""As metadata.store: directories that the brokers of one machine share."""


_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def _default(key: ConfigKey) -> Value | None:
    return None if key.default is None else parse_value(key, key.default)


_DEFAULTS: Final[Mapping[str, Value | None]] = {name: _default(key) for name, key in KEYS.items()}


def _may_change(name: str) -> bool:
    key = key_of(name)
    return key is not None and key.update is not UpdateMode.READ_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's configuration. Later layers win: default, ``static``, ``dynamic_default``, ``dynamic``.

    ``unknown`` are the given keys that the table does not have; they mean nothing and are told (``unknown_keys``).
    """

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Value | None] = field(default_factory=lambda: _DEFAULTS)

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "BrokerConfig":
        """The configuration that ``properties`` describe; ConfigError names what cannot be used."""
        static = {name: text for name, text in properties.items() if key_of(name) is not None}
        unknown = {name: text for name, text in properties.items() if name not in static}
        config = cls(static=static, unknown=unknown)._resolved()
        _check_cordoned(config)
        return config

    def with_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> "BrokerConfig":
        """This configuration with the dynamic layers replaced. Keys that may not change are left out."""
        return replace(
            self,
            dynamic_default={name: text for name, text in default.items() if _may_change(name)},
            dynamic={name: text for name, text in broker.items() if _may_change(name)},
        )._resolved()

    def _resolved(self) -> "BrokerConfig":
        values = dict(_DEFAULTS)
        for layer in (self.static, self.dynamic_default, self.dynamic):
            for name, text in layer.items():
                key = key_of(name)
                assert key is not None, name
                values[name] = parse_value(key, text)
        config = replace(self, values=values)
        _check_together(config)
        return config

    def on_listener(self, name: builtins.str) -> "BrokerConfig":
        """This configuration as a listener goes by it: ``listener.name.NAME.KEY`` in the place of KEY."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}
        return replace(self, values={**self.values, **own}) if own else self

    # The accessors are named by type. A wrong key or a value that is absent is a mistake in the code, not
    # of the person who wrote the file: KeyError and TypeError.

    def get(self, name: builtins.str) -> Value | None:
        return self.values[name]

    def int(self, name: builtins.str) -> builtins.int:
        value = self.values[name]
        if isinstance(value, builtins.int) and not isinstance(value, builtins.bool):
            return value
        raise TypeError(f"{name} is {value!r}, not a whole number")

    long = int

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        return None if self.values[name] is None else self.int(name)

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.values[name]
        if isinstance(value, builtins.bool):
            return value
        raise TypeError(f"{name} is {value!r}, not a boolean")

    def str(self, name: builtins.str) -> builtins.str:
        value = self.values[name]
        if isinstance(value, builtins.str):
            return value
        raise TypeError(f"{name} is {value!r}, not a string")

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        return None if self.values[name] is None else self.str(name)

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        value = self.values[name]
        if isinstance(value, tuple):
            return value
        raise TypeError(f"{name} is {value!r}, not a list")

    @property
    def given_id(self) -> builtins.int | None:
        """node.id, or broker.id; None when neither is given."""
        node = self.optional_int("node.id")
        if node is None:
            node = self.int("broker.id")
        return None if node < 0 else node

    @property
    def node_id(self) -> builtins.int:
        """The same where it must be known: of a broker that runs, or has run. ConfigError when it is not given."""
        node = self.given_id
        if node is None:
            raise ConfigError("node.id is not set: expected a number >= 0 that no other broker has")
        return node

    def identified(self, node: builtins.int) -> "BrokerConfig":
        """This configuration with node.id, which the broker has found out."""
        return replace(self, static={**self.static, "node.id": builtins.str(node)})._resolved()

    @property
    def log_dirs(self) -> tuple[builtins.str, ...]:
        """log.dirs, or log.dir: as written, in order."""
        return self.list("log.dirs" if self.values["log.dirs"] else "log.dir")

    @property
    def metadata_log_dirs(self) -> tuple[builtins.str, ...]:
        """metadata.log.dirs, or metadata.log.dir, or the first of log.dirs: as written, in order."""
        if self.values["metadata.log.dirs"]:
            return self.list("metadata.log.dirs")
        return (self.optional_str("metadata.log.dir") or self.log_dirs[0],)

    @property
    def metadata_witness_dirs(self) -> tuple[builtins.str, ...]:
        """metadata.witness.dirs, or the log directories: as written, in order."""
        return self.list("metadata.witness.dirs") if self.values["metadata.witness.dirs"] else self.log_dirs

    @property
    def listening(self) -> Listening:
        """What the keys about listeners mean together. ConfigError."""
        return listening(
            listeners=self.list(listeners.LISTENERS),
            advertised=self.list(listeners.ADVERTISED) if self.values[listeners.ADVERTISED] else (),
            protocol_map=self.str(listeners.PROTOCOL_MAP),
            inter_broker=self.optional_str(listeners.INTER_BROKER),
            inter_broker_protocol=self.static.get(listeners.INTER_BROKER_PROTOCOL),
            control_plane=self.optional_str(listeners.CONTROL_PLANE),
            operators=self.list(listeners.OPERATORS) if self.values[listeners.OPERATORS] else (),
        )

    @property
    def protocol_is_newest(self) -> builtins.bool:
        """Whether every broker of the cluster has this software, by inter.broker.protocol.version."""
        return self.str(PROTOCOL_VERSION) == NEWEST

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """What is listened on, in the order of the file."""
        return self.listening.bound

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """What is told: advertised.listeners, or listeners."""
        return self.listening.advertised

    def is_cordoned(self, path: builtins.str) -> builtins.bool:
        """Whether the log directory ``path`` takes no new replicas (KIP-1066)."""
        entries = self.list(CORDONED_LOG_DIRS)
        return ALL_DIRS in entries or absolute_path(path) in map(absolute_path, entries)


def absolute_path(path: str) -> str:
    """By which directories are compared (C28). A relative one is one of the process's working directory."""
    return posixpath.abspath(path)


def cordoned_entries(text: str) -> tuple[str, ...]:
    """A value of cordoned.log.dirs as its entries."""
    value = parse_value(KEYS[CORDONED_LOG_DIRS], text)
    assert isinstance(value, tuple)
    return value


def _check_ids(config: BrokerConfig) -> None:
    node, broker = config.optional_int("node.id"), config.int("broker.id")
    if node is not None and broker not in (-1, node):
        raise ConfigError(f"Invalid value {broker} of broker.id: expected {node}, the value of node.id, or nothing")
    if broker < -1:
        raise ConfigError(f"Invalid value {broker} of broker.id: expected >= 0, or -1 for none")
    key = config.optional_str(HOST_KEY)
    port = config.listening.told_to_brokers.port
    if key == KEY_LISTENER and not port:
        raise ConfigError(
            f"Invalid value {key} of {HOST_KEY}: the listener of brokers, {config.listening.told_to_brokers}, has "
            f"another port at every start: expected a fixed one, or another key"
        )


def _check_together(config: BrokerConfig) -> None:
    """Rules between keys."""
    _check_ids(config)
    if not config.log_dirs or not all(config.log_dirs):
        raise ConfigError(f"Invalid value {config.log_dirs!r} of log.dirs: expected one directory or more, by commas")
    shared = config.metadata_log_dirs
    if not all(shared) or len(set(shared)) < len(shared):
        raise ConfigError(
            f"Invalid value {','.join(shared)!r} of metadata.log.dirs: expected one directory or more, each once"
        )
    _ = config.listening  # which checks them
    check_connection_limits(config.int(PER_IP), config.str(OVERRIDES))
    if config.str("metadata.store") != STORE_EMBEDDED and config.optional_str("zookeeper.connect") is None:
        raise ConfigError(
            f"metadata.store={config.str('metadata.store')} without zookeeper.connect: expected "
            f"{KEYS['zookeeper.connect'].range} there"
        )
    _check_protocol(config)
    _check_lags({f"log.cleaner.{name}": config.get(f"log.cleaner.{name}") for name in _LAGS})
    twice = sorted({path for path in config.log_dirs if config.log_dirs.count(path) > 1})
    if twice:
        raise ConfigError(f"Invalid value {','.join(config.log_dirs)!r} of log.dirs: {twice[0]} is listed twice")
    wait, lag = config.int("replica.fetch.wait.max.ms"), config.int("replica.lag.time.max.ms")
    if wait > lag:
        raise ConfigError(
            f"Invalid value {wait} of replica.fetch.wait.max.ms: expected <= {lag}, replica.lag.time.max.ms"
        )


def _check_lags(lags: Mapping[str, Value | None]) -> None:
    """The younger age, then the older one, by key. In Kafka's words."""
    (lower, least), (upper, most) = lags.items()
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise ConfigError(f"conflict topic config setting {lower} ({least}) > {upper} ({most})")


def _check_protocol(config: BrokerConfig) -> None:
    """What an older protocol does not know is refused with it: brokers of that time would tell clients wrong addresses,
    or look for the metadata elsewhere."""
    if config.protocol_is_newest:
        return
    version = f"{PROTOCOL_VERSION}={config.str(PROTOCOL_VERSION)}"
    told = config.listening.advertised
    if [endpoint.name for endpoint in told] != [listeners.SecurityProtocol.PLAINTEXT.name]:
        raise ConfigError(
            f"{version} knows one listener, PLAINTEXT, and this broker tells {', '.join(map(str, told))}: expected "
            f"that one until all brokers have {NEWEST}"
        )
    if config.str("metadata.store") != STORE_EMBEDDED:
        raise ConfigError(
            f"{version} knows the store {STORE_EMBEDDED}, and metadata.store is {config.str('metadata.store')}: "
            f"expected {NEWEST}, or nothing"
        )


def _check_cordoned(config: BrokerConfig) -> None:
    """What the properties file says. A value that is set at run time is checked by its broker, which may have more
    directories by then, or less."""
    cordoned = config.list(CORDONED_LOG_DIRS)
    if ALL_DIRS in cordoned and len(cordoned) > 1:
        raise ConfigError(f"Invalid value {','.join(cordoned)!r} of {CORDONED_LOG_DIRS}: expected * alone")
    dirs = set(map(absolute_path, config.log_dirs))
    foreign = [path for path in cordoned if path != ALL_DIRS and absolute_path(path) not in dirs]
    if foreign:
        raise ConfigError(
            f"Invalid value {foreign[0]!r} of {CORDONED_LOG_DIRS}: expected one of log.dirs, "
            f"{', '.join(config.log_dirs)}"
        )


def validate_topic_config(key: str, value: str | None) -> Value:
    """The typed value of one topic configuration; ConfigError when the key or the value cannot be used."""
    item = TOPIC_KEYS.get(key)
    if item is None:
        raise ConfigError(f"Unknown topic config name: {key}")
    if value is None:
        raise ConfigError(f"Null value not supported for topic configs: {key}")
    return parse_value(item.key, value)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Rules between the keys of one topic, ``configs`` being all its overrides, each one good. ConfigError."""
    lag = {name: topic_value(TOPIC_KEYS[name], _DEFAULT_BROKER, configs) for name in _LAGS}
    _check_lags(lag)


_DEFAULT_BROKER: Final = BrokerConfig()


def topic_value(item: TopicKey, broker: BrokerConfig, overrides: Mapping[str, str]) -> Value:
    """A topic key's value: the override, else the first broker key that has one."""
    text = overrides.get(item.key.name)
    if text is not None:
        return parse_value(item.key, text)
    for name, factor in item.synonyms:
        value = broker.get(name)
        if value is not None:
            return value * factor if isinstance(value, int) and factor != 1 else value
    if item.key.default is not None:
        return parse_value(item.key, item.key.default)
    raise AssertionError(f"no broker key gives {item.key.name} a value")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What the logs of one topic go by. Durations in ms, sizes in bytes; None is "no limit"."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    jitter_seed: int = 0
    """What the broker has drawn for the chance in segment_jitter_ms."""
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int | None = 604_800_000
    retention_bytes: int | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    """How long a tombstone stays once its log was cleaned up to it."""
    min_cleanable_dirty_ratio: float = 0.5
    """0 to 1: the share of bytes behind the cleaned part from which on a log is cleaned."""
    min_compaction_lag_ms: int = 0
    """Records younger than this are not cleaned."""
    max_compaction_lag_ms: int = 2**63 - 1
    """A log whose first uncleaned record is older than this is cleaned, whatever its dirty ratio."""
    oldest_segment_ms: int = field(init=False)
    """The age at which a segment rolls: segment.ms, or max.compaction.lag.ms where a log is compacted and that is
    less, since nothing of the active segment is cleaned. Asked on every append."""

    def __post_init__(self) -> None:
        age_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms
        object.__setattr__(self, "oldest_segment_ms", age_ms)

    @property
    def compression_level(self) -> int | None:
        """Of compression_type; None where that has no levels."""
        return {"gzip": self.gzip_level, "lz4": self.lz4_level, "zstd": self.zstd_level}.get(self.compression_type)

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def of(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> "LogConfig":
        """The topic's overrides over the broker's defaults. Overrides that the table does not have are
        ignored: a newer controller may have let them in."""

        def value(name: str) -> Value:
            return topic_value(TOPIC_KEYS[name], broker, overrides)

        def number(name: str) -> int:
            found = value(name)
            assert isinstance(found, int), f"{name} is {found!r}"
            return found

        def limit(name: str) -> int | None:
            found = number(name)
            return None if found < 0 else found

        small = "internal.segment.bytes"
        policy = value("cleanup.policy")
        assert isinstance(policy, tuple)
        return cls(
            segment_bytes=number(small if small in overrides else "segment.bytes"),
            segment_ms=number("segment.ms"),
            segment_jitter_ms=number("segment.jitter.ms"),
            segment_index_bytes=number("segment.index.bytes"),
            index_interval_bytes=number("index.interval.bytes"),
            retention_ms=limit("retention.ms"),
            retention_bytes=limit("retention.bytes"),
            cleanup_policy=frozenset(policy),
            max_message_bytes=number("max.message.bytes"),
            message_timestamp_type=str(value("message.timestamp.type")),
            timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
            compression_type=str(value("compression.type")),
            min_insync_replicas=number("min.insync.replicas"),
            unclean_leader_election_enable=bool(value("unclean.leader.election.enable")),
            file_delete_delay_ms=number("file.delete.delay.ms"),
            flush_messages=number("flush.messages"),
            flush_ms=number("flush.ms"),
            gzip_level=number("compression.gzip.level"),
            lz4_level=number("compression.lz4.level"),
            zstd_level=number("compression.zstd.level"),
            delete_retention_ms=number("delete.retention.ms"),
            min_cleanable_dirty_ratio=float(str(value("min.cleanable.dirty.ratio"))),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            max_compaction_lag_ms=number("max.compaction.lag.ms"),
        )
