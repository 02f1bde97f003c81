"""What each form of a reset makes of one partition."""

import pytest

from holdfast.client.offset_resets import (
    Form,
    LogSpan,
    Reset,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToPlan,
    ToTime,
    reset,
    resets,
)
from holdfast.model.errors import InvalidRequestError
from holdfast.model.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogSpan(start=10, end=30, at_time=17)


@pytest.mark.parametrize(
    ("form", "committed", "offset"),
    [
        (ToEarliest(), None, 10),
        (ToLatest(), 12, 30),
        (ToCurrent(), 12, 12),
        (ToCurrent(), None, 30),
        (ToCurrent(), 5, 5),  # what is committed is told as it is, also where the log has lost it
        (ToOffset(10), None, 10),
        (ToOffset(30), None, 30),
        (ShiftBy(3), 12, 15),
        (ShiftBy(-2), 12, 10),
        (ShiftBy(0), 12, 12),
        (ToTime(1_000), 12, 17),
        (ToPlan({T0: 21}), None, 21),
    ],
)
def test_an_offset_that_the_log_has_is_taken(form: Form, committed: int | None, offset: int) -> None:
    assert reset(form, T0, LOG, committed) == Reset(offset=offset)


HIGHER = "New offset ({}) is higher than latest offset for topic partition t-0. Value will be set to 30"
LOWER = "New offset ({}) is lower than earliest offset for topic partition t-0. Value will be set to 10"


@pytest.mark.parametrize(
    ("form", "offset", "note"),
    [
        (ToOffset(31), 30, HIGHER.format(31)),
        (ToOffset(9), 10, LOWER.format(9)),
        (ToOffset(-1), 10, LOWER.format(-1)),
        (ShiftBy(19), 30, HIGHER.format(31)),
        (ShiftBy(-100), 10, LOWER.format(-88)),
        (ToPlan({T0: 10**30}), 30, HIGHER.format(10**30)),
        (ToPlan({T0: 0}), 10, LOWER.format(0)),
    ],
)
def test_an_offset_outside_of_the_log_becomes_its_end_and_that_is_said(form: Form, offset: int, note: str) -> None:
    assert reset(form, T0, LOG, 12) == Reset(offset=offset, note=note)


def test_a_time_after_every_record_is_the_logs_end() -> None:
    found = reset(ToTime(1_000), T0, LogSpan(start=10, end=30), 12)
    assert found.offset == 30
    assert found.note == "t-0 has no record of that time or later. Value will be set to its end, 30"


def test_nothing_is_shifted_from_nowhere_and_then_no_partition_is() -> None:
    logs = {T0: LOG, T1: LOG}
    with pytest.raises(InvalidRequestError) as refused:
        resets(ShiftBy(1), [T1, T0], logs, {T1: 12})
    assert str(refused.value) == "Cannot shift offset for partition t-0 since there is no current committed offset"


def test_all_partitions_come_in_order() -> None:
    found = resets(ShiftBy(1), [T1, T0], {T0: LOG, T1: LogSpan(start=0, end=0)}, {T0: 11, T1: 7})
    assert list(found) == [T0, T1]
    assert [each.offset for each in found.values()] == [12, 0]
