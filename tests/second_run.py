"""A test that waits for real processes may fail once because the machine was busy: it runs a second time, and is told.

Two landings were refused for one test of nine thousand each: a disk under the tests had stalled for seconds. So a test
of the suites that wait for processes, or for sockets, threads and timers of their own, runs once more when it fails.
Nothing is hidden: what the first run told is printed at the end, and more than ``MOST`` second runs are a failure of
the run, as something is wrong then. Tests that compute get one run: what they find at random must not be lost.

The second run has clusters of its own: what the file's fixtures made for the first one ends with it, for the failure
may have left anything behind there. So no test may build on what an earlier one of its file did, but for those of a
story (the marker), which keep their cluster.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

MOST: int = 5
"""Tests of one run that may need a second one."""
_first: dict[str, str] = {}
"""Test -> what was told of its first run; where reports come together (with workers: in their controller)."""
_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker("flaky") is not None and item.get_closest_marker("story") is None:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Before the second run's own hook, which keeps what the file's fixtures made."""
    if item.stash.get(_FAILED, False):
        item.stash[_FAILED] = False
        item.session._setupstate.teardown_exact(item.session)  # type: ignore[arg-type]


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome == "rerun":  # type: ignore[comparison-overlap]
        printed = "".join(f"\n{name}\n{text[-3000:]}" for name, text in report.sections if text.strip())
        _first[report.nodeid] = f"{str(report.longreprtext)[-4000:]}{printed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for nodeid, text in _first.items():
        terminalreporter.section(f"failed at first: {nodeid}")
        terminalreporter.write_line(text)
    if len(_first) > MOST:
        terminalreporter.write_line(f"{len(_first)} tests failed at first, expected {MOST} at most: the run has failed")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if len(_first) > MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
