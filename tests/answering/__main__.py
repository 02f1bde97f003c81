"""``python -m tests.answering``: brokers that answer for a cluster of any size, until SIGTERM or the end of input.

Each line of input is answered by a line of JSON: how often each API was asked for so far.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.answering.description import generated
from tests.answering.server import AnsweringCluster


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.answering", description=__doc__.split("\n")[0])
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--topics", type=int, default=9_000)
    parser.add_argument("--partitions", type=int, default=39_000)
    parser.add_argument("--groups", type=int, default=2_200)
    parser.add_argument("--copies", type=int, default=3, help="replicas of each partition")
    parser.add_argument("--grows", type=float, default=1.0, help="records a second in each log")
    options = parser.parse_args()
    with AnsweringCluster(generated(**vars(options))) as cluster:
        print(f"ready: bootstrap.servers={cluster.bootstrap}", flush=True)
        for _ in sys.stdin:
            print(json.dumps(cluster.asked), flush=True)


if __name__ == "__main__":
    main()
