"""Second runs (tests/second_run.py), seen from outside: a small suite in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import second_run

ROOT = Path(__file__).parents[3]
SUITE = """
import pathlib, pytest
@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize("number", range({count}))
def test_fails_at_first(number):
    mark = pathlib.Path(__file__).with_name(f"seen-{{number}}")
    if not mark.exists():
        mark.touch()
        print("a broker said", 6 * 7)
        assert False, "the disk was slow"
@pytest.mark.flaky(reruns=1)
def test_fails_always():
    assert not {broken}, "broken"
def test_runs_once():
    pass
"""


def run(folder: Path, count: int, *, broken: bool = False, workers: tuple[str, ...] = ()) -> tuple[int, str]:
    (folder / "test_suite.py").write_text(SUITE.format(count=count, broken=broken))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.second_run", "-p", "no:cacheprovider", *workers, str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_one_that_passes_the_second_time_passes_and_is_told(tmp_path: Path, workers: tuple[str, ...]) -> None:
    code, said = run(tmp_path, 2, workers=workers)
    assert code == 0, said
    assert said.count("failed at first: ") == 2
    assert "the disk was slow" in said and said.count("a broker said 42") == 2, "and what it printed"
    assert "4 passed, 2 rerun" in said


def test_one_that_fails_twice_fails(tmp_path: Path) -> None:
    code, said = run(tmp_path, 0, broken=True)
    assert code == 1, said
    assert "1 failed" in said


def test_many_second_runs_are_a_failure_of_the_run(tmp_path: Path) -> None:
    code, said = run(tmp_path, second_run.MOST + 1)
    assert code == 1, said
    assert f"expected {second_run.MOST} at most" in said
