"""``python -m tests.chaos``, or ``make chaos``: a real cluster under load and under faults, and a ledger.

Exit code 0 if nothing was wrong, 1 if something was (what it left is named), 2 if it could not start.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "src"))  # the sources beside these tests, whatever is installed

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: E402

from holdfast.testing import DiskFaultUnavailable, HostsUnavailable  # noqa: E402
from tests.chaos import cards, network, report, schedule  # noqa: E402
from tests.chaos.disks import LocalDisks  # noqa: E402
from tests.chaos.ground import EMBEDDED, STORES, ZOOKEEPER, Ground, LocalGround  # noqa: E402
from tests.chaos.launch import PLANTED  # noqa: E402
from tests.chaos.recorder import Recorder  # noqa: E402
from tests.chaos.run import Plan, Run  # noqa: E402


def main() -> int:
    """See the module's docstring."""
    options = _options()
    if options.hosts and options.store == EMBEDDED:
        print("chaos: --hosts --store embedded: brokers on several hosts have no directory in common", file=sys.stderr)
        return 2
    if options.hosts and options.secure:
        print("chaos: --hosts --secure: expected one of them", file=sys.stderr)
        return 2
    pace = _pace(options)
    seconds = options.minutes * 60
    rounds = schedule.schedule(options.seed, seconds, pace)
    plan = cards.shown(
        options.seed, rounds, (1, 2, 3),
        with_disks=options.disks, with_metadata=options.store == EMBEDDED, on_hosts=options.hosts,
    )  # fmt: skip
    if options.plan:
        print("\n".join(plan))
        return 0
    if options.planted:
        os.environ[PLANTED] = options.planted
    why_not = None
    if not options.hosts:
        why_not = network.enter_namespace() if options.network != "proxy" else "asked for by --network proxy"
    if why_not is not None and options.network == "namespaces":
        print(f"chaos: --network namespaces: not possible here: {why_not}", file=sys.stderr)
        return 2
    directory = Path(options.dir or ROOT / "chaos-results" / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{options.seed}")
    directory = directory.absolute()
    directory.mkdir(parents=True)
    (directory / "schedule.txt").write_text("".join(f"{line}\n" for line in plan))
    logging.basicConfig(
        filename=directory / "clients.log", level=logging.WARNING, format="[%(asctime)s] %(name)s: %(message)s"
    )
    try:
        ground = _ground(options, directory, why_not)
    except (DiskFaultUnavailable, HostsUnavailable) as error:
        print(f"chaos: {'--hosts' if options.hosts else '--disks'}: {error}", file=sys.stderr)
        return 2
    saves = True
    try:
        outcome = _run(options, pace, seconds, directory, ground, why_not)
        saves = not outcome.ok or options.keep
    finally:
        try:
            if saves:
                ground.save()
        finally:
            ground.close()
    summary = directory.parent / f"{directory.name}.json"
    summary.write_text(json.dumps(report.as_json(outcome), indent=1))
    Console(width=None if sys.stdout.isatty() else 120).print(report.table(outcome))
    if outcome.ok and not options.keep:
        shutil.rmtree(directory)
    print("\n".join(report.ending(outcome, str(directory))), flush=True)
    return 0 if outcome.ok else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Real brokers, real faults, a ledger.")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None, help="draws the same faults again; a fresh one by default")
    parser.add_argument("--rate", type=float, default=200, help="records a second, of all producers together")
    parser.add_argument("--dir", help="must not exist; chaos-results/TIME-seed-N by default")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a run without violations too")
    parser.add_argument("--short", action="store_true", help="faults follow each other quickly; short session timeout")
    parser.add_argument("--network", choices=("auto", "namespaces", "proxy"), default="auto")
    parser.add_argument("--planted", help="a bug of tests/simulation/planted.py that the brokers shall have")
    parser.add_argument("--disks", action="store_true", help="log directories on real disks that fail as well; root")
    parser.add_argument("--store", choices=STORES, default=None, help="of the metadata; zookeeper: a real server")
    parser.add_argument("--hosts", action="store_true", help="three hosts with a ZooKeeper server on each; root")
    parser.add_argument("--secure", action="store_true", help="TLS, logins of five seconds and rights everywhere")
    parser.add_argument("--plan", action="store_true", help="print the schedule and end")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = time.time_ns() % 1_000_000
    if options.store is None:
        options.store = ZOOKEEPER if options.hosts else EMBEDDED
    return options


def _pace(options: argparse.Namespace) -> schedule.Pace:
    """With the cards that there are for the store and the hosts."""
    pace = schedule.SHORT if options.short else schedule.FULL
    if options.hosts:
        return pace.with_deck(schedule.HOSTS_DECK)
    return pace.with_deck(schedule.STORE_DECK) if options.store == ZOOKEEPER else pace


def _ground(options: argparse.Namespace, directory: Path, why_not: str | None) -> Ground:
    """HostsUnavailable, DiskFaultUnavailable."""
    tick_ms = 1000 if options.short else 2000
    if options.hosts:
        from tests.chaos.on_hosts import HostsGround

        return HostsGround(directory, options.seed, tick_ms=tick_ms, disks=options.disks)
    means: network.Network
    if why_not is None:
        means = network.Namespaces([1, 2, 3])
    else:
        from tests.chaos.proxies import Proxies

        means = Proxies([1, 2, 3])
    disks = None
    if options.disks:
        disks = LocalDisks(directory, (1, 2, 3), options.seed, metadata=options.store == EMBEDDED)
    return LocalGround(directory, means, store=options.store, tick_ms=tick_ms, disks=disks, secure=options.secure)


def _run(
    options: argparse.Namespace,
    pace: schedule.Pace,
    seconds: float,
    directory: Path,
    ground: Ground,
    why_not: str | None,
) -> report.Outcome:
    plan = Plan(
        seed=options.seed,
        seconds=seconds,
        pace=pace,
        rate=options.rate,
        command=_command(options),
        commit=_commit(),
        calm_s=0.5 if options.short else 3,
    )
    console = Console(highlight=False)
    bar = Progress(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    task = bar.add_task("starting", total=seconds)
    next_line_s = 60.0

    def say(line: str) -> None:
        bar.console.print(line, soft_wrap=True)

    def tick(gone: float, recorder: Recorder) -> None:
        nonlocal next_line_s
        numbers = recorder.numbers()
        line = f"acked {numbers['acked']:,}, read {numbers['reads']:,}, violations {numbers['violations']}"
        bar.update(task, completed=min(gone, seconds), description=line)
        if not console.is_terminal and gone >= next_line_s:
            next_line_s += 60
            say(f"{gone:7.1f} s  {line}")
            recorder.flush()

    say(f"seed {options.seed}; commit {plan.commit}; cluster and ledger in {directory}")
    say(f"network: {ground.network.description}" + ("" if why_not is None else f" (no namespaces: {why_not})"))
    for line in [] if ground.disks is None else ground.disks.names():
        say(line)
    with bar:
        return Run(plan, directory, ground, say=say, tick=tick).go()


def _command(options: argparse.Namespace) -> str:
    """That does the same again."""
    more = ["--short"] if options.short else []
    more += [f"--planted {options.planted}"] if options.planted else []
    more += [f"--network {options.network}"] if options.network != "auto" else []
    arguments = f' ARGS="{" ".join(more)}"' if more else ""
    where = f"{' HOSTS=1' if options.hosts else ''}{' STORE=zookeeper' if options.store == ZOOKEEPER else ''}"
    disks = f"{' DISKS=1' if options.disks else ''}{' SECURE=1' if options.secure else ''}"
    return f"make chaos MINUTES={options.minutes:g} SEED={options.seed}{where}{disks}{arguments}"


def _commit() -> str:
    """Of the sources; with a + if they were changed."""
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
