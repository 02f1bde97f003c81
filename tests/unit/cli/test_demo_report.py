"""The demo's verdict: equal counts everywhere, or a line for each difference."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from holdfast.cli.demo_report import Outcome, differences, summary

GOOD = Outcome(
    flights=1000,
    sent=1000,
    acked=1000,
    failed=0,
    duplicate_places=0,
    in_log=1000,
    landed=1000,
    landed_bad=0,
    landed_different=0,
    killed_broker=2,
    was_controller=True,
    new_controller=3,
    back_in_sync_s=1.23,
    pause_s=0.21,
    audited_partitions=6,
    audited_replicas=18,
    audited_records=1000,
    audit_differences=(),
    by_carrier={"UA": (600, 1200), "AA": (400, -400)},
    by_carrier_truth={"UA": (600, 1200), "AA": (400, -400)},
    by_hour={"5": (1000, 800)},
    by_hour_truth={"5": (1000, 800)},
    seconds=61.0,
)


def test_an_exact_run_has_no_differences() -> None:
    assert differences(GOOD) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"acked": 999, "in_log": 999, "landed": 999, "audited_records": 999},
            "records acknowledged: 999, records sent",
        ),
        ({"landed": 1001}, "rows landed: 1,001, records acknowledged: 1,000"),
        ({"in_log": 1003}, "records in the log: 1,003"),
        ({"landed_bad": 1}, "bad records: 1, expected: 0"),
        ({"landed_different": 7}, "landed rows that differ from what was sent: 7"),
        ({"audited_records": 0}, "records audited: 0"),
        ({"audit_differences": ("flights-0 differs on 2",)}, "audit: flights-0 differs on 2"),
        ({"was_controller": False}, "the killed broker 2 was not the controller"),
        ({"by_hour": {"5": (1000, 801)}}, "hour 5: Spark says (flights, minutes) (1000, 801)"),
        ({"by_carrier": {"UA": (600, 1200)}}, "carrier AA: Spark says (flights, minutes) None"),
    ],
)
def test_every_difference_has_a_line(change: dict[str, object], line: str) -> None:
    (found,) = differences(replace(GOOD, **change))  # type: ignore[arg-type]
    assert found.startswith(line)


def test_the_table_shows_counts_the_kill_and_the_delays() -> None:
    written = io.StringIO()
    Console(width=100, file=written).print(summary(GOOD))
    shown = written.getvalue()
    for part in (
        "1,000",
        "18 replicas",
        "broker 2",
        "broker 3",
        "210 ms",
        "1.2 s",
        "carrier UA",
        "2.0 min of 600",
        "61 s",
    ):
        assert part in shown
