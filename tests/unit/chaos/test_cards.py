"""What happens besides, on runs with disks: every card is drawn in an hour."""

from __future__ import annotations

from tests.chaos import metadata_disks
from tests.chaos.cards import extras, shown
from tests.chaos.cordons import COUNTED
from tests.chaos.disks import HANGS_S, KINDS, disk_kinds, host_disk_kinds
from tests.chaos.schedule import DECK, FULL, HOSTS_DECK, STORE_DECK, Kind, schedule

BROKERS = (1, 2, 3)
SEEDS = range(12)


MANY = schedule(1, 20_000, FULL)[:1000]


def _counts(seed: int, *, on_hosts: bool = False) -> dict[str, int]:
    pace = FULL.with_deck(HOSTS_DECK) if on_hosts else FULL
    rounds = schedule(seed, 3600, pace)
    lines = shown(seed, rounds, BROKERS, with_disks=True, with_metadata=not on_hosts, on_hosts=on_hosts)
    counted = lines[lines.index("") + 1 :]
    return {name: int(count) for count, name in (line.split(maxsplit=1) for line in counted)}


def test_an_hour_of_any_seed_has_every_card() -> None:
    for seed in SEEDS:
        wanted = {kind.value for kind in DECK} | {COUNTED}
        wanted |= {f"metadata directory: {kind}" for kind in metadata_disks.KINDS}
        wanted |= {f"disk: {kind}" for kind in disk_kinds(seed, BROKERS)}
        counts = _counts(seed)
        assert counts.keys() == wanted
        assert counts[COUNTED] > 10


def test_an_hour_of_any_seed_on_hosts_has_every_card_of_hosts() -> None:
    for seed in SEEDS:
        counts = _counts(seed, on_hosts=True)
        disks = {f"disk: {kind}" for kind in host_disk_kinds(seed, BROKERS).values()}
        assert len(disks) == 6, "of as many kinds"
        assert counts.keys() == {kind.value for kind in Kind} | {COUNTED} | disks
        assert sum(counts[kind.value] for kind in Kind if kind.cuts_power) >= 10


def test_a_card_that_nothing_here_can_play_is_not_drawn() -> None:
    assert not any(kind.of_store or kind.of_host for kind in DECK)
    assert not any(kind.of_host for kind in STORE_DECK)
    assert {*DECK, *HOSTS_DECK} == set(Kind)


def test_a_round_with_a_power_cut_takes_no_other_copy_away() -> None:
    """What was not flushed is gone from one of three."""
    for seed in SEEDS:
        rounds = schedule(seed, 3600, FULL.with_deck(HOSTS_DECK))
        for planned, besides in zip(rounds, extras(seed, rounds, with_disks=True), strict=True):
            if any(fault.kind.cuts_power for fault in planned.faults):
                assert len(planned.faults) == 1 and besides.disk is None


def test_disks_of_a_run_are_of_six_kinds_and_those_of_some_runs_of_all() -> None:
    assert all(len(set(disk_kinds(seed, BROKERS))) == 6 for seed in SEEDS)
    assert {kind for seed in SEEDS for kind in disk_kinds(seed, BROKERS)} == {kind for pair in KINDS for kind in pair}


def test_hangs_are_of_all_lengths_up_to_two_minutes() -> None:
    hangs = [besides.disk.hangs_s for besides in extras(1, MANY, with_disks=True) if besides.disk is not None]
    assert HANGS_S == (3.0, 120.0)
    assert min(hangs) < 6 and max(hangs) > 117


def test_a_round_with_a_disk_fault_has_no_cordon() -> None:
    drawn = extras(1, MANY, with_disks=True)
    assert not any(besides.disk is not None and besides.cordon is not None for besides in drawn)
    assert any(besides.metadata is not None and besides.cordon is not None for besides in drawn)


def test_without_disks_there_is_nothing_besides() -> None:
    assert {besides.name for besides in extras(1, MANY, with_disks=False)} == {""}
