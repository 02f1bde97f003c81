"""The configuration keys of transactions: a part of the table in model/config_keys.py."""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, UpdateMode, make_key

_I: Final = ConfigType.INT
_IN_PIECES: Final = "logs of coordinators are read in pieces of 64 KiB, or by another process"

TRANSACTION_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        "transactional.id.expiration.ms",
        _I,
        604_800_000,
        "A transactional id that was not used for this long is forgotten.",
        1,
    ),
    make_key("transaction.max.timeout.ms", _I, 900_000, "The longest timeout that a producer may ask for.", 1),
    make_key("transaction.state.log.num.partitions", _I, 50, "Partitions of __transaction_state.", 1),
    make_key(
        "transaction.state.log.replication.factor",
        ConfigType.SHORT,
        3,
        "Replicas of __transaction_state. Where a file says it, the topic is not made, and no transaction begins, "
        "until there are as many brokers; without a value a smaller cluster gets what it can hold.",
        1,
    ),
    make_key("transaction.state.log.min.isr", _I, 2, "min.insync.replicas of __transaction_state.", 1),
    make_key("transaction.state.log.segment.bytes", _I, 104_857_600, "Segment size of __transaction_state.", 1),
    make_key(
        "transaction.state.log.load.buffer.size",
        _I,
        5_242_880,
        f"No effect: {_IN_PIECES}.",
        1,
        inert=_IN_PIECES,
    ),
    make_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _I,
        10_000,
        "How long after an abort at a timeout could not be written it is tried again; the first comes at the timeout.",
        1,
    ),
    make_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _I,
        3_600_000,
        "How often transactional ids are looked for that have expired.",
        1,
    ),
    make_key(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        "true",
        "A leader asks the coordinator whether a partition is in a transaction before the first append to it.",
        update=UpdateMode.CLUSTER_WIDE,
    ),
)
