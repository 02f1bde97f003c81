"""The configuration keys of log compaction and of compression by the broker: a part of the table in
model/config_keys.py."""

from typing import Final

from holdfast.model.config_key import LONG_MAX, ConfigKey, ConfigType, Form, UpdateMode, make_key

_I, _L, _D = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_ALL: Final = UpdateMode.CLUSTER_WIDE

GZIP_LEVELS: Final = Form(pattern="-1|[1-9]", words="between 1 and 9 or equal to -1")
"""-1 is the level that the library takes by itself."""

CLEANER_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key("log.cleaner.enable", ConfigType.BOOLEAN, "true", "Logs with cleanup.policy=compact are cleaned."),
    make_key("log.cleaner.threads", _I, 1, "Logs that are cleaned at the same time.", 0, update=_ALL),
    make_key(
        "log.cleaner.io.max.bytes.per.second",
        _D,
        "1.7976931348623157E308",
        "Bytes that cleaning may read and write in a second, all together.",
        update=_ALL,
    ),
    make_key(
        "log.cleaner.dedupe.buffer.size",
        _L,
        134_217_728,
        "Bytes of memory for the keys of the logs that are being cleaned, all together.",
        update=_ALL,
    ),
    make_key("log.cleaner.io.buffer.size", _I, 524_288, "Bytes that cleaning reads at a time.", 0, update=_ALL),
    make_key(
        "log.cleaner.io.buffer.load.factor",
        _D,
        "0.9",
        "How full of keys the memory for them may be, from 0 to 1.",
        update=_ALL,
    ),
    make_key("log.cleaner.backoff.ms", _L, 15_000, "The pause when there is nothing to clean.", 0, update=_ALL),
    make_key(
        "log.cleaner.min.cleanable.ratio",
        _D,
        "0.5",
        "A log is cleaned when this share of its bytes has come since the last cleaning.",
        0,
        high=1,
        update=_ALL,
    ),
    make_key(
        "log.cleaner.delete.retention.ms",
        _L,
        86_400_000,
        "How long a tombstone stays in a log after a cleaning has come to it.",
        0,
        update=_ALL,
    ),
    make_key("log.cleaner.min.compaction.lag.ms", _L, 0, "Records younger than this are not cleaned.", 0, update=_ALL),
    make_key(
        "log.cleaner.max.compaction.lag.ms",
        _L,
        LONG_MAX,
        "A log with an uncleaned record older than this is cleaned, however little there is to gain.",
        1,
        update=_ALL,
    ),
)

COMPRESSION_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        "compression.gzip.level",
        _I,
        -1,
        "Level of gzip where the broker compresses: where compression.type is gzip. -1 is the library's own.",
        form=GZIP_LEVELS,
        update=_ALL,
    ),
    make_key(
        "compression.lz4.level",
        _I,
        9,
        "Level of lz4 where the broker compresses: where compression.type is lz4.",
        1,
        high=17,
        update=_ALL,
    ),
    make_key(
        "compression.zstd.level",
        _I,
        3,
        "Level of zstd where the broker compresses: where compression.type is zstd.",
        -131_072,
        high=22,
        update=_ALL,
    ),
)
