"""The demo's verdict: equal counts everywhere, or a line for each difference."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from holdfast.cli.demo_report import Death, LostDisk, LostHost, Outcome, differences, summary

KILLED = Death(broker=2, was_controller=True, next_controller=3, back_in_sync_s=1.23, pause_s=0.21)
LOST = LostDisk(
    broker=1,
    path="/data/broker-1/log-dir-2",
    how="EIO",
    replicas=3,
    led=(0, 3),
    detected_s=0.004,
    resumed_s=0.123,
    back_in_sync_s=0.87,
    same_process=True,
)
DARK = LostHost(
    host=1,
    led=(0, 3),
    next_controller=2,
    led_ensemble=False,
    session_s=6.0,
    tick_s=0.5,
    slack_s=0.5,
    new_client_s=6.24,
    resumed_s=6.31,
    back_in_sync_s=4.0,
)
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
    orphans=(),
    blow=KILLED,
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
        ({"orphans": ("a.parquet",)}, "data files that the table does not name: 1"),
        ({"audited_records": 0}, "records audited: 0"),
        ({"audit_differences": ("flights-0 differs on 2",)}, "audit: flights-0 differs on 2"),
        ({"blow": replace(KILLED, was_controller=False)}, "the killed broker 2 was not the controller"),
        ({"blow": replace(LOST, same_process=False)}, "broker 1 did not survive its disk"),
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


def test_the_table_shows_the_lost_disk() -> None:
    written = io.StringIO()
    lossy = replace(GOOD, blow=LOST)
    assert differences(lossy) == []
    Console(width=100, file=written).print(summary(lossy))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in written.getvalue().splitlines() if "│" in line]
    shown = {row[0]: row[1] for row in rows}
    assert shown["a disk of broker 1 died"] == "log-dir-2"
    assert shown["replicas on it, leaders among them"] == "3, 2"
    assert shown["from the fault until the broker had given it up"] == "4 ms"
    assert shown["from the fault to the first ack of every new leader"] == "123 ms"
    assert shown["acknowledged records that the audit misses"] == "none"
    assert shown["broker restarted"] == "no"
    assert shown["from log-dirs online until in sync everywhere"] == "0.9 s"
    assert not any("kill -9" in row for row in shown)


def test_the_table_shows_the_lost_host_and_what_its_silence_may_cost() -> None:
    for lost, election in ((DARK, ""), (replace(DARK, led_ensemble=True), " and its election")):
        written = io.StringIO()
        outcome = replace(GOOD, blow=lost)
        assert differences(outcome) == []
        Console(width=120, file=written).print(summary(outcome))
        lines = written.getvalue().splitlines()
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
        shown = {row[0]: row[1] for row in rows}
        assert shown["powered off, with the controller"] == "host-1"
        assert shown["the leader of the ensemble was there too"] == ("yes" if election else "no")
        assert shown["controller after it"] == "broker 2"
        assert shown["from its last sign of life to the ack of a new client"] == "6.2 s"
        assert shown[f"session 6 s + tickTime 0.5 s + 0.5 s{election}"] == "7.0 s"
        assert shown["to the first ack of the load by every new leader"] == "6.3 s"
        assert shown["from its power on until in sync everywhere"] == "4.0 s"
