"""The demo's ledger: places of records, places named twice, silences."""

from holdfast.cli.demo_ledger import Ledger


def test_a_ledger_knows_where_every_acknowledged_row_went() -> None:
    ledger = Ledger(rows=4)
    ledger.record(2, 1, 0, 10.0)
    ledger.record(0, 1, 1, 10.1)
    assert list(ledger.places()) == [(0, 1, 1), (2, 1, 0)]
    assert (ledger.acked, ledger.duplicates()) == (2, 0)


def test_a_place_that_is_named_twice_is_seen() -> None:
    ledger = Ledger(rows=3)
    for row in range(3):
        ledger.record(row, 0, row // 2, 1.0)
    assert ledger.duplicates() == 1


def test_the_longest_pause_is_one_partitions_and_ends_after_the_moment_asked_for() -> None:
    ledger = Ledger(rows=8)
    for row, (partition, at_s) in enumerate([(0, 1.0), (0, 5.0), (0, 5.1), (0, 5.9), (1, 5.0), (1, 5.4), (1, 6.5)]):
        ledger.record(row, partition, row, at_s)
    assert ledger.longest_pause_s(since_s=5.2) == 6.5 - 5.4
    assert ledger.longest_pause_s(since_s=5.2, partitions=[0]) == 5.9 - 5.1
    assert ledger.longest_pause_s(since_s=0.0, partitions=[0]) == 4.0
    assert ledger.longest_pause_s(since_s=9.0) == 0.0


def test_the_first_acknowledgement_after_a_moment_is_found_by_partition() -> None:
    ledger = Ledger(rows=8)
    acks = [(0, 4.9), (0, 5.7), (0, 5.1), (0, 5.6), (1, 5.3), (1, 5.4), (2, 9.0), (3, 4.0)]
    for row, (partition, at_s) in enumerate(acks):
        ledger.record(row, partition, row, at_s)
    assert ledger.first_acks_s({0: 5.2, 1: 5.0, 3: 5.0}) == {0: 5.6, 1: 5.3}
