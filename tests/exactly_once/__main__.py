"""``make exactly-once``: read-process-write by members with transactions, under kills and disk faults, and a judge.

Each input must be in both outputs exactly once, as a read_committed reader of its own sees them. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.system import KAFKA

from holdfast.testing import Cluster
from holdfast.testing.disks import EioDisk
from tests.exactly_once.clients import CLIENTS
from tests.exactly_once.judge import quantile
from tests.exactly_once.run import Outcome, Run

DISK_BYTES = 4 << 30
"""Sparse. An hour of it fills a few hundred MiB, and a full disk is not what is shown here."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=float, default=300, help="inputs a second")
    parser.add_argument("--disks", action="store_true", help="log directories that fail as well; root")
    parser.add_argument("--kafka", action="store_true", help="brokers of Apache Kafka from Maven")
    parser.add_argument(
        "--clients", default="confluent", help=f"of the three members, in turn: {','.join(CLIENTS)} or some of them"
    )
    parser.add_argument("--read-uncommitted", action="store_true", help="the judge reads so, and must find it wrong")
    args = parser.parse_args()
    clients = args.clients.split(",")
    if unknown := set(clients) - set(CLIENTS):
        parser.error(f"--clients {args.clients}: there is no {min(unknown)}, expected some of {', '.join(CLIENTS)}")
    root = Path(tempfile.mkdtemp(prefix="holdfast-exactly-once-"))
    print(f"seed {args.seed}, {args.minutes:g} minutes", flush=True)
    if args.kafka:
        cluster = KAFKA.cluster(root / "cluster", 3)
    elif args.disks:
        disk = partial(EioDisk, size=DISK_BYTES)
        cluster = Cluster(brokers=3, log_dirs=2, disks={(broker, 1): disk for broker in (1, 2, 3)})
    else:
        cluster = Cluster(brokers=3, log_dirs=2, data_dir=root / "cluster")
    isolation = "read_uncommitted" if args.read_uncommitted else "read_committed"
    with cluster:
        run = Run(
            cluster, seed=args.seed, seconds=args.minutes * 60, rate=args.rate, isolation=isolation,
            clients=clients,
            say=lambda line: print(line, flush=True),
        )  # fmt: skip
        outcome = run.go()
    print("\n".join(_lines(outcome)))
    if not outcome.wrong:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if outcome.wrong else 0


def _lines(outcome: Outcome) -> list[str]:
    found = [f"{outcome.inputs:,} inputs, faults {dict(outcome.blows)}, {outcome.restarts} members ended by themselves"]
    for kind, values in sorted(outcome.gaps.items()):
        parts = ", ".join(f"{name} {quantile(values, part):.2f}" for name, part in (("p50", 0.5), ("p99", 0.99)))
        found.append(f"gap of an output's partition after a fault of kind {kind}, s: {parts}, most {max(values):.2f}")
    found += [f"gap of {each}" for each in outcome.worst]
    found += outcome.wrong[:20]
    found.append(f"{len(outcome.wrong)} wrong" if outcome.wrong else "each input exactly once")
    return found


if __name__ == "__main__":
    sys.exit(main())
