"""Options of the data source: the names and the meaning of Spark's Kafka source and sink, checked at once.

Owns parsing and the words of what is wrong. Never talks to a cluster. Option names are case-insensitive, as Spark
hands them over in lower case.
"""

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from holdfast.client.security import SecuritySettings
from holdfast.client.security_options import SECURITY_PREFIXES, parse_security
from holdfast.model.errors import ConfigError
from holdfast.spark.option_names import (
    FORBIDDEN_READ,
    FORBIDDEN_WRITE,
    KAFKA_READ,
    KAFKA_WRITE,
    NO_EFFECT_READ,
    NO_EFFECT_WRITE,
    READ_OPTIONS,
    REFUSED,
    SPARKS_OWN,
    WRITE_OPTIONS,
)

log = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
"""How Spark's offset JSON writes them."""

MAX_BATCH_BYTES: Final = 900_000
"""A batch of this size is taken by brokers with the default of max.message.bytes."""


class OptionError(ValueError):
    """An option is missing, unknown or has a value that cannot be used; the text names it."""


Offsets: TypeAlias = dict[str, dict[int, int]]
"""Topic -> partition -> offset (or timestamp)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """Explicit offsets per partition; EARLIEST and LATEST may stand for some."""

    offsets: Offsets
    option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamps:
    """Offsets by time, per partition or (``everywhere``) one time for all."""

    timestamps: Offsets | None
    everywhere: int | None
    option: str


class Named(Enum):
    """The two limits that have names."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtGroup:
    """Where a consumer group stands."""

    group: str
    option: str


Position: TypeAlias = Named | AtOffsets | AtTimestamps | AtGroup
GROUP_PREFIX: Final = "group:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which topics: exactly one of the three."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None

    def __str__(self) -> str:
        if self.topics is not None:
            return f"subscribe={','.join(self.topics)}"
        return f"subscribePattern={self.pattern}" if self.pattern is not None else f"assign={self.assigned}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a reader was asked to do."""

    bootstrap: str
    subscription: Subscription
    start: Position
    end: Position
    latest_where_no_time: bool
    fail_on_data_loss: bool
    fail_on_recreated: bool
    include_headers: bool
    push_filters: bool
    """Filters of the query narrow what a batch read fetches."""
    max_offsets: int | None
    max_bytes: int | None
    """Of a micro-batch, as record batches lie in the log; estimated (byte_limit.py)."""
    min_offsets: int | None
    max_trigger_delay_s: float
    min_partitions: int | None
    max_records_per_partition: int | None
    ordered: bool
    poll_timeout_s: float
    read_committed: bool
    fetch_bytes: int
    fetch_wait_ms: int
    request_timeout_s: float
    check_crc: bool
    rack: str
    client_id: str
    offset_retries: int | None
    offset_retry_pause_s: float | None
    security: SecuritySettings | None
    commit_group: str | None
    """The consumer group that is told where a stream stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a writer was asked to do."""

    bootstrap: str
    topic: str | None
    acks: int
    batch_bytes: int
    compression: str
    delivery_timeout_s: float
    idempotent: bool
    client_id: str
    security: SecuritySettings | None


class _Options:
    """Typed access to options by name; every complaint names option and value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._given.get(name.lower(), default)
        return value.strip() if isinstance(value, str) else value

    def name(self, name: str) -> str | None:
        value = self.text(name)
        if value == "":
            raise OptionError(f"option {name}='': expected the name of a consumer group")
        return value

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name}={value!r}: expected true or false")
        return value.lower() == "true"

    def number(self, name: str, default: int | None, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise OptionError(f"option {name}={value!r}: expected a whole number of {least} or more")
        return number

    def required_number(self, name: str, default: int, *, least: int = 1) -> int:
        number = self.number(name, default, least=least)
        assert number is not None
        return number

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise OptionError(f"option {name}={value!r}: expected {' or '.join(choices)}")
        return value

    def check_names(
        self,
        known: tuple[str, ...],
        forbidden: Mapping[str, str],
        used: tuple[str, ...],
        no_effect: Mapping[str, str],
        other: tuple[str, ...],
    ) -> None:
        names = {name.lower(): name for name in known}
        refused = {name.lower(): why for name, why in REFUSED.items()}
        ignored = {name.lower() for name in (*SPARKS_OWN, *other)}
        for name in self._given:
            if name.startswith("kafka."):
                key = name[len("kafka.") :]
                if key in forbidden:
                    raise OptionError(f"option {name} is not allowed: {forbidden[key]}")
                if key in no_effect:
                    log.warning("option %s has no effect here: %s", name, no_effect[key])
                elif key not in used and not key.startswith(SECURITY_PREFIXES):
                    close = difflib.get_close_matches(key, (*used, *no_effect), n=1)
                    hint = f"did you mean kafka.{close[0]}?" if close else f"there are kafka.{', kafka.'.join(used)}"
                    raise OptionError(f"option {name} is not supported; {hint}")
            elif name in refused:
                raise OptionError(f"option {name} is not allowed: {refused[name]}")
            elif name not in names and name not in ignored and not name.startswith("__"):
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"; did you mean {names[close[0]]}?" if close else f"; there are {', '.join(known)}"
                raise OptionError(f"unknown option {name}{hint}")

    def security(self) -> SecuritySettings | None:
        """Files that are named are read here, on the driver: their text goes to the executors."""
        try:
            return parse_security({name.removeprefix("kafka."): text for name, text in self._given.items()}, "kafka.")
        except ConfigError as error:
            raise OptionError(str(error)) from None

    def bootstrap(self) -> str:
        value = self.text("kafka.bootstrap.servers")
        if not value:
            raise OptionError("option kafka.bootstrap.servers is missing: expected HOST:PORT[,HOST:PORT...]")
        for address in value.split(","):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise OptionError(f"option kafka.bootstrap.servers={value!r}: {address.strip()!r} is not HOST:PORT")
        return value


def parse_read(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a reader. OptionError names what is wrong."""
    options = _Options(given)
    options.check_names(READ_OPTIONS, FORBIDDEN_READ, KAFKA_READ, NO_EFFECT_READ, WRITE_OPTIONS)
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if options.has(name):
                raise OptionError(f"option {name} is not allowed in a stream: a stream has no end")
        if options.flag("pushDownFilters", False):
            raise OptionError(
                "option pushDownFilters=true is not allowed in a stream: Spark hands over no filters of one"
            )
    else:
        for name in (
            "maxOffsetsPerTrigger",
            "maxBytesPerTrigger",
            "minOffsetsPerTrigger",
            "maxTriggerDelay",
            "onTopicRecreated",
            "commitOffsetsToGroup",
        ):
            if options.has(name):
                log.warning("option %s has no effect in a batch read", name)
    default_start = Named.LATEST if streaming else Named.EARLIEST
    start = _position(options, "starting", default_start, refused=None if streaming else Named.LATEST)
    end = _position(options, "ending", Named.LATEST, refused=Named.EARLIEST)
    fetch_bytes = options.required_number("kafka.max.partition.fetch.bytes", 4 << 20, least=1)
    total_bytes = options.required_number("kafka.fetch.max.bytes", 50 << 20, least=1)
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    isolation = options.choice("kafka.isolation.level", "read_uncommitted", ("read_uncommitted", "read_committed"))
    minimum, maximum = options.number("minOffsetsPerTrigger", None), options.number("maxOffsetsPerTrigger", None)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise OptionError(f"option minOffsetsPerTrigger={minimum} is more than maxOffsetsPerTrigger={maximum}")
    ordering = options.choice("ordering", "partition" if streaming else "none", ("partition", "none"))
    fail = options.flag("failOnDataLoss", True)
    pause_ms = options.number("fetchOffset.retryIntervalMs", None, least=0)
    return ReadOptions(
        bootstrap=options.bootstrap(),
        subscription=_subscription(options),
        start=start,
        end=end,
        latest_where_no_time=strategy == "latest",
        fail_on_data_loss=fail,
        fail_on_recreated=options.choice("onTopicRecreated", "fail" if fail else "restart", ("fail", "restart"))
        == "fail",
        include_headers=options.flag("includeHeaders", False),
        push_filters=options.flag("pushDownFilters", False),
        max_offsets=maximum,
        max_bytes=options.number("maxBytesPerTrigger", None),
        min_offsets=minimum,
        max_trigger_delay_s=_duration(options, "maxTriggerDelay", 15 * 60.0),
        min_partitions=options.number("minPartitions", None),
        max_records_per_partition=options.number("maxRecordsPerPartition", None),
        ordered=ordering == "partition",
        poll_timeout_s=options.required_number("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        read_committed=isolation == "read_committed",
        fetch_bytes=min(fetch_bytes, total_bytes),
        fetch_wait_ms=options.required_number("kafka.fetch.max.wait.ms", 250, least=0),
        request_timeout_s=options.required_number("kafka.request.timeout.ms", 30_000) / 1000,
        check_crc=options.flag("kafka.check.crcs", True),
        rack=options.text("kafka.client.rack") or "",
        client_id=options.text("kafka.client.id") or options.text("groupIdPrefix") or "holdfast-spark",
        offset_retries=options.number("fetchOffset.numRetries", None, least=0),
        offset_retry_pause_s=None if pause_ms is None else pause_ms / 1000,
        security=options.security(),
        commit_group=options.name("commitOffsetsToGroup"),
    )


def parse_write(given: Mapping[str, str]) -> WriteOptions:
    """The options of a writer. OptionError names what is wrong."""
    options = _Options(given)
    options.check_names(WRITE_OPTIONS, FORBIDDEN_WRITE, KAFKA_WRITE, NO_EFFECT_WRITE, ())
    if options.has("includeHeaders"):
        log.warning("option includeHeaders has no effect in the sink: headers are written where there is such a column")
    acks = options.choice("kafka.acks", "all", ("all", "-1", "0", "1"))
    topic = options.text("topic")
    if topic is not None:
        check_topic_name(topic, "topic")
    return WriteOptions(
        bootstrap=options.bootstrap(),
        topic=topic,
        acks=-1 if acks == "all" else int(acks),
        batch_bytes=min(options.required_number("kafka.batch.size", 512 << 10), MAX_BATCH_BYTES),
        compression=options.choice("kafka.compression.type", "lz4", ("none", "gzip", "snappy", "lz4", "zstd")),
        delivery_timeout_s=options.required_number("kafka.delivery.timeout.ms", 120_000) / 1000,
        idempotent=options.flag("kafka.enable.idempotence", True) and acks in ("all", "-1"),
        client_id=options.text("kafka.client.id") or "holdfast-spark",
        security=options.security(),
    )


def check_topic_name(name: str, option: str) -> None:
    """OptionError unless ``name`` is a legal topic name."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        raise OptionError(
            f"option {option}={name!r}: a topic name has 1 to 249 characters out of letters, digits, '.', '_', '-'"
        )


def _subscription(options: _Options) -> Subscription:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if options.has(name)]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"exactly one of the options subscribe, subscribePattern and assign is needed: {what}")
    name = given[0]
    text = options.text(name) or ""
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option subscribePattern={text!r} is no regular expression: {error}") from None
        return Subscription(pattern=text)
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError("option subscribe is empty: expected topic names, separated by commas")
        for topic in topics:
            check_topic_name(topic, "subscribe")
        return Subscription(topics=topics)
    parsed = _json(name, text)
    if not isinstance(parsed, dict) or not parsed or not all(_is_partition_list(each) for each in parsed.values()):
        raise OptionError(f'option assign={text!r}: expected JSON like {{"topic":[0,1]}}')
    return Subscription(assigned={topic: tuple(sorted(set(each))) for topic, each in parsed.items()})


def _is_partition_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int and each >= 0 for each in value)


def _position(options: _Options, prefix: str, default: Named, *, refused: Named | None) -> Position:
    """startingTimestamp > startingOffsetsByTimestamp > startingOffsets; likewise for ending."""
    everywhere = options.number(f"{prefix}Timestamp", None, least=0)
    if everywhere is not None:
        return AtTimestamps(timestamps=None, everywhere=everywhere, option=f"{prefix}Timestamp")
    name = f"{prefix}OffsetsByTimestamp"
    text = options.text(name)
    if text is not None:
        return AtTimestamps(timestamps=_by_partition(name, text, least=0), everywhere=None, option=name)
    name = f"{prefix}Offsets"
    text = options.text(name)
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        named = Named(text.lower())
        if named is refused:
            what = "start at the end of" if named is Named.LATEST else "end at the start of"
            raise OptionError(f"option {name}={text!r}: a batch read cannot {what} the topic")
        return named
    if text.startswith(GROUP_PREFIX) and prefix == "starting":
        group = text[len(GROUP_PREFIX) :]
        if not group:
            raise OptionError(f"option {name}={text!r}: expected a group's name after {GROUP_PREFIX}")
        return AtGroup(group=group, option=name)
    offsets = _by_partition(name, text, least=EARLIEST)
    barred = {Named.LATEST: LATEST, Named.EARLIEST: EARLIEST}.get(refused) if refused else None
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset == barred:
                raise OptionError(f"option {name}: {offset} for {topic}-{partition} is not allowed in a batch read")
    return AtOffsets(offsets=offsets, option=name)


def _by_partition(name: str, text: str, *, least: int) -> Offsets:
    parsed = _json(name, text)
    example = f'option {name}={text!r}: expected JSON like {{"topic":{{"0":23,"1":-1}}}}'
    if not isinstance(parsed, dict):
        raise OptionError(example)
    offsets: Offsets = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise OptionError(example)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < least:
                raise OptionError(f"option {name}: {topic}-{partition} has {offset!r}; {example.split(': ')[-1]}")
            offsets.setdefault(topic, {})[int(partition)] = offset
    return offsets


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name}={text!r} is neither a word that is known here nor JSON: {error}") from None


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 0.001}


def _duration(options: _Options, name: str, default_s: float) -> float:
    text = options.text(name)
    if text is None:
        return default_s
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d|)", text.lower())
    if match is None:
        raise OptionError(f"option {name}={text!r}: expected a time like 15m, 30s or 500ms")
    return int(match[1]) * _UNITS_S[match[2]]
