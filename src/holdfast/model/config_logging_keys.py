"""The keys about the log of a broker itself: its form and its file. It has nothing to do with logs of partitions.

A part of the table in model/config_keys.py. All are ours: Kafka has a file of its logging library for that.
"""

from typing import Final

from holdfast.model.config_key import LONG_MAX, ConfigKey, ConfigType, make_key

LOGGING_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        "log.format",
        ConfigType.STRING,
        "text",
        "The form of a line in the broker's own log: text for people, or one JSON object with ts (UTC), level, broker, "
        "event, fields, message, logger, and trace where there is one. docs/events.md has the events.",
        choices=("text", "json"),
        ours=True,
    ),
    make_key(
        "log.file",
        ConfigType.STRING,
        None,
        "The file of the broker's own log; standard error if not given. `holdfast up` has DIR/broker-N.log instead.",
        ours=True,
    ),
    make_key(
        "log.file.max.bytes",
        ConfigType.LONG,
        100 << 20,
        "A log file that is larger is renamed to FILE.1, that one to FILE.2, and a new one is begun; 0: never.",
        0,
        high=LONG_MAX,
        ours=True,
    ),
    make_key("log.file.backups", ConfigType.INT, 5, "So many older log files are kept.", 1, high=1000, ours=True),
)
