"""inter.broker.protocol.version: what brokers say to each other and record while some of them are of older software.

A part of the table in model/config_keys.py. A version is named as Kafka names its own: the release in which it comes,
and a number for each change on the way there. Each takes what is of an older one, and reads what is of a newer one if
its software knows that; which one a broker has is for what it begins itself. docs/decisions/0029 has what each added.
"""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, make_key

PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
ONE_ADDRESS: Final = "0.1-IV0"
"""Brokers have one address each and a number that somebody gave them; their metadata is in shared directories."""
NEWEST: Final = "0.1-IV1"
"""Several listeners (decision 18), hosts that have ids (KIP-426), metadata in an ensemble."""

PROTOCOL_KEY: Final[ConfigKey] = make_key(
    PROTOCOL_VERSION,
    ConfigType.STRING,
    NEWEST,
    "What brokers say to each other and record. In an upgrade it is the older version until every broker has the new "
    "software, so that those which have the older one read all that is written, and a broker can go back to it; then "
    "the newest one, or not given. Kafka's name, with versions of ours.",
    choices=(ONE_ADDRESS, NEWEST),
    ours=True,
)
