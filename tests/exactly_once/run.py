"""A cluster, members that come and go, faults drawn from a seed, and the end at which all is counted."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for
from tests.exactly_once.clients import ROOT, commands
from tests.exactly_once.judge import OUTPUTS, Blow, longest_after, worst, wrongs
from tests.exactly_once.ledger import Feed, Watch
from tests.exactly_once.member import SESSION_MS, SOURCE

PARTITIONS = 6
MEMBERS = 3
WORST, LOOK_S = 15, 0.5
END_S = 90.0
"""After the last fault, until every input must be out."""
BACK_S = 120.0
"""For a killed broker to listen again. How long it is away is a gap, and judged; who gives up has none to judge."""


@dataclass(kw_only=True)
class Outcome:
    """What a run was."""

    inputs: int = 0
    wrong: list[str] = field(default_factory=list)
    gaps: dict[str, list[float]] = field(default_factory=dict)
    blows: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    """Members that ended by themselves: fenced, or their producer could not go on."""
    worst: list[str] = field(default_factory=list)
    """The longest gaps, and what they came after."""


class Members:
    """The processes; each that has ended is started again."""

    def __init__(self, bootstrap: str, log: Path, clients: Sequence[str]) -> None:
        self._bootstrap = bootstrap
        self._clients = clients
        self._commands = commands(clients, log.parent)
        self._log = log
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._down: dict[int, float] = {}
        self.ended = 0

    def keep(self) -> None:
        """Starts whoever is not there and whose time has come."""
        for number in range(MEMBERS):
            process = self._running.get(number)
            if process is not None and process.poll() is not None:
                del self._running[number]
                if process.returncode != -9:
                    self.ended += 1
            if number not in self._running and time.monotonic() >= self._down.get(number, 0):
                self._running[number] = self._start(number)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        client = self._clients[number % len(self._clients)]
        command = self._commands[client](self._bootstrap, f"member-{number}-{client}", PARTITIONS)
        with open(self._log, "ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self, number: int, down_s: float) -> None:
        process = self._running.get(number)
        if process is not None:
            process.kill()
            process.wait()
            self._down[number] = time.monotonic() + down_s

    def end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Run:
    """``isolation``: of the reader that judges; read_uncommitted must be found out."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        seed: int,
        seconds: float,
        rate: float,
        isolation: str,
        clients: Sequence[str],
        say: Callable[[str], None],
        every_s: tuple[float, float] = (5.0, 9.0),
    ) -> None:
        self._cluster, self._seconds, self._say, self._every_s = cluster, seconds, say, every_s
        self._random = random.Random(seed)
        self._isolation, self._rate, self._clients = isolation, rate, clients
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self.blows: list[Blow] = []
        self._looked_s = 0.0

    def go(self) -> Outcome:
        bootstrap = self._cluster.bootstrap
        _make_topics(bootstrap, min(3, self._cluster.brokers))
        self._cluster.wait_in_sync([SOURCE, *OUTPUTS])
        feed = Feed(bootstrap, PARTITIONS, self._rate)
        watch = Watch(bootstrap, PARTITIONS, isolation=self._isolation)
        self._members = Members(bootstrap, self._cluster.data_dir / "members.log", self._clients)
        feed.start()
        watch.start()
        given_up: list[str] = []
        try:
            self._strike_until(time.monotonic() + self._seconds, watch)
            feed.end()
            self._wait(feed, watch)
        except TimeoutError as e:  # what was seen by then is told all the same
            given_up.append(f"given up early: {e}")
        finally:
            self._members.end()
            watch.close()
        outcome = Outcome(inputs=len(feed.acked) + len(feed.somewhere), restarts=self._members.ended)
        outcome.wrong = wrongs(feed.acked, feed.maybe, watch.seen, feed.somewhere) + watch.errors + given_up
        outcome.gaps = longest_after(self.blows, watch.gaps, PARTITIONS)
        outcome.worst = worst(self.blows, watch.gaps, WORST)
        outcome.blows = Counter(blow.kind for blow in self.blows)
        return outcome

    def _strike_until(self, end_s: float, watch: Watch) -> None:
        quiet_s = min(5.0, self._seconds / 4)  # the group forms first, and the last fault is undone
        next_s = time.monotonic() + quiet_s
        said_s, told = time.monotonic(), 0
        while (now_s := time.monotonic()) < end_s:
            self._members.keep()
            self._undo_until(now_s)
            if now_s >= next_s and now_s < end_s - quiet_s and not self._undo and self._is_whole(now_s):
                self._strike(now_s)
                next_s = now_s + self._random.uniform(*self._every_s)
                if self.blows[-1].kind == "member":  # nobody has its partitions until its session is over
                    next_s += SESSION_MS / 1000
            if now_s - said_s > 60:
                said_s = now_s
                [longest] = worst(self.blows, watch.gaps[told:], 1) or ["none"]
                told = len(watch.gaps)
                out = sum(watch.seen[OUTPUTS[0]].values())
                self._say(f"{out:,} out, {len(self.blows)} faults; longest gap since: {longest}")
            time.sleep(0.02)
        self._undo_until(float("inf"))

    def _is_whole(self, now_s: float) -> bool:
        """Every broker is there and every replica in sync: a fault strikes no cluster that has one already, or its gap
        would be that of two. Looks twice a second."""
        if now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        try:
            view = self._cluster.describe()
        except (ConnectionError, TimeoutError):
            return False
        return bool(view.partitions) and not view.under_replicated and len(view.brokers) == self._cluster.brokers

    def _undo_until(self, now_s: float) -> None:
        for due in [each for each in self._undo if each[0] <= now_s]:
            self._undo.remove(due)
            due[1]()

    def _strike(self, now_s: float) -> None:
        kinds = ["member", "member", "broker", "broker"] + ["disk"] * (2 if self._cluster.disks else 0)
        kind = self._random.choice(kinds)
        lasts_s = self._random.uniform(0.5, 3.0)
        broker = self._random.randint(1, self._cluster.brokers)
        if kind == "member":
            number = self._random.randrange(MEMBERS)
            what = f"kill -9 of member {number}"
            self._members.kill(number, lasts_s)
        elif kind == "broker":
            what = f"kill -9 of broker {broker}"
            self._cluster.kill(broker)
            self._undo.append((now_s + lasts_s, self._revive))
        else:
            place, disk = self._random.choice(sorted(self._cluster.disks.items()))
            what = f"disk {place[1]} of broker {place[0]}"
            disk.fail()

            def mend() -> None:
                """A dead disk is mended while its broker is down."""
                self.blows.append(Blow(kind="disk", at_s=time.monotonic(), what=f"{what} is mended"))
                self._cluster.kill(place[0])
                disk.heal()
                self._revive()

            self._undo.append((now_s + 2 * lasts_s, mend))
        self.blows.append(Blow(kind=kind, at_s=now_s, what=what))

    def _revive(self) -> None:
        self._cluster.revive(timeout_s=BACK_S)

    def _wait(self, feed: Feed, watch: Watch) -> None:
        def all_out() -> bool:
            self._members.keep()
            return all(len(watch.seen[topic]) >= len(feed.acked) + len(feed.somewhere) for topic in OUTPUTS)

        with suppress(TimeoutError):  # the judge says what is missing
            wait_for(all_out, "every input in both outputs", timeout_s=END_S, interval_s=0.1)


def _make_topics(bootstrap: str, copies: int) -> None:
    config = {"min.insync.replicas": str(min(2, copies))}
    topics = [NewTopic(each, PARTITIONS, copies, config=config) for each in (SOURCE, *OUTPUTS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # gone, it answers nothing
    for made in admin.create_topics(topics).values():
        made.result(60)
