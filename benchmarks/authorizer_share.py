"""``python -m benchmarks.authorizer_share``: what a Produce request pays for the question whether it may.

Instructions, by valgrind's callgrind, so what else runs on the machine does not matter. First of a decision: two
processes ask an authorizer that has 10,000 entries for the right of Produce, one ten thousand times more often. Then of
a Produce request of one record, sent one at a time to a broker that is counted as a whole; what it does by itself
meanwhile is taken off. Exit code 1 when the decision is more than 2 % of the request.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.metrics_instructions import IDLE_S, KINDS, SUMMARY, Side

ENTRIES, OFTEN = 10_000, 10_000
LIMIT = 0.02
ASKED = """
import sys
from types import SimpleNamespace
from holdfast.broker.access import Access
from holdfast.broker.acl_view import TYPE_FULL, AclView
from holdfast.broker.session import Session
from holdfast.metadata.codec_acls import encode_acl_news
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.authorizer import Authorizer
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

def acl(number):
    pattern = PatternKind.PREFIXED if number % 3 == 0 else PatternKind.LITERAL
    host = "*" if number % 2 else f"10.0.{number % 200}.1"
    entry = AclEntry(f"User:u{number % 500}", host, Operation.WRITE, Permission.ALLOW)
    return AclBinding(ResourcePattern(ResourceKind.TOPIC, f"topic-{number}", pattern), entry)

view = AclView(Authorizer.closed(frozenset(), False))
view.update(SimpleNamespace(type=TYPE_FULL, acls=encode_acl_news([acl(number) for number in range(int(sys.argv[1]))])))
access = Access(view, view)
connection = SimpleNamespace(session=Session(principal=Principal.user("u7")), peer=("10.0.0.1", 9))
for number in range(int(sys.argv[2])):
    assert access.judge(connection, 0).may(Operation.WRITE, ResourceKind.TOPIC, "topic-7")
"""


def of_decision(folder: Path) -> float:
    """Instructions of one, with what the request makes for it."""
    counted, environment = [], {**os.environ, "PYTHONHASHSEED": "0"}  # both make the entries in the same places
    for asked in (1, 1 + OFTEN):
        out = folder / f"asked-{asked}"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c", ASKED]
        subprocess.run([*command, str(ENTRIES), str(asked)], check=True, capture_output=True, env=environment)
        found = SUMMARY.search(out.read_text())
        assert found is not None, "callgrind tells a sum"
        counted.append(int(found[1]))
    return (counted[1] - counted[0]) / OFTEN


def of_request(folder: Path, requests: int) -> float:
    """Instructions of one Produce request of a broker without an authorizer."""
    kind = KINDS["single"]
    with Side(folder / "broker", metrics=True) as side:
        side.ask(kind, requests)  # warm
        idle, idle_s = side.counted(lambda: time.sleep(IDLE_S))
        busy, busy_s = side.counted(lambda: side.ask(kind, requests))
    return (busy - idle * busy_s / idle_s) / requests


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.authorizer_share", description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=1000, help="Produce requests that are counted (1000)")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("benchmarks.authorizer_share: valgrind is not on the PATH: apt-get install valgrind", file=sys.stderr)
        return 2
    print(machine.headline(), flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        decision = of_decision(Path(folder))
        request = of_request(Path(folder), options.requests)
    share = decision / request
    print(
        f"a decision by {ENTRIES:,} entries: {decision:,.0f} instructions; a Produce request: {request:,.0f}; "
        f"{share:.2%} (at most {LIMIT:.0%}){'' if share <= LIMIT else '  MISSED'}"
    )
    return 0 if share <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
