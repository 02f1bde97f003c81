"""Feature levels (KIP-584): what the brokers of a cluster agree on, so that all of them can do it before one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

TRANSACTION_VERSION: Final = "transaction.version"
"""1: records of transactions may have fields that older brokers do not know; 2: a producer's epoch grows with every
transaction (KIP-890), so that its markers can be told from those of the one before."""


class Levels(NamedTuple):
    """Levels of a feature that a broker knows, both ends included; 0 is a feature that is not in force."""

    min: int
    max: int


SUPPORTED: Final[Mapping[str, Levels]] = {TRANSACTION_VERSION: Levels(0, 2)}
"""What this broker knows. group.version comes with its APIs (68, 69)."""

NEW_CLUSTER: Final[Mapping[str, int]] = {TRANSACTION_VERSION: 2}
"""What is in force in a cluster from its start; in one that is older, what was: UpdateFeatures changes it."""

REGISTERED: Final = tuple((name, levels.min, levels.max) for name, levels in SUPPORTED.items())
"""The same as ``SUPPORTED``, as a registration says it."""
