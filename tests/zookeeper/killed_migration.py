"""A migration in a process of its own, which kill -9 ends when it is told for the N-th time what comes next.

python -m tests.zookeeper.killed_migration SERVER CHROOT FOLDER zookeeper|embedded N
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.migration import MigrationStep
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from tests.checks.two_stores import TwoStores


def main(servers: str, chroot: str, folder: str, to: str, number: str) -> None:
    settings = ZooKeeperSettings(servers=servers, chroot=chroot, connection_timeout_ms=15_000)
    left = int(number)

    def told(step: MigrationStep, done: int, of: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            print(step.name, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    TwoStores(Path(folder), lambda: KazooZooKeeper(settings)).migrate(to, told, f"run-{number}")


if __name__ == "__main__":
    main(*sys.argv[1:])
