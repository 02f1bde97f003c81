"""``make fuzz``: hunts in processes of their own, watched; a table of what was done at the end."""

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence
from typing import Any

from tests.fuzz.watch import Watched, run_all


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    if options.list:
        from tests.fuzz.readers import READERS

        for reader in READERS.values():
            print(f"{reader.name:18} {reader.reads}")
        return 0
    if options.hunt:
        return _hunt(options)
    if options.one:
        return _one(*options.one)
    if options.live:
        from tests.fuzz.live import run_live

        return run_live(seed=options.seed, seconds=60 * (options.minutes or 1))
    from tests.fuzz.readers import READERS

    names = options.reader or list(READERS)
    unknown = [name for name in names if name not in READERS]
    if unknown:
        print(f"no reader {unknown[0]!r}: expected one of {', '.join(READERS)}", file=sys.stderr)
        return 2
    print(f"seed {options.seed}, {options.inputs:,} inputs for each of {len(names)} readers", flush=True)
    os.makedirs(options.out, exist_ok=True)
    jobs = [
        Watched(
            reader=READERS[name], seed=options.seed, inputs=options.inputs, minutes=options.minutes, out=options.out
        )
        for name in names
    ]
    rows = run_all(jobs, options.jobs)
    print()
    print(table(rows))
    return 1 if any(row["findings"] for row in rows) else 0


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| reader | inputs | inputs/s | refused | lines | steps | findings |", "|---|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        rate = row["inputs"] / row["cpu_s"] if row["cpu_s"] else 0
        lines.append(
            f"| {row['reader']} | {row['inputs']:,} | {rate:,.0f} | {row['refused'] / max(1, row['inputs']):.0%} | "
            f"{row['lines']} | {row['steps']} | {len(row['findings'])} |"
        )
    return "\n".join(lines)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--reader", action="append", help="only this one (repeatable); --list names them")
    parser.add_argument("--list", action="store_true", help="the readers, and end")
    parser.add_argument("--inputs", type=int, default=200_000, help="inputs for each reader (200000)")
    parser.add_argument("--minutes", type=float, help="no reader takes longer than this")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="of all randomness")
    parser.add_argument("--jobs", type=int, default=max(1, min(2, os.cpu_count() or 1)), help="processes at a time")
    parser.add_argument("--out", default="fuzz-results", help="results and findings go here")
    parser.add_argument("--live", action="store_true", help="a real broker over sockets instead of the readers")
    parser.add_argument("--one", nargs=2, metavar=("READER", "FILE"), help="read one input, as it is")
    parser.add_argument("--hunt", nargs=3, metavar=("READER", "CHANNEL", "REPORT"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _hunt(options: argparse.Namespace) -> int:
    import faulthandler

    from tests.fuzz.channel import Channel
    from tests.fuzz.hunt import Hunt
    from tests.fuzz.readers import READERS

    faulthandler.enable()
    _end_with_parent()
    name, path, report = options.hunt
    reader = READERS[name]
    hunt = Hunt(reader, Channel(path, reader.max_size), seed=options.seed, report=report)
    hunt.go(inputs=options.inputs, seconds=None if options.minutes is None else 60 * options.minutes)
    return 0


def _end_with_parent() -> None:
    """An input that hangs this process must not outlive its watchdog."""
    import ctypes
    import signal

    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only
    if prctl is not None:
        prctl(1, signal.SIGKILL)
    if os.getppid() == 1:  # it has ended before this was said
        sys.exit(1)


def _one(name: str, path: str) -> int:
    from tests.fuzz.readers import READERS

    reader = READERS[name]
    with open(path, "rb") as f:
        data = f.read()
    try:
        print(f"read: {reader.make()(data)!r}")
    except reader.refusals as e:
        print(f"refused: {json.dumps(str(e))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
