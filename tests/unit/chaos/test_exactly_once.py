"""The judge of ``make exactly-once`` finds what is wrong, and says whose a gap is."""

from collections import Counter

from tests.exactly_once.judge import OUTPUTS, Blow, Gap, Place, longest_after, quantile, wrongs

A, B = OUTPUTS
INPUTS = {Place(0, 0): 7, Place(0, 1): 8}
RIGHT = dict.fromkeys(INPUTS.items(), 1)


def seen(
    in_a: dict[tuple[Place, int], int], in_b: dict[tuple[Place, int], int]
) -> dict[str, Counter[tuple[Place, int]]]:
    return {A: Counter(in_a), B: Counter(in_b)}


def test_each_once_in_both_outputs_is_right() -> None:
    assert wrongs(INPUTS, (), seen(RIGHT, RIGHT)) == []


def test_what_is_missing_or_double_is_named() -> None:
    double = RIGHT | {(Place(0, 1), 8): 2}
    assert wrongs(INPUTS, (), seen(RIGHT, double)) == [f"{B}: input 8 of 0@1 is there 2 times"]
    missing = {(Place(0, 1), 8): 1}
    found = wrongs(INPUTS, (), seen(missing, RIGHT))
    assert found[0] == f"{A}: input 7 of 0@0 is there 0 times" and "a transaction was not whole" in found[1]


def test_an_input_without_an_answer_may_be_there_once() -> None:
    more = {(Place(1, 0), 9): 1}
    assert wrongs(INPUTS, (9,), seen(RIGHT | more, RIGHT | more)) == []
    twice = {(Place(1, 0), 9): 2}
    assert len(wrongs(INPUTS, (9,), seen(RIGHT | twice, RIGHT | twice))) == 2
    assert wrongs(INPUTS, (), seen(RIGHT | more, RIGHT | more))[0] == f"{A}: 9 of 1@0 was never an input"


def test_an_input_whose_offset_nobody_told_is_there_once_too() -> None:
    """An answer to a duplicate that is so old that its batch is forgotten has no offset."""
    more = Counter({(Place(1, 0), 9): 1})
    assert wrongs(INPUTS, (), seen(RIGHT | more, RIGHT | more), (9,)) == []
    assert wrongs(INPUTS, (), seen(RIGHT, RIGHT), (9,)) == [f"{each}: input 9 is there 0 times" for each in OUTPUTS]
    twice = Counter({(Place(1, 0), 9): 1, (Place(1, 1), 9): 1})
    assert wrongs(INPUTS, (), seen(RIGHT | twice, RIGHT | twice), (9,)) == [
        f"{each}: input 9 is there 2 times" for each in OUTPUTS
    ]


def test_a_gap_is_that_of_the_last_fault_before_it() -> None:
    blows = [Blow(kind="broker", at_s=10, what=""), Blow(kind="member", at_s=15, what="")]
    gaps = [
        Gap(topic=A, partition=0, begin_s=10.1, end_s=10.6),
        Gap(topic=A, partition=0, begin_s=14.8, end_s=20.8),  # the last records came out just before the kill
        Gap(topic=B, partition=0, begin_s=2, end_s=3),  # nobody's
        Gap(topic=B, partition=0, begin_s=40, end_s=41),  # much later
    ]
    found = longest_after(blows, gaps, 1)
    assert {kind: [round(each, 1) for each in values] for kind, values in found.items()} == {
        "broker": [0.5, 0.0],
        "member": [6.0, 0.0],
    }


def test_quantiles() -> None:
    assert quantile([], 0.99) == 0
    assert quantile([3, 1, 2], 0.5) == 2 and quantile(list(range(100)), 0.99) == 99
