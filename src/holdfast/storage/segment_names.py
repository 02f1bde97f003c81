"""What the files of a segment are called: its base offset in 20 digits, and what the file holds. Kafka's names."""

from typing import Final

from holdfast.model.types import Offset

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
DELETED = ".deleted"
CLEANED, SWAP = ".cleaned", ".swap"
"""Of what a cleaning writes; and of what is to take the place of the segments that it was made of."""
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
MAX_BASE_OFFSET: Final = 2**63 - 1 - MAX_RELATIVE_OFFSET


def segment_name(base_offset: Offset) -> str:
    """File name of a segment without its suffix: the offset in 20 digits."""
    return f"{base_offset:020d}"


def offset_of(name: str, suffix: str) -> Offset | None:
    """The offset in a file's name; None for a name that no file of a log with this suffix has."""
    stem = name.removesuffix(suffix)
    if len(stem) != 20 or stem == name or not (stem.isascii() and stem.isdigit()):
        return None
    offset = int(stem)
    return offset if offset <= MAX_BASE_OFFSET else None
