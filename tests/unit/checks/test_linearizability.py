"""Histories of one partition that one log could have made, and histories that no log could have made."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.checks.linearizability import PartitionHistory


def kinds(history: PartitionHistory) -> list[str]:
    return [violation.kind for violation in history.check()]


def of(*appends: tuple[int, int, int]) -> PartitionHistory:
    """Appends (offset, invoked, acked), the value being 100 + offset."""
    history = PartitionHistory("p")
    for offset, invoked, acked in appends:
        history.append_acked(offset, 100 + offset, invoked, acked)
    return history


def test_nothing_happened() -> None:
    assert kinds(PartitionHistory("p")) == []


def test_one_append_after_the_other() -> None:
    assert kinds(of((0, 1, 2), (1, 3, 4), (2, 5, 6))) == []


def test_appends_under_way_together_may_be_in_any_order() -> None:
    assert kinds(of((0, 5, 20), (1, 1, 10), (2, 3, 30))) == []


def test_an_append_that_was_acked_before_another_was_sent_must_be_in_front_of_it() -> None:
    history = of((0, 11, 12), (1, 1, 10))
    assert kinds(history) == ["order"]
    assert history.check()[0].text == (
        "p: the record at offset 0 was sent, but the record at offset 1 had been acknowledged 1 ns before"
    )


def test_order_holds_over_any_distance() -> None:
    assert kinds(of((0, 100, 101), (1, 2, 200), (2, 2, 200), (3, 2, 99))) == ["order"]


def test_one_late_record_is_one_finding() -> None:
    history = of((0, 100, 101), *((offset, 1, 50) for offset in range(1, 9)))
    assert kinds(history) == ["order"]
    assert history.check()[0].text.endswith("(and 7 more like it)")


def test_two_values_at_one_offset() -> None:
    history = of((0, 1, 2))
    history.append_acked(0, 7, 1, 2)
    assert kinds(history) == ["changed"]


def test_readers_agree() -> None:
    history = of((0, 1, 2), (1, 1, 2))
    history.read(1, 101, 9)
    history.read(1, 101, 5)
    assert kinds(history) == []
    history.read(0, 101, 9)
    assert kinds(history) == ["changed"]


def test_readers_agree_on_what_nobody_was_acked() -> None:
    history = PartitionHistory("p")
    history.read(4, 1, 9)
    history.read(4, 2, 10)
    assert kinds(history) == ["changed"]


def test_a_record_is_not_read_before_it_was_sent() -> None:
    history = of((0, 5, 9))
    history.read(0, 100, 4)
    assert kinds(history) == ["order"]


def test_a_record_that_was_read_is_there_for_all_that_comes_later() -> None:
    """It has no ack; but it was read at 10, and a record sent at 11 comes in front of it."""
    history = PartitionHistory("p")
    history.read(1, 101, 10)
    history.append_seen(1, 1)
    history.append_acked(0, 100, 11, 12)
    assert kinds(history) == ["order"]


def test_what_nobody_was_told_of_has_no_latest_moment() -> None:
    history = of((1, 1, 10))
    history.append_seen(0, 11)
    assert kinds(history) == ["order"], "it was sent after the one behind it was acked"
    history = of((0, 1, 10))
    history.append_seen(1, 5)
    assert kinds(history) == []


def test_the_end_includes_what_was_acked_before_it_was_asked_for() -> None:
    for high_watermark, expected in ((2, []), (1, ["stale end"]), (0, ["stale end"])):
        history = of((0, 1, 2), (1, 1, 2))
        history.end(high_watermark, 3, 4)
        assert kinds(history) == expected, high_watermark


def test_the_end_may_or_may_not_include_what_is_under_way() -> None:
    for high_watermark in (1, 2):
        history = of((0, 1, 2), (1, 3, 10))
        history.end(high_watermark, 5, 6)
        assert kinds(history) == []


def test_the_end_does_not_include_what_was_not_sent_yet() -> None:
    history = of((0, 1, 2), (1, 7, 8))
    history.end(2, 5, 6)
    assert kinds(history) == ["order"]


def test_the_end_never_goes_back() -> None:
    history = of((0, 1, 20), (1, 1, 20))
    history.end(2, 3, 4)
    history.end(1, 3, 5)
    assert kinds(history) == [], "they overlap"
    history.end(1, 5, 6)
    assert kinds(history) == ["stale end"]
    assert history.check()[0].text == (
        "p: a reader asked for the end and got 1, but a reader had been told that the log ends at 2 1 ns before"
    )


def test_the_end_never_goes_back_behind_a_read() -> None:
    history = of((0, 1, 20), (1, 1, 20))
    history.read(1, 101, 5)
    history.end(1, 6, 7)
    assert kinds(history) == ["stale end"]


def test_ends_beyond_all_known_records_are_in_order() -> None:
    history = of((0, 1, 2))
    history.end(9, 10, 11)
    history.end(8, 12, 13)
    assert kinds(history) == ["stale end"]


def test_ends_of_an_empty_log() -> None:
    history = PartitionHistory("p")
    for moment in range(5):
        history.end(0, moment, moment + 1)
    assert kinds(history) == []


# The oracle: try all orders of a few operations.

TIMES = st.integers(0, 6)
SPANS = st.tuples(TIMES, TIMES).map(sorted)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), SPANS),
        st.tuples(st.just("read"), st.integers(0, 3), SPANS),
        st.tuples(st.just("end"), st.integers(0, 4), SPANS),
    ),
    max_size=5,
)


@given(OPERATIONS)
def test_the_verdict_is_that_of_trying_every_order(operations: list[tuple]) -> None:  # type: ignore[type-arg]
    """Appends get offsets in the order in which they are listed; reads of what is not there are left out."""
    offsets = itertools.count()
    numbered = [(*op, next(offsets)) if op[0] == "append" else op for op in operations]
    count = next(offsets)
    numbered = [op for op in numbered if op[0] == "append" or op[1] < count or (op[0] == "end" and op[1] == count)]
    history = PartitionHistory("p")
    for op in numbered:
        match op:
            case ("append", (invoked, acked), offset):
                history.append_acked(offset, offset, invoked, acked)
            case ("read", offset, (_, returned)):
                history.read(offset, offset, returned)
            case ("end", high_watermark, (invoked, returned)):
                history.end(high_watermark, invoked, returned)
    assert (history.check() == []) == any(map(is_possible, itertools.permutations(numbered)))


def is_possible(order: tuple[tuple, ...]) -> bool:  # type: ignore[type-arg]
    """Whether one log, doing one operation after the other, answers like this, at moments inside the operations."""
    end, now = 0, 0
    for op in order:
        invoked, returned = op[1] if op[0] == "append" else op[2]
        now = max(now, invoked)
        if now > returned:
            return False
        match op:
            case ("append", _, offset):
                if offset != end:
                    return False
                end += 1
            case ("read", offset, _):
                if offset >= end:
                    return False
            case ("end", high_watermark, _):
                if high_watermark != end:
                    return False
    return True
