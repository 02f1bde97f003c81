"""What goes when a log's beginning is cut off."""

import pytest

from holdfast.client.log_cuts import CutForm, cuts
from holdfast.client.offset_resets import LogSpan, ToLatest, ToOffset, ToPlan, ToTime
from holdfast.model.errors import OffsetOutOfRangeError
from holdfast.model.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogSpan(start=10, end=30, at_time=17)
NO_SUCH_TIME = LogSpan(start=10, end=30)


@pytest.mark.parametrize(
    ("form", "log", "before", "offsets"),
    [
        (ToLatest(), LOG, 30, 20),
        (ToOffset(12), LOG, 12, 2),
        (ToOffset(30), LOG, 30, 20),
        (ToOffset(10), LOG, 10, 0),
        (ToOffset(3), LOG, 3, 0),
        (ToTime(1_000), LOG, 17, 7),
        (ToTime(1_000), NO_SUCH_TIME, 30, 20),  # all are older
        (ToPlan({T0: 15}), LOG, 15, 5),
        (ToPlan({T0: -1}), LOG, 30, 20),
        (ToLatest(), LogSpan(start=0, end=0), 0, 0),
    ],
)
def test_all_before_an_offset_goes(form: CutForm, log: LogSpan, before: int, offsets: int) -> None:
    cut = cuts(form, [T0], {T0: log})[T0]
    assert (cut.before, cut.offsets) == (before, offsets)


def test_beyond_its_end_no_log_is_cut_and_no_other_either() -> None:
    logs = {T0: LOG, T1: LogSpan(start=0, end=99)}
    with pytest.raises(OffsetOutOfRangeError) as refused:
        cuts(ToOffset(31), [T1, T0], logs)
    assert str(refused.value) == "t-0 before 31, and it ends at 30: expected its end at most"
    with pytest.raises(OffsetOutOfRangeError, match="t-0 before 31, and it ends at 30; t-1 before 100, and it ends"):
        cuts(ToPlan({T0: 31, T1: 100}), [T1, T0], logs)
    assert list(cuts(ToOffset(30), [T1, T0], logs)) == [T0, T1]
