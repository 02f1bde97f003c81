"""A plan held against the table: nothing twice, nothing skipped, whatever checkpoint it came from."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.lake.data_files import FileRange
from holdfast.lake.errors import HoleError
from holdfast.lake.planning import trimmed
from holdfast.lake.position import End, LandedRange, Position, TopicEnds, advanced

ONE, OTHER = UUID(int=1), UUID(int=2)


def planned(start: int, end: int, *, partition: int = 0, topic_id: UUID | None = ONE) -> FileRange:
    return FileRange(topic="t", topic_id=topic_id, partition=partition, start=start, end=end)


def at(offset: int, topic_id: UUID | None = ONE) -> Position:
    return Position(topics={"t": TopicEnds(topic_id=topic_id, partitions={0: End(offset=offset, epoch=2)})})


def test_spark_D1_a_plan_of_an_old_checkpoint_is_trimmed_to_the_table() -> None:
    # Batch 1 had landed as 100 to 200; the checkpoint of before plans 100 to 900.
    assert trimmed(at(200), [planned(100, 900)]) == (planned(200, 900),)
    assert trimmed(at(200), [planned(100, 200)]) == ()
    assert trimmed(at(200), [planned(150, 300), planned(0, 150)]) == (planned(200, 300),)
    assert trimmed(at(200), [planned(200, 300), planned(5, 9, partition=1)]) == (
        planned(200, 300),
        planned(5, 9, partition=1),
    )


def test_spark_D1_a_plan_that_begins_beyond_the_table_is_refused_by_name() -> None:
    words = f"topic t .id {ONE}., partition 0: offsets 200 to 250 are missing: the plan begins at 250"
    with pytest.raises(HoleError, match=words):
        trimmed(at(200), [planned(250, 300)])
    with pytest.raises(HoleError, match="offsets 260 to 270 are missing"):
        trimmed(at(200), [planned(200, 260), planned(270, 280)])


def test_a_plan_of_another_topic_id_is_refused_by_name() -> None:
    with pytest.raises(HoleError, match=f"the table is at topic id {ONE}: the topic was made again"):
        trimmed(at(200), [planned(200, 300, topic_id=OTHER)])
    assert trimmed(at(200, topic_id=None), [planned(200, 300)]) == (planned(200, 300),)
    assert trimmed(at(200), [planned(200, 300, topic_id=None)]) == (planned(200, 300, topic_id=None),)


cuts = st.lists(st.integers(0, 60), min_size=1, max_size=8)


@given(st.integers(0, 60), st.integers(0, 60), cuts)
def test_what_is_left_joins_on_to_the_table(end: int, first: int, lengths: list[int]) -> None:
    """However a plan is cut: landing what is left ends where the plan or the table ends, or a hole is told."""
    ranges, start = [], first
    for length in lengths:
        ranges.append(planned(start, start + length))
        start += length
    if first > end:
        with pytest.raises(HoleError):
            trimmed(at(end), ranges)
        return
    left = trimmed(at(end), reversed(ranges))
    landed = [
        LandedRange(
            topic="t", topic_id=ONE, partition=0, start=each.start, end=each.end, epoch=2, rows=each.end - each.start
        )
        for each in left
    ]
    after = advanced(at(end), landed, attempt="a")
    assert after.topics["t"].partitions[0].offset == max(end, start)
    assert after.rows == max(0, start - end)
