"""Runs that were right, and one of each thing that can be wrong."""

from __future__ import annotations

import pytest

from tests.checks.ledger import Ledger, Verdict, pack, unpack

PAST = 1000


def filled(count: int = 4, producer: int = 1) -> Ledger:
    """A producer's records 0.. at the offsets 0.. of partition p, all acknowledged."""
    ledger = Ledger()
    for offset in range(count):
        now = 10 * offset
        sequence = ledger.sent(producer, now)
        ledger.acked(producer, sequence, "p", offset, now + 5)
    return ledger


def log(*sequences: int, producer: int = 1) -> dict[str, list[int | None]]:
    return {"p": [pack(producer, sequence) for sequence in sequences]}


def judged(ledger: Ledger, logs: dict[str, list[int | None]]) -> Verdict:
    return ledger.verdict(logs, has_group=False)


def kinds(ledger: Ledger, logs: dict[str, list[int | None]]) -> list[str]:
    return [violation.kind for violation in judged(ledger, logs).violations]


def test_packing() -> None:
    assert unpack(pack(7, 123456789)) == (7, 123456789)
    assert pack(0, 0) == 0


def test_all_is_well() -> None:
    verdict = judged(filled(), log(0, 1, 2, 3))
    assert verdict.violations == ()
    assert (verdict.totals.sent, verdict.totals.acked, verdict.totals.in_logs) == (4, 4, 4)


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ((0, 1, 2), ["lost"]),
        ((), ["lost"] * 4),
        ((0, 1, 2, 3, 3), ["duplicated"]),
        ((0, 1, 3, 2), ["lost", "reordered", "lost"]),
        ((0, 1, 2, 9), ["foreign"]),
        ((0, 1, 1, 3), ["duplicated", "lost"]),
    ],
)
def test_a_log_that_is_not_what_was_acknowledged(sequences: tuple[int, ...], expected: list[str]) -> None:
    assert kinds(filled(), log(*sequences)) == expected


def test_a_partition_without_a_log() -> None:
    assert kinds(filled(), {}) == ["lost"]


def test_records_of_another_producer_in_between() -> None:
    ledger = Ledger()
    for producer, offset in ((1, 0), (2, 1), (1, 2), (2, 3)):
        ledger.acked(producer, ledger.sent(producer, PAST), "p", offset, PAST + offset)
    assert kinds(ledger, {"p": [pack(1, 0), pack(2, 0), pack(1, 1), pack(2, 1)]}) == []


def test_what_failed_or_had_no_answer_is_there_once_or_not_at_all() -> None:
    for there, expected in (((), []), ((4, 5), []), ((4, 4), ["duplicated"]), ((5, 4), ["reordered"])):
        ledger = filled()
        ledger.failed(1, ledger.sent(1, PAST))
        ledger.sent(1, PAST)
        assert kinds(ledger, log(0, 1, 2, 3, *there)) == expected, there


def test_totals_of_what_has_no_ack() -> None:
    ledger = filled()
    ledger.failed(1, ledger.sent(1, PAST))
    ledger.sent(1, PAST)
    totals = judged(ledger, log(0, 1, 2, 3, 5)).totals
    assert (totals.failed, totals.open, totals.found_without_ack) == (1, 1, 1)


def test_an_ack_for_a_record_that_has_one() -> None:
    ledger = filled()
    ledger.acked(1, 3, "p", 4, PAST)
    assert kinds(ledger, log(0, 1, 2, 3, 3)) == ["duplicated", "duplicated"]


def test_one_offset_for_two_records() -> None:
    ledger = filled()
    ledger.acked(1, ledger.sent(1, PAST), "p", 3, PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == ["changed"]
    assert [violation.kind for violation in ledger.so_far] == ["changed"]


def test_a_record_in_two_partitions() -> None:
    ledger = filled()
    assert kinds(ledger, {**log(0, 1, 2, 3), "q": [pack(1, 2)]}) == ["duplicated"]


def test_a_reader_gets_every_offset_once() -> None:
    ledger = filled()
    for offset in range(4):
        ledger.read("r", "p", offset, pack(1, offset), PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == []
    assert ledger.position("r", "p") == 4


@pytest.mark.parametrize("offsets", [(0, 2), (0, 0), (0, 1, 0)])
def test_a_reader_with_a_gap_or_an_offset_again(offsets: tuple[int, ...]) -> None:
    ledger = filled()
    for offset in offsets:
        ledger.read("r", "p", offset, pack(1, offset), PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == ["gap"]


def test_a_reader_that_goes_back_on_purpose() -> None:
    ledger = filled()
    for offset in (2, 3):
        ledger.read("r", "p", offset, pack(1, offset), PAST)
    ledger.starts_at("r", "p", 1)
    ledger.read("r", "p", 1, pack(1, 1), PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == []
    ledger.starts_at("r", "p", 1)
    ledger.read("r", "p", 2, pack(1, 2), PAST)
    assert [violation.kind for violation in ledger.so_far] == ["gap"]


def test_a_reader_gets_something_else_than_another_one_got() -> None:
    ledger = filled()
    ledger.read("r", "p", 2, pack(1, 1), PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == ["changed"]


def test_a_reader_gets_bytes_that_are_nobodys() -> None:
    ledger = filled()
    ledger.read("r", "p", 0, None, PAST)
    ledger.read("r", "p", 1, pack(1, 77), PAST)
    ledger.read("r", "p", 2, pack(5, 0), PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == ["foreign"] * 3


def test_what_was_read_stays() -> None:
    """Nobody was told that it is there, but somebody got it: it was committed."""
    ledger = filled()
    ledger.sent(1, 50)
    ledger.read("r", "p", 4, pack(1, 4), PAST)
    assert kinds(ledger, log(0, 1, 2, 3)) == ["changed"]


def test_history_is_judged_with_records_that_have_no_ack() -> None:
    """It was sent after the record behind it was acknowledged; only the log tells where it is."""
    ledger = Ledger()
    ledger.acked(2, ledger.sent(2, 1), "p", 1, 10)
    ledger.sent(1, 11)
    assert kinds(ledger, {"p": [pack(1, 0), pack(2, 0)]}) == ["order"]


def test_an_end_without_what_was_acknowledged() -> None:
    ledger = filled()
    ledger.end("p", 3, PAST, PAST + 1)
    assert kinds(ledger, log(0, 1, 2, 3)) == ["stale end"]


def test_the_group_gets_everything() -> None:
    ledger = filled()
    for offset in (0, 1, 3):
        ledger.delivered("p", offset)
    verdict = ledger.verdict(log(0, 1, 2, 3))
    assert [str(violation.text) for violation in verdict.violations] == ["p: 1 records, the first at offset 2"]
    assert verdict.count("undelivered") == 1


def test_what_is_wrong_with_the_form_of_a_log() -> None:
    assert [v.kind for v in filled().verdict(log(0, 1, 2, 3), has_group=False, more=["crc"]).violations] == ["damaged"]


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        (log(0, 1, 2, 3, 4), []),
        (log(0, 1, 2, 3), ["lost"]),
        ({**log(0, 1, 2, 3), "q": [pack(1, 4)]}, ["lost"]),
        (log(0, 1, 2, 3, 4, 4), ["duplicated"]),
    ],
)
def test_an_ack_that_does_not_say_where(logs: dict[str, list[int | None]], expected: list[str]) -> None:
    ledger = filled()
    ledger.acked(1, ledger.sent(1, PAST), "p", None, PAST + 1)
    assert kinds(ledger, logs) == expected


def test_an_ack_that_does_not_say_where_counts_for_the_history() -> None:
    ledger = filled()
    ledger.acked(1, ledger.sent(1, PAST), "p", None, PAST + 1)
    ledger.end("p", 4, PAST + 2, PAST + 3)
    assert kinds(ledger, log(0, 1, 2, 3, 4)) == ["stale end"]
