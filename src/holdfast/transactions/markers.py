"""What the answer of a partition means for the marker that it was sent."""

from __future__ import annotations

from enum import Enum

from holdfast.model.errors import (
    HoldfastError,
    InvalidProducerEpochError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)


class MarkerVerdict(Enum):
    """DONE: the partition needs no marker any more. AGAIN: send it once more, to whoever leads then."""

    DONE = "done"
    AGAIN = "again"


def verdict(error: HoldfastError | None) -> MarkerVerdict:
    """A newer epoch in the partition's log: the transaction was ended there already, or the next one could not have
    begun. An old format: nothing of a transaction was ever written. A coordinator that is fenced goes on until it is
    told that it leads no more; every other refusal passes, or the partition is moved or deleted."""
    match error:
        case None | InvalidProducerEpochError() | UnsupportedForMessageFormatError() | UnsupportedVersionError():
            return MarkerVerdict.DONE
    return MarkerVerdict.AGAIN
