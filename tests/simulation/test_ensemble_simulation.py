"""The simulator with the metadata in an ensemble, in the test run: as test_simulation.py."""

from __future__ import annotations

import re
import secrets

import pytest

from tests.simulation.test_simulation import simulate

FIXED, FRESH = 5, 3
STORE = ("--store", "zookeeper")


def test_H_08_nothing_acked_is_lost_with_the_metadata_in_an_ensemble() -> None:
    code, text = simulate(*STORE, "--seeds", str(FIXED), "--first", "9", "--duration", "40")
    assert code == 0, text


def test_H_08_nor_with_seeds_that_nobody_has_seen() -> None:
    first = secrets.randbelow(1 << 31)
    print(f"fresh seeds from {first}")
    code, text = simulate(*STORE, "--seeds", str(FRESH), "--first", str(first), "--duration", "40")
    assert code == 0, text


def test_the_same_seed_is_the_same_run_with_an_ensemble() -> None:
    prints = {re.search(r"fingerprint.*?([0-9a-f]{8})", simulate(*STORE, "--seed", "10")[1])[1] for _ in range(2)}
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("bug", "first", "seeds"), [("zk-epoch-check", 4, 3), ("zk-session-resumed", 1, 3), ("zk-stale-ephemeral", 10, 6)]
)
def test_bugs_of_the_store_that_are_put_back_are_found(bug: str, first: int, seeds: int) -> None:
    code, text = simulate("--whole", "--planted", bug, "--seeds", str(seeds), "--first", str(first))
    assert code == 0, text
