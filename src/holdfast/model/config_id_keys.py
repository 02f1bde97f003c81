"""The configuration keys of a broker's id (KIP-426): a part of the table in model/config_keys.py."""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, Form, make_key

GENERATION: Final = "broker.id.generation.enable"
RESERVED_MAX: Final = "reserved.broker.max.id"
HOST_KEY: Final = "broker.id.host.key"
ADOPT_MISSING: Final = "broker.id.adopt.missing"

KEY_HOSTNAME: Final = "hostname"
KEY_LISTENER: Final = "host:port"
KEY_LOG_DIR: Final = "log.dir"
KEY_MAC: Final = "mac"
KEY_NONE: Final = "none"
KEY_FIXED: Final = "fixed:"
"""What comes behind it is the key."""

ID_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        GENERATION,
        ConfigType.BOOLEAN,
        "true",
        "A broker without node.id finds out its id when it starts: that of its log directories, else the one that its "
        "host has had, else a new one. false: node.id is needed.",
    ),
    make_key(
        RESERVED_MAX,
        ConfigType.INT,
        1000,
        "New ids are above it. A node.id above it may meet one of those: a broker says so at its start.",
        0,
        high=2_000_000_000,
    ),
    make_key(
        HOST_KEY,
        ConfigType.STRING,
        None,
        "What a broker's host is called where the cluster keeps which host has which id: the name of the machine, the "
        "address of the listener of brokers, the first log directory, the machine's MAC address, a fixed name, or "
        "none, and nothing is kept. If not given: with the embedded store, whose brokers share a machine, host:port, "
        "or log.dir where that port is 0; else hostname.",
        form=Form(
            pattern=rf"{KEY_HOSTNAME}|{KEY_LISTENER}|log\.dir|{KEY_MAC}|{KEY_NONE}|{KEY_FIXED}\S+",
            words=f"{KEY_HOSTNAME}, {KEY_LISTENER}, {KEY_LOG_DIR}, {KEY_MAC}, {KEY_NONE} or {KEY_FIXED}NAME",
        ),
        ours=True,
    ),
    make_key(
        ADOPT_MISSING,
        ConfigType.BOOLEAN,
        "false",
        "A broker without an id whose host has had none takes the id of the only broker that has partitions and is not "
        "there; where several are missing it does not start. A broker that only restarts can lose its id that way.",
        ours=True,
    ),
)
