"""What goes when the beginnings of logs are cut off: one decision per partition.

Owns the rules of a cut. Knows what was asked of the cluster and asks nothing itself. Unlike a reset it never takes
another offset than was said: what is deleted does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.client.offset_resets import LogSpan, ToLatest, ToOffset, ToPlan, ToTime
from holdfast.model.errors import OffsetOutOfRangeError
from holdfast.model.types import Offset, TopicPartition

TO_END: Final = -1
"""In a plan: as far as the log goes."""

CutForm: TypeAlias = ToLatest | ToOffset | ToTime | ToPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """All before this offset goes."""

    before: Offset
    log: LogSpan

    @property
    def offsets(self) -> int:
        """How many go; as many records, unless compaction or transactions have left gaps."""
        return max(0, self.before - self.log.start)


def cuts(
    form: CutForm, partitions: Iterable[TopicPartition], logs: Mapping[TopicPartition, LogSpan]
) -> dict[TopicPartition, Cut]:
    """Of every partition, in their order. OffsetOutOfRangeError names all that would have to be cut beyond their end:
    then nothing is to be cut."""
    found = {tp: Cut(before=_before(form, tp, logs[tp]), log=logs[tp]) for tp in sorted(partitions)}
    beyond = [f"{tp} before {c.before}, and it ends at {c.log.end}" for tp, c in found.items() if c.before > c.log.end]
    if beyond:
        raise OffsetOutOfRangeError(f"{'; '.join(beyond)}: expected its end at most")
    return found


def _before(form: CutForm, tp: TopicPartition, log: LogSpan) -> Offset:
    match form:
        case ToLatest():
            return log.end
        case ToOffset(offset):
            return offset
        case ToPlan(offsets):
            return log.end if offsets[tp] == TO_END else offsets[tp]
        case ToTime():  # without a record of that time or later, all are older
            return log.end if log.at_time is None else log.at_time
