"""The simulator in the test run: fixed seeds, fresh ones, the same seed twice, bugs put back."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys

import pytest

FIXED, FRESH = 12, 8
LONG = pytest.mark.long("five others that are put back show that the checkers look")


def simulate(*options: str) -> tuple[int, str]:
    """``make sim`` as a program; its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--jobs", "2", *options],
        capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "200"}, check=False,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout


def test_R_22_nothing_acked_is_lost_under_any_order_of_crashes() -> None:
    code, text = simulate("--seeds", str(FIXED), "--first", "1", "--duration", "40")
    assert code == 0, text


def test_R_22_nor_with_seeds_that_nobody_has_seen() -> None:
    first = secrets.randbelow(1 << 31)
    print(f"fresh seeds from {first}")
    code, text = simulate("--seeds", str(FRESH), "--first", str(first), "--duration", "40")
    assert code == 0, text


def test_a_transaction_is_whole_or_not_there_and_a_cleaned_log_says_what_it_said() -> None:
    first = secrets.randbelow(1 << 31)
    print(f"fresh seeds with transactions from {first}")
    code, text = simulate("--transactions", "--seeds", str(FRESH), "--first", str(first), "--duration", "40")
    assert code == 0, text


def test_the_same_seed_is_the_same_run() -> None:
    prints = {re.search(r"fingerprint.*?([0-9a-f]{8})", simulate("--seed", "7")[1])[1] for _ in range(2)}
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("bug", "first", "seeds"),
    [
        ("D2", 14, 11),
        ("D6", 1, 3),
        ("early-ack", 1, 3),
        ("H-01", 1, 40),
        pytest.param("H-06", 34, 120, marks=LONG),
        pytest.param("H-19", 1, 3, marks=LONG),
        ("H-20", 1, 15),
        pytest.param("H-28", 64, 10, marks=LONG),
        pytest.param("K1066-04", 10, 30, marks=LONG),
        ("abort-markers-by-key", 1, 5),
        ("double-bump", 1, 5),
        ("marker-retry", 1, 10),
        ("tombstone-early", 1, 5),
        ("unverified", 1, 5),
    ],
)
def test_bugs_that_are_put_back_are_found(bug: str, first: int, seeds: int) -> None:
    code, text = simulate("--whole", "--planted", bug, "--seeds", str(seeds), "--first", str(first))
    assert code == 0, text
