"""The table has every number that the verdict has, and what is wrong is named."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from tests.chaos.report import Outcome, RoundResult, as_json, ending, pauses_by_kind, table
from tests.checks.ledger import Totals, Verdict
from tests.checks.linearizability import Violation

TOTALS = Totals(
    sent=12_000, acked=11_990, failed=7, open=3, reads=40_000, ends=500, in_logs=11_993, found_without_ack=3
)
OUTCOME = Outcome(
    seed=4,
    command="make chaos MINUTES=2 SEED=4",
    commit="abc",
    network="a means",
    minutes=2.0,
    planned_minutes=2.0,
    rounds=(
        RoundResult(name="kill", pause_s=0.5, pause_place="t-1", heal_s=1.0),
        RoundResult(name="cut", pause_s=7.25, pause_place="t-2", heal_s=3.0),
        RoundResult(name="kill", pause_s=1.5, pause_place="t-1", heal_s=None),
    ),
    faults={"kill": 2, "cut": 1},
    kills=6,
    starts=9,
    topics=5,
    rebalances=3,
    verdict=Verdict(totals=TOTALS, violations=()),
    client_errors={},
    broker_cpu_s=30.0,
    client_cpu_s=12.0,
    disk_mb=20.0,
    memory_mb=80.0,
)


def rows(outcome: Outcome) -> dict[str, str]:
    out = io.StringIO()
    Console(file=out, width=110).print(table(outcome))
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.getvalue().splitlines()]
    return {cells[0]: cells[1] for cells in lines if len(cells) == 2}


def test_what_the_table_says() -> None:
    shown = rows(OUTCOME)
    assert shown["processes killed, a minute"] == "6, 3.0"
    assert shown["records acknowledged"] == "11,990"
    assert shown["told to have failed, without an answer"] == "7, 3"
    assert shown["acknowledged records lost"] == "0"
    assert shown["longest write pause"] == "7.2 s in t-2"
    assert shown["CPU of brokers and clients, of a core"] == "25%, 10%"


def test_violations_are_counted_and_named() -> None:
    found = tuple(Violation(kind=kind, text=f"of {kind}") for kind in ("lost", "duplicated", "order", "stuck", "gap"))
    bad = replace(OUTCOME, verdict=Verdict(totals=TOTALS, violations=found))
    shown = rows(bad)
    assert OUTCOME.ok and not bad.ok
    names = ("acknowledged records lost", "records duplicated", "records reordered", "other violations")
    assert [shown[name] for name in names] == ["1", "1", "1", "2"]
    lines = ending(bad, "/somewhere")
    assert lines[0] == "lost: of lost"
    assert lines[-2] == "5 violations. Ledger and logs: /somewhere"
    assert lines[-1] == "Again: make chaos MINUTES=2 SEED=4"
    assert ending(OUTCOME, "/somewhere") == ["No violation. make chaos MINUTES=2 SEED=4"]


def test_pauses_by_kind() -> None:
    assert pauses_by_kind(OUTCOME.rounds) == {"cut": (1, 7.25, 7.25), "kill": (2, 1.0, 1.5)}


def test_the_file_has_it_all() -> None:
    data = json.loads(json.dumps(as_json(OUTCOME)))
    assert data["ok"] is True
    assert data["verdict"]["totals"]["acked"] == 11_990
    assert data["pauses"]["kill"] == [2, 1.0, 1.5]
