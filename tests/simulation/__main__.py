"""make sim: many seeds, or one again.

python -m tests.simulation --seeds 1000            that many fresh ones, on all cores
python -m tests.simulation --seed 4711             the same run again, with its trace
python -m tests.simulation --planted H-01          until the planted bug is found
python -m tests.simulation --store zookeeper       with the metadata in a modelled ensemble
python -m tests.simulation --transactions          with transactions and compaction in every run, not in half of them
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import gc
import logging
import multiprocessing
import os
import secrets
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.cluster import Outcome, Simulation
from tests.simulation.ensemble_cluster import EnsembleSimulation
from tests.simulation.faults import Fault
from tests.simulation.planted import OF_TRANSACTIONS, ON_ENSEMBLE, PLANTED, WEIGHTS
from tests.simulation.shrink import shrink

DURATION_S = 60.0
TRACE_SHOWN = 60
STORES: dict[str, type[Simulation]] = {"embedded": Simulation, "zookeeper": EnsembleSimulation}
"""By metadata.store."""


class Job(NamedTuple):
    """What is the same for all runs of a command."""

    duration_s: float
    planted: str | None
    store: str
    with_txn: bool | None
    """None: as the seed says."""

    def simulation(self, seed: int, faults: list[Fault] | None = None) -> Simulation:
        """One run, not begun."""
        weights = WEIGHTS.get(self.planted or "")
        return STORES[self.store](
            seed, duration_s=self.duration_s, faults=faults, weights=weights, with_txn=self.with_txn
        )


def run(seed: int, job: Job, faults: list[Fault] | None = None) -> Outcome:
    """One run in this process."""
    logging.disable(logging.ERROR)
    if not gc.get_freeze_count():  # once: what an earlier run left would never be collected
        gc.freeze()  # what is loaded need not be looked at after every run
    with PLANTED[job.planted]() if job.planted else contextlib.nullcontext():
        return job.simulation(seed, faults).run()


def outcomes(seeds: list[int], job: Job, jobs: int) -> Iterator[Outcome]:
    """Runs of all the seeds, as they end."""
    if jobs == 1:
        for seed in seeds:
            yield run(seed, job)
        return
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        waiting: set[concurrent.futures.Future[Outcome]] = set()
        left = iter(seeds)
        try:
            while True:
                for seed in left:
                    waiting.add(pool.submit(run, seed, job))
                    if len(waiting) >= 2 * jobs:
                        break
                if not waiting:
                    return
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def explain(console: Console, outcome: Outcome, job: Job) -> None:
    """The trace of a failing run, and a smaller one that fails too."""
    console.print(f"[red]seed {outcome.seed}: {outcome.violation}[/red]", highlight=False)
    simulation = job.simulation(outcome.seed)
    faults = simulation.faults
    simulation.close()
    last: list[Outcome] = [outcome]

    def fails(fewer: list[Fault]) -> bool:
        again = run(outcome.seed, job, fewer)
        if not again.ok:
            last.append(again)
        return not again.ok

    smallest = shrink(faults, fails)
    console.print(f"fails with {len(smallest)} of its {len(faults)} faults too; the end of that run:")
    for line in last[-1].trace[-TRACE_SHOWN:]:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    of_txn = job.with_txn and job.planted is None
    options = {
        "PLANTED": job.planted,
        "STORE": None if job.store == "embedded" else job.store,
        "ARGS": "--transactions" if of_txn else None,
    }
    more = "".join(f" {name}={value}" for name, value in options.items() if value is not None)
    console.print(f"again: make sim SEED={outcome.seed}{more}")


def main() -> int:
    """The exit code: 1 when a run failed (with ``--planted``: when none did)."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("--seed", type=int, help="run this one and print its trace")
    parser.add_argument("--seeds", type=int, default=100, help="how many fresh ones")
    parser.add_argument("--first", type=int, help="the first of them; drawn when not given")
    parser.add_argument("--duration", type=float, default=DURATION_S, help="virtual seconds of load in each run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", choices=sorted(PLANTED), help="with this bug put back")
    parser.add_argument("--whole", action="store_true", help="do not look for fewer faults by which a run fails too")
    parser.add_argument("--store", choices=sorted(STORES), help="where the metadata is; embedded when not given")
    parser.add_argument(
        "--transactions", action=argparse.BooleanOptionalAction, help="with transactions and compaction in every run"
    )
    options = parser.parse_args()
    options.store = options.store or ("zookeeper" if options.planted in ON_ENSEMBLE else "embedded")
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is part of a run
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
                  {**os.environ, "PYTHONHASHSEED": "0"})  # fmt: skip
    console = Console()
    with_txn = True if options.planted in OF_TRANSACTIONS else options.transactions
    job = Job(options.duration, options.planted, options.store, with_txn)
    if options.seed is not None:
        return one(console, options, job)
    return many(console, options, job)


def one(console: Console, options: argparse.Namespace, job: Job) -> int:
    """--seed"""
    outcome = run(options.seed, job)
    for line in outcome.trace:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(table([outcome], 0.0))
    console.print(f"fingerprint {outcome.fingerprint:08x}", highlight=False)
    if not outcome.ok and not options.whole:
        explain(console, outcome, job)
    return 0 if outcome.ok else 1


def many(console: Console, options: argparse.Namespace, job: Job) -> int:
    """--seeds"""
    first = options.first if options.first is not None else secrets.randbelow(1 << 31)
    console.print(f"seeds {first} to {first + options.seeds - 1}, {options.duration:g} virtual seconds of load each")
    seeds = list(range(first, first + options.seeds))
    done: list[Outcome] = []
    failed: list[Outcome] = []
    started = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("simulating", total=len(seeds))
        todo = outcomes(seeds, job, options.jobs)
        with contextlib.closing(todo) as runs:
            for outcome in runs:
                done.append(outcome)
                progress.advance(bar)
                if not outcome.ok:
                    failed.append(outcome)
                    progress.update(bar, description=f"simulating, {len(failed)} failed")
                    if options.planted:
                        break
    console.print(table(done, time.monotonic() - started))
    for outcome in sorted(failed, key=lambda o: o.seed)[:5]:
        if options.whole:
            console.print(f"[red]seed {outcome.seed}: {outcome.violation}[/red]", highlight=False)
        else:
            explain(console, outcome, job)
    if options.planted:
        found = f"found after {len(done)} seeds" if failed else f"NOT found in {len(done)} seeds"
        console.print(f"planted {options.planted}: {found}")
        return 0 if failed else 1
    return 1 if failed else 0


def table(done: list[Outcome], wall_s: float) -> Table:
    """What was simulated, in figures."""
    virtual_h, cpu_h = sum(o.virtual_s for o in done) / 3600, sum(o.cpu_s for o in done) / 3600
    result = Table(show_header=False)
    for name, value in (
        ("runs", f"{len(done):,}"),
        ("failed", f"{sum(not o.ok for o in done):,}"),
        ("cluster-hours simulated", f"{virtual_h:.2f}"),
        ("cluster-hours per hour of CPU", f"{virtual_h / cpu_h if cpu_h else 0:.0f}"),
        ("faults", f"{sum(o.faults for o in done):,}"),
        ("records acknowledged", f"{sum(o.acked for o in done):,}"),
        ("transactions committed, aborted", f"{sum(o.committed for o in done):,}, {sum(o.aborted for o in done):,}"),
        ("logs seen cleaned", f"{sum(o.cleanings for o in done):,}"),
        ("callbacks", f"{sum(o.steps for o in done):,}"),
        ("wall clock", f"{wall_s:.0f} s"),
    ):
        result.add_row(name, value)
    return result


if __name__ == "__main__":
    sys.exit(main())
