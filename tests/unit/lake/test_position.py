"""Where a table ends in the log: what a batch may bring, and what a person is told when it may not."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.lake.errors import HoleError, PositionError
from holdfast.lake.position import (
    MOST_GAPS,
    End,
    Gap,
    LandedRange,
    Position,
    TopicEnds,
    advanced,
    difference,
    restarted,
    with_gap,
)

ONE, OTHER = UUID(int=1), UUID(int=2)


def landed(partition: int, start: int, end: int, **more: Any) -> LandedRange:
    given = {"topic": "t", "topic_id": ONE, "epoch": 3, "rows": end - start}
    return LandedRange(partition=partition, start=start, end=end, **{**given, **more})


def at(**offsets: int) -> Position:
    """``at(p0=100)``: a position in topic t."""
    ends = {int(name[1:]): End(offset=offset, epoch=3) for name, offset in offsets.items()}
    return Position(sequence=4, attempt="a", topics={"t": TopicEnds(topic_id=ONE, partitions=ends)}, rows=10)


def test_ranges_in_any_order_move_the_ends_and_add_the_counts() -> None:
    ranges = [landed(0, 150, 200, bad=2, rows=48, epoch=5), landed(1, 0, 7), landed(0, 100, 150)]
    after = advanced(at(p0=100), ranges, attempt="b")
    assert after.topics["t"].partitions == {0: End(offset=200, epoch=5), 1: End(offset=7, epoch=3)}
    assert (after.sequence, after.attempt, after.rows, after.bad) == (5, "b", 10 + 48 + 7 + 50, 2)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([landed(0, 120, 200)], "partition 0: the batch goes on at 120: offsets 100 to 120 are missing"),
        ([landed(0, 90, 200)], "the batch goes on at 90: offsets 90 to 100 are there already"),
        ([landed(0, 100, 150), landed(0, 149, 200)], "offsets 149 to 150 are there already"),
        ([landed(0, 100, 150), landed(0, 151, 200)], "offsets 150 to 151 are missing"),
        ([landed(0, 100, 90)], "brings offsets 100 to 90"),
        ([landed(0, 100, 110, topic_id=OTHER)], f"topic t .id {OTHER}.*the table is at topic id {ONE}"),
    ],
)
def test_a_hole_a_double_and_another_topic_are_refused_by_name(ranges: list[LandedRange], words: str) -> None:
    with pytest.raises(HoleError, match=words):
        advanced(at(p0=100), ranges, attempt="b")


def test_a_table_of_old_brokers_learns_the_topic_id() -> None:
    first = advanced(Position(), [landed(0, 5, 9, topic_id=None, epoch=None)], attempt="a")
    second = advanced(first, [landed(0, 9, 10)], attempt="b")
    assert second.topics["t"].topic_id == ONE
    with pytest.raises(HoleError, match="made again"):
        advanced(second, [landed(0, 10, 11, topic_id=None)], attempt="c")


def test_an_unknown_epoch_does_not_forget_the_known_one() -> None:
    after = advanced(at(p0=100), [landed(0, 100, 101, epoch=None)], attempt="b")
    assert after.topics["t"].partitions[0] == End(offset=101, epoch=3)


def test_a_gap_is_noted_counted_and_moves_the_end() -> None:
    gap = Gap(topic="t", topic_id=ONE, partition=0, start=100, end=130, reason="retention")
    after = advanced(with_gap(at(p0=100), gap), [landed(0, 130, 140)], attempt="b")
    assert after.gaps == (gap,) and after.gap_offsets == 30
    with pytest.raises(HoleError, match="the table ends at 140"):
        with_gap(after, gap)
    many = at(p0=0)
    for start in range(MOST_GAPS + 5):
        many = with_gap(many, Gap(topic="t", topic_id=ONE, partition=0, start=start, end=start + 1, reason="r"))
    assert (len(many.gaps), many.gap_offsets, many.gaps[0].start) == (MOST_GAPS, MOST_GAPS + 5, 5)


def test_a_topic_made_again_begins_anew_and_its_old_ends_are_noted() -> None:
    anew = advanced(
        restarted(at(p0=100, p1=8), "t", OTHER, "made again"), [landed(0, 0, 3, topic_id=OTHER)], attempt="b"
    )
    assert anew.topics["t"] == TopicEnds(topic_id=OTHER, partitions={0: End(offset=3, epoch=3)})
    assert [(gap.topic_id, gap.partition, gap.start) for gap in anew.gaps] == [(ONE, 0, 100), (ONE, 1, 8)]
    with pytest.raises(PositionError, match="has the id"):
        restarted(anew, "t", OTHER, "again")
    with pytest.raises(PositionError, match="topic other is not in the position"):
        restarted(anew, "other", OTHER, "again")


def test_a_difference_is_told_by_partition() -> None:
    words = difference(at(p0=100, p1=5), at(p0=90, p2=1))
    assert f"topic t (id {ONE}), partition 0: the table ends at 100 (leader epoch 3), the batch begins at 90" in words
    assert "partition 1: the table ends at 5 (leader epoch 3), the batch begins at nothing" in words
    assert "partition 2: the table ends at nothing, the batch begins at 1" in words
    assert difference(at(p0=1), replace(at(p0=1), sequence=3, attempt="z")) == (
        "the table is at commit 4 of attempt a, the batch at 3"
    )
    many = {f"p{number}": 1 for number in range(9)}
    assert difference(at(**many), Position()).endswith("; and 4 more")


numbers = st.integers(0, 2**63 - 1)
ids = st.one_of(st.none(), st.uuids())
ends = st.builds(
    TopicEnds,
    topic_id=ids,
    partitions=st.dictionaries(numbers, st.builds(End, offset=numbers, epoch=st.one_of(st.none(), numbers))),
)
gaps = st.builds(Gap, topic=st.text(), topic_id=ids, partition=numbers, start=numbers, end=numbers, reason=st.text())


@given(
    st.builds(
        Position,
        sequence=numbers,
        attempt=st.one_of(st.none(), st.text()),
        not_before_ms=numbers,
        topics=st.dictionaries(st.text(), ends, max_size=3),
        rows=numbers,
        bad=numbers,
        gaps=st.lists(gaps, max_size=3).map(tuple),
        gap_offsets=numbers,
    )
)
def test_what_is_written_is_read(position: Position) -> None:
    text = position.to_text()
    assert Position.from_text(text, "a table") == position
    assert Position.from_text(text, "a table").to_text() == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lake/t: its position is ''"),
        ("[]", "expected JSON with a version"),
        ('{"version": 2}', "format version 2, this Holdfast reads 1"),
        ('{"version": 1}', "is damaged"),
        (Position().to_text().replace('"rows":0', '"rows":"x"'), "is damaged"),
        (at(p0=1).to_text().replace(str(ONE), "no id"), "is damaged"),
        (at(p0=1).to_text().replace("[1,3]", "[1]"), "is damaged"),
    ],
)
def test_text_that_is_no_position_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(PositionError, match=words.replace("[", r"\[")):
        Position.from_text(text, "lake/t")
