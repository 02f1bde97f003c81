"""The judge of transactions: each thing that can be wrong, as a history."""

from __future__ import annotations

import pytest

from holdfast.model.types import TopicPartition
from tests.simulation.txn_judge import Outcome, Txn, TxnJudge
from tests.simulation.watch import Violation

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def sent(judge: TxnJudge, outcome: Outcome, *values: tuple[TopicPartition, str]) -> Txn:
    """A transaction of p that has ended so."""
    txn = judge.begin(f"p/{len(judge.txns)}")
    for tp, value in values:
        judge.sends(txn, tp, value)
    if outcome is Outcome.UNKNOWN:
        txn.outcome = outcome
    else:
        judge.over(txn, outcome)
    return txn


def test_what_is_committed_is_whole_and_what_is_unknown_is_whole_or_not_there() -> None:
    judge = TxnJudge()
    sent(judge, Outcome.COMMITTED, (A, "p:1"), (B, "p:2"))
    sent(judge, Outcome.ABORTED, (A, "p:3"))
    sent(judge, Outcome.UNKNOWN, (A, "p:4"), (B, "p:5"))
    judge.saw(A, 0, "p:1")
    judge.settle({A: ["p:1", "p:4"], B: ["p:2", "p:5"]})
    judge.settle({A: ["p:1"], B: ["p:2"]})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({A: ["p:1"], B: []}, "was committed, and lacks"),
        ({A: ["p:1", "p:1"], B: ["p:2"]}, "twice"),
        ({A: ["p:1", "p:3"], B: ["p:2"]}, "was aborted, and is there"),
        ({A: ["p:1", "p:4"], B: ["p:2"]}, "in parts"),
        ({A: ["p:4", "p:1"], B: ["p:2", "p:5"]}, "behind a later record"),
    ],
)
def test_parts_twice_aborted_or_out_of_order_is_a_violation(found: dict[TopicPartition, list[str]], words: str) -> None:
    judge = TxnJudge()
    sent(judge, Outcome.COMMITTED, (A, "p:1"), (B, "p:2"))
    sent(judge, Outcome.ABORTED, (A, "p:3"))
    sent(judge, Outcome.UNKNOWN, (A, "p:4"), (B, "p:5"))
    with pytest.raises(Violation, match=words):
        judge.settle(found)


def test_a_reader_must_not_see_what_is_aborted_before_or_after() -> None:
    judge = TxnJudge()
    sent(judge, Outcome.ABORTED, (A, "p:1"))
    with pytest.raises(Violation, match="was aborted"):
        judge.saw(A, 0, "p:1")
    judge = TxnJudge()
    txn = judge.begin("p/0")
    judge.sends(txn, A, "p:1")
    judge.saw(A, 0, "p:1")
    with pytest.raises(Violation, match="has seen it"):
        judge.over(txn, Outcome.ABORTED)


def test_a_key_is_at_its_newest_version_or_a_newer_one_that_may_be_in() -> None:
    judge = TxnJudge()
    for number, (value, outcome) in enumerate(
        [("p:1", Outcome.COMMITTED), (None, Outcome.COMMITTED), ("p:2", Outcome.ABORTED), ("p:3", Outcome.UNKNOWN)]
    ):
        txn = sent(judge, outcome)
        judge.writes(A, "k", value, txn).offset = number
    for end, good, bad in ((1, ["p:1", None, "p:3"], ["p:2", "x"]), (2, [None, "p:3"], ["p:1", "p:2"])):
        floors = judge.floors(A, end)
        for value in good:
            judge.scanned(A, floors, {} if value is None else {"k": value})
        for value in bad:
            with pytest.raises(Violation, match="newer is committed"):
                judge.scanned(A, floors, {"k": value})


def test_the_group_is_where_the_newest_committed_transaction_has_put_it() -> None:
    judge = TxnJudge()
    for number, outcome in enumerate((Outcome.COMMITTED, Outcome.ABORTED, Outcome.COMMITTED, Outcome.UNKNOWN)):
        sent(judge, outcome).group_offset = number
    judge.settle_group("p", 2)
    judge.settle_group("p", 3)
    for offset in (None, 0, 1):
        with pytest.raises(Violation):
            judge.settle_group("p", offset)
