"""Which partition of a coordinator's topic keeps a name: Kafka's hash, so that its logs can be taken over."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


def java_hash(text: str) -> int:
    """The 32-bit hash that Java's String has: over UTF-16 units, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (value * 31 + ((units[i] << 8) | units[i + 1])) & _MASK
    return value - (_MASK + 1) if value & _SIGN else value


def partition_for(name: str, partition_count: int) -> int:
    """The partition that keeps ``name``, of a group or a transaction; the hash without a positive counterpart is 0."""
    value = java_hash(name)
    return 0 if value == -_SIGN else abs(value) % partition_count
