"""The real ZooKeeper servers of a run: one on this machine, or one on each of three hosts. What befalls them, and what
their transaction logs say at the end.

Owns the servers and the account of which are down because a fault wants it. Like all faults, those here are generators
that yield for how many seconds to wait, and have undone everything when they end.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.java.zookeeper import connect_string
from holdfast.testing.zookeeper import ZooKeeperServer
from tests.chaos.schedule import Fault, Kind
from tests.zookeeper import transaction_log
from tests.zookeeper.reigns import check_reigns
from tests.zookeeper.transaction_log import Transaction

Steps = Iterator[float]
Found = Callable[[str, str], None]
CHROOT = "/chaos"
SERVES_S = 120
"""From the start of a server until it serves: with two others away it does not before they are back."""
START_S = 240
"""At the beginning, on a machine that may be busy with something else."""
LOOK_S = 0.25


class Ensemble:
    """``servers`` by number; one by itself is number 1. Not started yet."""

    def __init__(self, servers: Mapping[int, ZooKeeperServer]) -> None:
        self.servers = dict(servers)
        self.away: Counter[int] = Counter()
        """Servers that are down because a fault wants it."""
        self._frozen: set[int] = set()

    @property
    def connect(self) -> str:
        """``zookeeper.connect`` of the brokers."""
        return connect_string([(server.settings.host, server.port) for server in self.servers.values()], CHROOT)

    def start(self) -> None:
        """Returns when all serve."""
        for server in self.servers.values():
            server.begin()
        for server in self.servers.values():
            server.wait_serving(timeout_s=START_S)

    def kill_all(self) -> None:
        for server in self.servers.values():
            server.kill()

    def leader(self) -> int:
        """Who leads; the first one where nobody does."""
        leaders = [number for number in self.servers if self._mode(number) in ("leader", "standalone")]
        return (leaders or sorted(self.servers))[0]

    def _mode(self, number: int) -> str | None:
        return None if number in self._frozen else self.servers[number].mode

    @property
    def is_whole(self) -> bool:
        """Whether all serve."""
        return all(self._mode(number) is not None for number in self.servers)

    def ended(self) -> list[int]:
        """Servers that do not run although no fault wants that."""
        return [number for number, server in self.servers.items() if not self.away[number] and not server.runs]

    # -- faults ------------------------------------------------------------------------------------------------

    def steps(self, fault: Fault, found: Found) -> Steps:
        """Begins when it is first advanced."""
        leader = self.leader()
        followers = [number for number in self.servers if number != leader] or [leader]
        match fault.kind:
            case Kind.STORE_KILL:
                yield from self._kill([leader], fault.lasts_s, found)
            case Kind.STORE_KILL_FOLLOWER:
                yield from self._kill([followers[fault.choice % len(followers)]], fault.lasts_s, found)
            case Kind.STORE_DOWN:
                yield from self._kill(list(self.servers), fault.lasts_s, found)
            case Kind.STORE_STOP:
                self._freeze(leader)
                yield fault.lasts_s
                self._thaw(leader)
            case Kind.STORE_RESTART:
                one = sorted(self.servers)[fault.choice % len(self.servers)]
                self.away[one] += 1
                if self.servers[one].runs and one not in self._frozen:
                    self.servers[one].signal(signal.SIGTERM)
                yield fault.lasts_s / 4
                self.servers[one].kill()
                yield from self.back([one], found)
            case _:
                raise ValueError(f"{fault.kind} is not a fault of ZooKeeper servers")

    def _kill(self, numbers: list[int], down_s: float, found: Found) -> Steps:
        self.away.update(numbers)
        for number in numbers:
            self.servers[number].kill()
            self._frozen.discard(number)
        yield down_s
        yield from self.back(numbers, found)

    def _freeze(self, number: int) -> None:
        if self.servers[number].runs:
            self._frozen.add(number)
            self.servers[number].freeze()

    def _thaw(self, number: int) -> None:
        self._frozen.discard(number)
        if self.servers[number].runs:
            self.servers[number].thaw()

    def lost(self, number: int) -> None:
        """Its host is without power: its process has ended."""
        self.away[number] += 1
        self._frozen.discard(number)
        self.servers[number].kill()

    def back(self, numbers: list[int], found: Found) -> Steps:
        """Over when they serve; one that two faults took away comes back with the first."""
        for number in numbers:
            self.away[number] -= 1
            if not self.servers[number].runs:
                self.servers[number].begin()
        limit = time.monotonic() + SERVES_S
        for number in numbers:
            while self._mode(number) is None and self.servers[number].runs and number not in self._frozen:
                if time.monotonic() > limit:
                    found("stuck", f"ZooKeeper server {number} does not serve {SERVES_S} s after it was started")
                    return
                yield LOOK_S
            if self._mode(number) is not None:
                self.servers[number].settings.sync()

    # -- the end -----------------------------------------------------------------------------------------------

    def judge(self, found: Found) -> str:
        """See ``judged``."""
        return judged([server.folder for server in self.servers.values()], found)

    def save(self, directory: Path) -> None:
        """Their folders, for a person."""
        for number, server in self.servers.items():
            target = directory / f"zookeeper-{number}"
            if server.folder != target:
                copied(server.folder, target)


def judged(folders: list[Path], found: Found) -> str:
    """Whether one broker at a time was the controller, by what the servers of these folders have logged: what is wrong
    goes to ``found``. In words what was read."""
    try:
        transactions, alone = merged([transaction_log.read(folder / "data") for folder in folders])
        own = transaction_log.below(CHROOT, transactions)
        epochs = check_reigns(own)
    except AssertionError as error:
        found("controllers", str(error))
        return "the ensemble's transactions were not understood"
    if not epochs:
        found("controllers", f"no controller in {len(transactions)} transactions of ZooKeeper")
    refused = sum(tx.failed for tx in own)
    return (
        f"{len(own):,} transactions of the ensemble: {len(epochs)} controllers, one at a time; {refused} multis "
        f"refused; {alone} transactions left out that one server alone had logged"
    )


def merged(logs: list[list[Transaction]]) -> tuple[list[Transaction], int]:
    """What an ensemble has decided, in order, and how many transactions were left out.

    A transaction is decided when a majority has it in its log; every one that is decided is in the logs of a majority,
    as no log is ever removed here. What one server alone has was proposed by a leader that ended before anybody else
    heard of it, and may be left in its log when it gets a snapshot from the next leader.
    """
    by_id: dict[int, Transaction] = {}
    counts: Counter[int] = Counter()
    for log in logs:
        counts.update({tx.zxid for tx in log})
        for tx in log:
            same = by_id.setdefault(tx.zxid, tx)
            if same != tx and not _is_refused_twice(same, tx):
                raise AssertionError(f"two transactions have one number: {same} and {tx}")
    majority = len(logs) // 2 + 1
    decided = [by_id[zxid] for zxid in sorted(by_id) if counts[zxid] >= majority]
    assert all(a.zxid < b.zxid for a, b in itertools.pairwise(decided))
    return decided, len(by_id) - len(decided)


def _is_refused_twice(one: Transaction, other: Transaction) -> bool:
    """Whether both are the same multi that wrote nothing: a server may log other codes for its operations than the one
    that refused it."""
    return (
        one.failed
        and other.failed
        and (one.zxid, one.session, one.at_ms, one.kind) == (other.zxid, other.session, other.at_ms, other.kind)
    )


def copied(source: Path, target: Path) -> None:
    """A folder with what links lead to, holes of files left as holes; as far as it can be read."""
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if shutil.which("cp"):
        subprocess.run(("cp", "-rL", "--sparse=always", source, target), capture_output=True, check=False)
