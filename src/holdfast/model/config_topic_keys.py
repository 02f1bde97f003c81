"""The table of a topic's keys: each with the broker keys that give its default.

Otherwise as model/config_keys.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.model.config_inert import NO_TIERS, PREALLOCATE
from holdfast.model.config_key import LONG_MAX, ConfigKey, ConfigType, Form, UpdateMode, make_key
from holdfast.model.config_keys import KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey:
    """A key of a topic and the broker keys that give its default.

    ``synonyms`` are tried in order; the second of a pair is what one unit of that key is worth in the
    topic's unit. Without synonyms the default is the key's own.
    """

    key: ConfigKey
    synonyms: tuple[tuple[str, int], ...]


_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_REPLICA_LIST = Form(
    pattern=r"\*|(\d+:\d+(,\s*\d+:\d+)*)?",
    words="the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
)


def _topic(
    name: str,
    *synonyms: tuple[str, int] | str,
    doc: str,
    kind: ConfigType | None = None,
    default: str | int | None = None,
    low: float | None = None,
    inert: str | None = None,
) -> TopicKey:
    """A topic key like its first broker key, except where that one leaves the value to another key."""
    pairs = tuple((item, 1) if isinstance(item, str) else item for item in synonyms)
    broker = KEYS[pairs[0][0]]
    return TopicKey(
        key=make_key(
            name,
            kind or broker.type,
            broker.default if default is None else default,
            doc,
            broker.low if low is None else low,
            high=broker.high,
            choices=broker.choices,
            form=broker.form,
            update=UpdateMode.CLUSTER_WIDE,
            inert=inert,
            only_default=broker.only_default,
        ),
        synonyms=pairs,
    )


def _own(
    name: str,
    kind: ConfigType,
    default: str | None,
    doc: str,
    *,
    form: Form | None = None,
    inert: str | None = None,
    internal: bool = False,
) -> TopicKey:
    """A topic key that no broker key gives a default. An inert one keeps it."""
    return TopicKey(
        key=make_key(
            name, kind, default, doc, form=form, update=UpdateMode.CLUSTER_WIDE, internal=internal,
            inert=inert, only_default=inert is not None,
        ),
        synonyms=(),
    )  # fmt: skip


_LIMITED = (
    _own(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas for which leader.replication.throttled.rate holds: what their leaders send to followers out of sync.",
        form=_REPLICA_LIST,
    ),
    _own(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas for which follower.replication.throttled.rate holds: what they fetch while they are out of sync.",
        form=_REPLICA_LIST,
    ),
)

_SMALL_SEGMENTS = _own(
    "internal.segment.bytes",
    ConfigType.INT,
    None,
    "For tests: a segment rolls at this size, in place of segment.bytes, and it may be less than that allows.",
    form=Form(pattern=r"[1-9]\d*", words="at least 1"),
    internal=True,
)

_INERT = (
    *(
        _topic(name, broker, doc=f"No effect: {why}.", inert=why)
        for name, broker, why in (
            ("local.retention.bytes", "log.local.retention.bytes", NO_TIERS),
            ("local.retention.ms", "log.local.retention.ms", NO_TIERS),
            ("preallocate", "log.preallocate", PREALLOCATE),
        )
    ),
    *(
        _own(name, ConfigType.BOOLEAN, "false", f"No effect: {NO_TIERS}.", inert=NO_TIERS)
        for name in ("remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable")
    ),
)


TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {
    item.key.name: item
    for item in (
        _topic(
            "cleanup.policy",
            "log.cleanup.policy",
            doc="Old segments: delete removes them by age and size, compact keeps the newest record of each key.",
        ),
        _topic("compression.type", "compression.type", doc="What batches are stored as."),
        *(
            _topic(
                f"compression.{name}.level",
                f"compression.{name}.level",
                doc=f"Level of {name} where the broker compresses.",
            )
            for name in ("gzip", "lz4", "zstd")
        ),
        _topic(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            doc="How long a tombstone stays after a cleaning has come to it.",
        ),
        _topic(
            "min.cleanable.dirty.ratio",
            "log.cleaner.min.cleanable.ratio",
            doc="The log is cleaned when this share of its bytes has come since the last cleaning.",
        ),
        _topic(
            "min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms",
            doc="Records younger than this are not cleaned.",
        ),
        _topic(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            doc="A log with an uncleaned record older than this is cleaned, however little there is to gain.",
        ),
        _topic(
            "file.delete.delay.ms",
            "log.segment.delete.delay.ms",
            doc="A deleted segment's file is removed after this time.",
        ),
        _topic("flush.messages", "log.flush.interval.messages", doc="Records before the log is synced to disk."),
        _topic(
            "flush.ms",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            doc="Time before the log is synced to disk.",
            default=LONG_MAX,
            low=0,
        ),
        _topic("index.interval.bytes", "log.index.interval.bytes", doc="Bytes of log per index entry."),
        _topic("max.message.bytes", "message.max.bytes", doc="The largest batch, compressed, in bytes."),
        _topic(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            doc="How far a record's time may lie after the broker's.",
        ),
        _topic(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            doc="How far a record's time may lie before the broker's.",
        ),
        _topic(
            "message.timestamp.type",
            "log.message.timestamp.type",
            doc="Whether a record's time is its producer's or the broker's.",
        ),
        _topic("min.insync.replicas", "min.insync.replicas", doc="Replicas in sync that acks=all needs."),
        _topic("retention.bytes", "log.retention.bytes", doc="Bytes a partition keeps; -1 is all."),
        _topic(
            "retention.ms",
            "log.retention.ms",
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
            doc="Records older than this are deleted; -1 is never.",
            default=168 * _HOUR_MS,
            low=-1,
        ),
        _topic("segment.bytes", "log.segment.bytes", doc="A segment rolls at this size."),
        _topic("segment.index.bytes", "log.index.size.max.bytes", doc="The largest index file."),
        _topic(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            ("log.roll.jitter.hours", _HOUR_MS),
            doc="Up to this much is taken off segment.ms.",
            default=0,
            low=0,
        ),
        _topic(
            "segment.ms",
            "log.roll.ms",
            ("log.roll.hours", _HOUR_MS),
            doc="A segment rolls at this age.",
            default=168 * _HOUR_MS,
            low=1,
        ),
        _topic(
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            doc="A replica that is not in sync may lead when no other is left.",
        ),
        _SMALL_SEGMENTS,
        *_LIMITED,
        *_INERT,
    )
}
"""Every key of a topic."""
