"""A plan held against the table: nothing twice, nothing skipped, whatever checkpoint it came from."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.lake.data_files import FileRange
from holdfast.lake.errors import HoleError, PositionError
from holdfast.lake.planning import joined, without
from holdfast.lake.position import End, LandedRange, Position, TopicEnds, advanced, cut_back

ONE, OTHER = UUID(int=1), UUID(int=2)


def planned(start: int, end: int, *, partition: int = 0, topic_id: UUID | None = ONE) -> FileRange:
    return FileRange(topic="t", topic_id=topic_id, partition=partition, start=start, end=end)


def at(offset: int, topic_id: UUID | None = ONE) -> Position:
    return Position(topics={"t": TopicEnds(topic_id=topic_id, partitions={0: End(offset=offset, epoch=2)})})


def test_spark_D1_a_plan_of_an_old_checkpoint_goes_on_where_the_table_ends() -> None:
    # Batch 1 had landed as 100 to 200; the checkpoint of before plans 100 to 900.
    assert joined(at(200), [planned(100, 900)]).ranges == (planned(200, 900),)
    assert joined(at(200), [planned(100, 200)]).ranges == ()
    assert joined(at(200), [planned(5, 9, partition=1), planned(200, 300)]).ranges == (
        planned(200, 300),
        planned(5, 9, partition=1),
    )
    assert joined(at(200), [planned(100, 900)]).before == at(200)


def test_a_checkpoint_that_is_ahead_of_the_table_leaves_no_hole() -> None:
    assert joined(at(200), [planned(250, 300)]).ranges == (planned(200, 300),)


def test_a_partition_is_planned_once() -> None:
    with pytest.raises(ValueError, match="partition 0 is planned twice"):
        joined(at(200), [planned(200, 260), planned(260, 280)])


def test_a_topic_that_was_made_again_is_refused_by_name_or_begins_anew_with_a_note() -> None:
    with pytest.raises(HoleError, match=f"the table is at topic id {ONE}: the topic was made again"):
        joined(at(200), [planned(0, 300, topic_id=OTHER)])
    assert joined(at(200, topic_id=None), [planned(200, 300)]).ranges == (planned(200, 300),)
    assert joined(at(200), [planned(200, 300, topic_id=None)]).ranges == (planned(200, 300, topic_id=None),)
    anew = joined(at(200), [planned(0, 300, topic_id=OTHER)], lose=True)
    assert anew.ranges == (planned(0, 300, topic_id=OTHER),)
    assert anew.before.topics["t"] == TopicEnds(topic_id=OTHER, partitions={})
    assert [(gap.topic_id, gap.start, gap.end) for gap in anew.before.gaps] == [(ONE, 200, 200)]


def test_a_log_that_was_cut_is_refused_by_name_or_read_again_from_the_cut() -> None:
    cut = {("t", 0): 150}
    with pytest.raises(HoleError, match=r"partition 0: the table ends at 200 .leader epoch 2.*cut to 150"):
        joined(at(200), [planned(200, 300)], cut=cut)
    found = joined(at(200), [planned(200, 300)], cut=cut, lose=True)
    assert found.ranges == (planned(150, 300),)
    assert [str(gap) for gap in found.before.gaps] == [
        f"topic t (id {ONE}), partition 0: offsets 200 to 200: the log was cut (unclean leader election)"
    ]
    assert joined(at(200), [planned(200, 300)], cut={("t", 0): 200}, lose=True).before == at(200)
    with pytest.raises(PositionError, match="the table ends at 200, it is not cut to 200"):
        cut_back(at(200), "t", 0, 200, "why")
    with pytest.raises(PositionError, match="the table ends at no offset"):
        cut_back(at(200), "t", 1, 0, "why")


def test_offsets_that_are_gone_are_left_out_with_a_note_of_them() -> None:
    plan = joined(at(200), [planned(200, 300), planned(0, 10, partition=1)])
    some = without(plan, planned(200, 260), "retention")
    assert some.ranges == (planned(260, 300), planned(0, 10, partition=1))
    assert (some.before.gap_offsets, some.before.topics["t"].partitions[0].offset) == (60, 260)
    rest = without(some, planned(260, 300), "retention")
    assert rest.ranges == (planned(0, 10, partition=1),) and rest.before.gap_offsets == 100
    new = without(rest, planned(0, 4, partition=1), "retention")
    assert new.ranges == (planned(4, 10, partition=1),) and new.before.topics["t"].partitions[1].offset == 4
    for lost in (planned(210, 260), planned(200, 301), planned(200, 200)):
        with pytest.raises(HoleError, match="is lost, the batch is 200 to 300"):
            without(plan, lost, "retention")
    with pytest.raises(HoleError, match="partition 7 is not in the batch"):
        without(plan, planned(0, 1, partition=7), "retention")


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_what_is_left_joins_on_to_the_table(end: int, first: int, length: int) -> None:
    """However a plan is cut: landing what is left ends where the plan or the table ends."""
    plan = joined(at(end), [planned(first, first + length)])
    landed = [
        LandedRange(
            topic="t", topic_id=ONE, partition=0, start=each.start, end=each.end, epoch=2, rows=each.end - each.start
        )
        for each in plan.ranges
    ]
    after = advanced(plan.before, landed, attempt="a")
    assert after.topics["t"].partitions[0].offset == max(end, first + length)
    assert after.rows == max(0, first + length - end)
