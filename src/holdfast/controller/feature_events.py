"""What the controller is asked about feature levels (KIP-584); an event like those of events.py."""

from dataclasses import dataclass
from enum import IntEnum


class UpgradeType(IntEnum):
    """Whether a feature may go down, and lose something by it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """``level`` 0: not in force. ``upgrade_type`` None: one that nobody knows."""

    name: str
    level: int
    upgrade_type: UpgradeType | None = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures:
    """Reply: None; InvalidUpdateVersionError: none was changed."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
