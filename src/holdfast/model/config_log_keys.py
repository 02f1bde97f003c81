"""The configuration keys of logs: segments, retention, times, syncs. A part of the table in model/config_keys.py."""

from typing import Final

from holdfast.model.config_key import LONG_MAX, ConfigKey, ConfigType, UpdateMode, make_key

_S, _I, _L, _LIST = ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_ALL: Final = UpdateMode.CLUSTER_WIDE
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_CLEANUP: Final = ("compact", "delete")

LOG_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key("log.segment.bytes", _I, 1_073_741_824, "A segment rolls at this size.", 1_048_576, update=_ALL),
    make_key("log.roll.ms", _L, None, "A segment rolls at this age; else log.roll.hours.", update=_ALL),
    make_key("log.roll.hours", _I, 168, "A segment rolls at this age if log.roll.ms is not given.", 1),
    make_key(
        "log.roll.jitter.ms",
        _L,
        None,
        "Up to this much is taken off the age at which a segment rolls; else log.roll.jitter.hours.",
        update=_ALL,
    ),
    make_key("log.roll.jitter.hours", _I, 0, "As log.roll.jitter.ms, if that is not given.", 0),
    make_key("log.retention.ms", _L, None, "Records older than this are deleted; -1 is never.", update=_ALL),
    make_key("log.retention.minutes", _I, None, "As log.retention.ms, if that is not given."),
    make_key("log.retention.hours", _I, 168, "As log.retention.ms, if neither it nor the minutes are given."),
    make_key("log.retention.bytes", _L, -1, "A partition keeps about this many bytes; -1 is all.", update=_ALL),
    make_key(
        "log.retention.check.interval.ms",
        _L,
        300_000,
        "How often segments are looked at for deletion.",
        1,
    ),
    make_key(
        "log.cleanup.policy",
        _LIST,
        "delete",
        "Old segments: delete removes them by age and size, compact keeps the newest record of each key.",
        choices=_CLEANUP,
        update=_ALL,
    ),
    make_key(
        "log.index.interval.bytes",
        _I,
        4096,
        "One index entry per this many bytes of log.",
        0,
        update=_ALL,
    ),
    make_key("log.index.size.max.bytes", _I, 10_485_760, "The largest index file.", 4, update=_ALL),
    make_key(
        "log.segment.delete.delay.ms",
        _L,
        60_000,
        "A deleted segment's file is removed after this time.",
        0,
        update=_ALL,
    ),
    make_key(
        "log.message.timestamp.type",
        _S,
        "CreateTime",
        "Whether a record's time is its producer's or the broker's.",
        choices=_TIMESTAMP_TYPES,
        update=_ALL,
    ),
    make_key(
        "log.message.timestamp.before.max.ms",
        _L,
        LONG_MAX,
        "How far a record's time may lie before the broker's.",
        0,
        update=_ALL,
    ),
    make_key(
        "log.message.timestamp.after.max.ms",
        _L,
        3_600_000,
        "How far a record's time may lie after the broker's.",
        0,
        update=_ALL,
    ),
    make_key(
        "log.flush.interval.messages",
        _L,
        LONG_MAX,
        "Records in a log before it is synced to disk.",
        1,
        update=_ALL,
    ),
    make_key(
        "log.flush.interval.ms",
        _L,
        None,
        "Time before a log is synced to disk; else log.flush.scheduler.interval.ms.",
        update=_ALL,
    ),
    make_key(
        "log.flush.scheduler.interval.ms",
        _L,
        LONG_MAX,
        "How often logs are looked at for log.flush.interval.ms; every 5 s where this is more.",
    ),
    make_key(
        "log.flush.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "Recovery points are written at least this often: with the high watermarks.",
        0,
    ),
    make_key(
        "log.flush.start.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "Log start offsets are written at least this often: with the high watermarks.",
        0,
    ),
    make_key(
        "log.initial.task.delay.ms",
        _L,
        30_000,
        "Time from start to the first look for segments to delete.",
        0,
        internal=True,
    ),
)
