"""``make lake-chaos``: KILLS kills (-9) in runs that go on after each; ends with 1 if a table is not its ledger."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.system import HOLDFAST, KAFKA
from rich.console import Console
from rich.progress import Progress

from tests.lake_chaos.cells import Cell, cells, plans
from tests.lake_chaos.run import Run, folder_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument(
        "--kafka", action="store_true", help="brokers of Apache Kafka from Maven, and only producers with transactions"
    )
    parser.add_argument("--dir", type=Path, help="where failed runs are kept (default: a temporary directory)")
    args = parser.parse_args()
    console = Console(stderr=True)
    root = args.dir or Path(tempfile.mkdtemp(prefix="holdfast-lake-chaos-"))
    began, failed, done = time.monotonic(), [], Counter[Cell]()
    console.print(f"seed {args.seed}: {args.kills} kills, in {root}", soft_wrap=True)
    with (
        (KAFKA if args.kafka else HOLDFAST).cluster(root / "cluster", args.brokers) as cluster,
        Progress(console=console) as bar,
    ):
        task = bar.add_task("kills", total=args.kills)
        for plan in plans(args.seed, args.kills, transactions=args.kafka):
            folder = folder_of(root, plan)
            try:
                outcome = Run(plan, cluster, folder).run()
                wrong = outcome.wrong
                done.update(outcome.struck)
            except Exception as error:
                wrong = (f"{type(error).__name__}: {error}",)
            bar.advance(task, len(plan.blows))
            if wrong:
                failed.append(plan.seed)
                console.print(
                    f"[red]seed {plan.seed}[/red] {plan}: {'; '.join(wrong)}; kept in {folder}", soft_wrap=True
                )
            else:
                shutil.rmtree(folder, ignore_errors=True)
    unseen = [cell for cell in cells() if not done[cell]]
    print(f"{done.total()} kills of {args.kills} planned, {len(done)} of {len(cells())} cells, seed {args.seed}")
    print(f"{len(failed)} runs failed {failed or ''}, {time.monotonic() - began:.0f} s")
    if unseen:
        print("not struck: " + "; ".join(" ".join(cell) for cell in unseen))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
