"""The one table of configuration keys: name, type, default, range, update mode, meaning.

Names, types, defaults and ranges are Kafka's where Kafka has the key (3.9 or 4.3); ``ours`` marks the rest.
A key is read somewhere in the house, or it is in model/config_inert.py, which says why it has no effect; a test
looks. docs/configuration.md is made from this table. Nothing here parses a file or knows a running broker; that is
model/config.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from holdfast.model.config_authorizer_keys import AUTHORIZER_KEYS
from holdfast.model.config_bearer_keys import BEARER_KEYS, BEARER_NAMES
from holdfast.model.config_cleaner_keys import CLEANER_KEYS, COMPRESSION_KEYS
from holdfast.model.config_connection_keys import CONNECTION_KEYS
from holdfast.model.config_id_keys import ID_KEYS
from holdfast.model.config_inert import INERT_KEYS
from holdfast.model.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, UpdateMode, make_key
from holdfast.model.config_log_keys import LOG_KEYS
from holdfast.model.config_logging_keys import LOGGING_KEYS
from holdfast.model.config_protocol import PROTOCOL_KEY
from holdfast.model.config_quota_keys import QUOTA_KEYS
from holdfast.model.config_sasl_keys import OF_A_MECHANISM, SASL_KEYS, SASL_MECHANISMS
from holdfast.model.config_tls_keys import TLS_KEYS
from holdfast.model.config_transaction_keys import TRANSACTION_KEYS
from holdfast.model.config_zookeeper import ZOOKEEPER_KEYS
from holdfast.model.listeners import (
    ADVERTISED,
    CONTROL_PLANE,
    DEFAULT_PROTOCOL_MAP,
    INTER_BROKER,
    INTER_BROKER_PROTOCOL,
    LISTENERS,
    OPERATORS,
    PROTOCOL_MAP,
    SecurityProtocol,
)

__all__ = [
    "INT_MAX",
    "KEYS",
    "LISTENER_PREFIX",
    "LONG_MAX",
    "ConfigKey",
    "ConfigType",
    "UpdateMode",
    "key_of",
    "make_key",
]

_B, _S, _I, _L, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)
_SHORT = ConfigType.SHORT
_ALL, _EACH = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER
_COMPRESSION = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


_IDENTITY = (
    make_key("node.id", _I, None, "The broker's number, another one for each; if not given, the broker finds it.", 0),
    make_key("broker.id", _I, -1, "Older name of node.id. If both are given they must be equal; -1 is none."),
    make_key("broker.rack", _S, None, "Where the broker stands; replicas of a partition are spread over racks."),
    make_key(
        LISTENERS,
        _LIST,
        "PLAINTEXT://:9092",
        "The addresses to listen on, each NAME://HOST:PORT with a name and a port of its own.",
    ),
    make_key(
        ADVERTISED,
        _LIST,
        None,
        "What is told: each client the address of the listener that it came by. Those of listeners if not given; a "
        "listener that is left out here is told to nobody.",
    ),
    make_key(
        PROTOCOL_MAP,
        _S,
        DEFAULT_PROTOCOL_MAP,
        "The security protocol of each listener, NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    make_key(
        INTER_BROKER,
        _S,
        None,
        "The listener by which other brokers reach this one, the only one that takes their requests. If not given, "
        "the one that is named like security.inter.broker.protocol, and only on a loopback address.",
    ),
    make_key(
        INTER_BROKER_PROTOCOL,
        _S,
        "PLAINTEXT",
        "Names the listener of brokers where inter.broker.listener.name does not.",
        choices=tuple(SecurityProtocol.__members__),
    ),
    make_key(
        CONTROL_PLANE,
        _S,
        None,
        "A listener for the controller alone: its orders, and what it is asked when this broker is it. If not given, "
        "the one of brokers.",
    ),
    make_key(
        OPERATORS,
        _LIST,
        None,
        "Listeners of clients that take what `holdfast log-dirs` asks about disks too; those of brokers always do.",
        ours=True,
    ),
)

_DIRECTORIES = (
    make_key("log.dirs", _LIST, None, "The log directories, one per disk. If not given, log.dir is used."),
    make_key("log.dir", _LIST, "/tmp/kafka-logs", "The log directory if log.dirs is not given."),
    make_key(
        "metadata.log.dirs",
        _LIST,
        None,
        "The directories that all brokers share for the embedded metadata store, each with a copy of everything: put "
        "them on different disks. If not given, metadata.log.dir is used.",
        ours=True,
    ),
    make_key(
        "metadata.log.dir",
        _S,
        None,
        "One such directory, if metadata.log.dirs is not given; if neither is, the first of log.dirs.",
    ),
    make_key(
        "metadata.witness.dirs",
        _LIST,
        None,
        "Directories of this broker that note which copies of the metadata are good, for a start at which one "
        "of them is missing. If not given: log.dirs.",
        ours=True,
    ),
    make_key(
        "metadata.log.dir.timeout.ms",
        _L,
        500,
        "A metadata directory silent for this long while another has answered is left out until it is whole again.",
        1,
        ours=True,
    ),
    make_key(
        "metadata.log.dir.probe.interval.ms",
        _L,
        1_000,
        "How often the controller probes each metadata directory by writing, syncing and reading back a small file.",
        1,
        ours=True,
    ),
    make_key(
        "metadata.store",
        _S,
        "embedded",
        "Where the cluster's metadata is: in directories that the brokers of one machine share (metadata.log.dirs), or "
        "in a ZooKeeper ensemble (zookeeper.connect).",
        choices=("embedded", "zookeeper"),
        ours=True,
    ),
    make_key(
        "cordoned.log.dirs",
        _LIST,
        "",
        "Log directories that get no new replicas; * is all of them.",
        update=_EACH,
    ),
    make_key(
        "log.dir.failure.timeout.ms",
        _L,
        30_000,
        "A broker that cannot tell the controller about a dead log directory for this long stops.",
        1,
    ),
    make_key(
        "log.dir.probe.interval.ms",
        _L,
        3_000,
        "How often each log directory is probed by writing, syncing and reading back a small file.",
        1,
        ours=True,
    ),
    make_key(
        "log.dir.degraded.probe.ms",
        _L,
        1_000,
        "Probes faster than this never make a log directory count as degraded. Slower ones do if they are ten times "
        "as slow as usual there and as those of the other directories.",
        1,
        ours=True,
    ),
    make_key(
        "log.dir.degraded.action",
        _S,
        "move",
        "What follows for a degraded log directory: others lead what is on it, or it is taken offline.",
        choices=("move", "offline"),
        ours=True,
    ),
    make_key(
        "log.dir.placement",
        _S,
        "partitions",
        "Where new replicas go: to the log directory with the fewest partitions, the one with the most room relative "
        "to its size, or the one with the fewest partitions of the same topic.",
        choices=("partitions", "space", "topic"),
        ours=True,
    ),
)

_TOPICS = (
    make_key("auto.create.topics.enable", _B, "true", "Asking for an unknown topic creates it."),
    make_key("delete.topic.enable", _B, "true", "Topics may be deleted."),
    make_key("num.partitions", _I, 1, "Partitions of a topic that is created without a number.", 1),
    make_key("default.replication.factor", _I, 1, "Replicas of a topic that is created without a number."),
    make_key(
        "min.insync.replicas",
        _I,
        1,
        "With acks=all, a write needs this many replicas in sync.",
        1,
        update=_ALL,
    ),
    make_key(
        "unclean.leader.election.enable",
        _B,
        "false",
        "A replica that is not in sync may become leader when no other is left, losing records.",
        update=_ALL,
    ),
    make_key(
        "compression.type",
        _S,
        "producer",
        "What batches are stored as; producer keeps what the producer chose.",
        choices=_COMPRESSION,
        update=_ALL,
    ),
    make_key("message.max.bytes", _I, 1_048_588, "The largest batch, compressed, in bytes.", 0, update=_ALL),
)

_REPLICATION = (
    make_key("replica.lag.time.max.ms", _L, 30_000, "A follower that is behind for this long leaves the ISR."),
    make_key("replica.fetch.max.bytes", _I, 1_048_576, "A follower's limit per partition and fetch.", 0),
    make_key("replica.fetch.min.bytes", _I, 1, "Bytes a leader waits for before it answers a follower."),
    make_key("replica.fetch.response.max.bytes", _I, 10_485_760, "A follower's limit per fetch.", 0),
    make_key("replica.fetch.wait.max.ms", _I, 500, "How long a leader holds a follower's fetch."),
    make_key("replica.fetch.backoff.ms", _I, 1000, "How long a partition rests after a failed fetch.", 0),
    make_key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _L,
        LONG_MAX,
        "Bytes that moves between log directories of a broker may copy in a second, all together.",
        0,
        update=_ALL,
    ),
    make_key(
        "leader.replication.throttled.rate",
        _L,
        LONG_MAX,
        "Bytes that this broker sends in a second, as leader, to followers out of sync of the replicas that "
        "leader.replication.throttled.replicas of their topics name.",
        0,
        update=_ALL,
    ),
    make_key(
        "follower.replication.throttled.rate",
        _L,
        LONG_MAX,
        "Bytes that this broker fetches in a second for replicas of its own that are out of sync and that "
        "follower.replication.throttled.replicas of their topics name.",
        0,
        update=_ALL,
    ),
    make_key(
        "num.replica.alter.log.dirs.threads",
        _I,
        None,
        "Moves between log directories that a broker copies at the same time; if not given, one per log directory.",
    ),
    make_key("replica.socket.timeout.ms", _I, 30_000, "How long a follower waits for a leader's answer."),
    make_key(
        "replica.high.watermark.checkpoint.interval.ms",
        _L,
        5000,
        "How often high watermarks are written, with them recovery points and log start offsets.",
    ),
)

_CLUSTER = (
    make_key("broker.heartbeat.interval.ms", _I, 2000, "How often a broker tells the controller that it lives."),
    make_key("broker.session.timeout.ms", _I, 9000, "A broker that is silent for this long is fenced."),
    make_key("controlled.shutdown.enable", _B, "true", "A stopping broker hands over its leaders first."),
    make_key("auto.leader.rebalance.enable", _B, "true", "Leadership returns to preferred replicas by itself."),
    make_key(
        "leader.imbalance.check.interval.seconds",
        _L,
        300,
        "How often preferred leaders are looked for.",
        1,
    ),
    make_key(
        "leader.imbalance.per.broker.percentage",
        _I,
        10,
        "Share of a broker's preferred partitions that others may lead before it is balanced.",
    ),
    make_key(
        "leader.election.wait.ms",
        _L,
        0,
        "Head start of the preferred replica where nobody leads, say after a restart of all brokers: another one that "
        "is back earlier is elected only after it. 0 elects whoever is back first.",
        0,
        ours=True,
    ),
)

_GROUPS = (
    make_key("offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets.", 1),
    make_key(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets. Where a file says it, the topic is not made, and no group works, until there "
        "are as many brokers; without a value a smaller cluster gets what it can hold.",
        1,
    ),
    make_key("offsets.topic.segment.bytes", _I, 104_857_600, "Segment size of __consumer_offsets.", 1),
    make_key("offsets.retention.minutes", _I, 10_080, "Offsets of an empty group are kept for this long.", 1),
    make_key("offsets.retention.check.interval.ms", _L, 600_000, "How often expired offsets are looked for.", 1),
    make_key("offsets.commit.timeout.ms", _I, 5000, "How long a commit waits for its replicas.", 1),
    make_key("offset.metadata.max.bytes", _I, 4096, "The longest text a commit may carry."),
    make_key("group.min.session.timeout.ms", _I, 6000, "The shortest session timeout a member may ask for."),
    make_key("group.max.session.timeout.ms", _I, 1_800_000, "The longest session timeout a member may ask for."),
    make_key("group.initial.rebalance.delay.ms", _I, 3000, "How long an empty group waits for more members."),
    make_key("group.max.size", _I, INT_MAX, "The most members of a group.", 1),
    make_key(
        "producer.id.expiration.ms",
        _I,
        86_400_000,
        "What is known of a producer is forgotten after this time.",
        1,
        update=_ALL,
    ),
    make_key(
        "producer.id.expiration.check.interval.ms",
        _I,
        600_000,
        "How often forgotten producers are looked for.",
        1,
        internal=True,
    ),
)

_NETWORK = (
    make_key("socket.request.max.bytes", _I, 104_857_600, "The largest request.", 1),
    make_key("fetch.max.bytes", _I, 57_671_680, "The most bytes of a fetch answer.", 1024),
    make_key(
        "max.incremental.fetch.session.cache.slots",
        _I,
        1000,
        "The most fetch sessions of consumers (KIP-227) at a time; who gets none sends full fetches. 0: none.",
        0,
    ),
    make_key(
        "metrics.port",
        _I,
        0,
        "Prometheus' text is served on this port, at /metrics, and how the broker is at /health/live, ready and "
        "safe-to-stop, on metrics.host; 0 is nowhere, and nothing is counted.",
        0,
        high=65_535,
        ours=True,
    ),
    make_key(
        "metrics.host",
        _S,
        None,
        "The address that metrics.port is listened to on; nobody logs in there. Not given: that of the first listener.",
        ours=True,
    ),
    make_key(
        "metrics.level",
        _S,
        "topic",
        "How finely metrics.port tells things apart: sums of the broker alone, by topic, or by partition too.",
        choices=("broker", "topic", "partition"),
        ours=True,
    ),
)

KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for group in (
        _IDENTITY,
        ID_KEYS,
        (PROTOCOL_KEY,),
        _DIRECTORIES,
        _TOPICS,
        COMPRESSION_KEYS,
        LOG_KEYS,
        CLEANER_KEYS,
        _REPLICATION,
        _CLUSTER,
        _GROUPS,
        TLS_KEYS,
        TRANSACTION_KEYS,
        CONNECTION_KEYS,
        SASL_KEYS,
        BEARER_KEYS,
        AUTHORIZER_KEYS,
        QUOTA_KEYS,
        _NETWORK,
        LOGGING_KEYS,
        ZOOKEEPER_KEYS,
        INERT_KEYS,
    )
    for key in group
}
"""Every key of a broker."""

LISTENER_PREFIX: Final = "listener.name."


def key_of(name: str) -> ConfigKey | None:
    """The key of this name, also as one listener has it: ``listener.name.clients.max.connections``. None: there is
    none."""
    if not name.startswith(LISTENER_PREFIX):
        return KEYS.get(name)
    listener, _, plain = name.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, rest = plain.partition(".")
    if mechanism.upper() in SASL_MECHANISMS and mechanism == mechanism.lower():
        of_mechanism = OF_A_MECHANISM | BEARER_NAMES if mechanism == "oauthbearer" else OF_A_MECHANISM
        plain = rest if rest in of_mechanism else plain
    key = KEYS.get(plain)
    if key is None or not key.per_listener or not listener or listener != listener.lower():
        return None
    return replace(key, name=name)
