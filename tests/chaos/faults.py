"""What each kind of fault does to brokers and network, step by step.

A fault is a generator: it does something, yields for how many seconds to wait, does the next thing, and has undone all
of it when it ends. Faults that overlap are several generators; nothing here blocks, except for the end of a process
that was killed. Decides nothing about when.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.chaos.brokers import Brokers
from tests.chaos.ground import Ground
from tests.chaos.schedule import Fault, Kind

Steps = Iterator[float]
STOP_LIMIT_S = 40
"""For a controlled shutdown: longer than any fault that may overlap with it."""
LOOK_S = 0.05


class Faults:
    """Turns a scheduled fault into steps. ``found`` is told of what must not be."""

    def __init__(self, brokers: Brokers, ground: Ground, found: Callable[[str, str], None]) -> None:
        self._brokers, self._ground = brokers, ground
        self._found = found
        self._controller = brokers.ids[0]
        self.kills = 0
        """Processes that were killed."""
        self.counts: Counter[Kind] = Counter()
        self.away: Counter[int] = Counter()
        """Brokers that are down, or on their way, because a fault wants it."""

    def steps(self, fault: Fault) -> Steps:
        """Begins when it is first advanced."""
        self.counts[fault.kind] += 1
        if fault.kind.of_store:
            assert self._ground.ensemble is not None
            yield from self._ground.ensemble.steps(fault, self._found)
            return
        if fault.kind.of_host:
            yield from self._ground.steps(fault, self._brokers, self.away, self._found)
            return
        self._controller = self._brokers.controller() or self._controller
        others = [broker for broker in self._brokers.ids if broker != self._controller]
        one = self._controller if fault.kind.of_controller else others[fault.choice % len(others)]
        match fault.kind:
            case Kind.KILL | Kind.KILL_CONTROLLER:
                yield from self._kill([one], fault.lasts_s)
            case Kind.KILL_TWO:
                spared = self._any(fault)
                yield from self._kill([broker for broker in self._brokers.ids if broker != spared], fault.lasts_s)
            case Kind.KILL_ALL:
                yield from self._kill(list(self._brokers.ids), fault.lasts_s)
            case Kind.KILL_AGAIN:
                victim = self._any(fault)
                yield from self._kill([victim], fault.lasts_s)
                yield fault.again_s
                yield from self._kill([victim], 0.1)
            case Kind.STOP | Kind.STOP_CONTROLLER:
                self._brokers.freeze(one)
                yield fault.lasts_s
                self._brokers.thaw(one)
            case Kind.RESTART | Kind.RESTART_CONTROLLER:
                yield from self._restart(one, fault.lasts_s)
            case Kind.CUT_PAIR:
                spared = self._any(fault)
                left, right = (broker for broker in self._brokers.ids if broker != spared)
                yield from self._cut([(left, right), (right, left)], fault.lasts_s)
            case Kind.CUT_OFF | Kind.CUT_OFF_CONTROLLER:
                yield from self._cut([(one, None), (None, one)], fault.lasts_s)
            case Kind.DEAF:
                yield from self._cut([(None, self._any(fault))], fault.lasts_s)
            case Kind.MUTE:
                yield from self._cut([(self._any(fault), None)], fault.lasts_s)

    def _any(self, fault: Fault) -> int:
        return self._brokers.ids[fault.choice % len(self._brokers.ids)]

    def _kill(self, victims: list[int], down_s: float) -> Steps:
        self.away.update(victims)
        self.kills += sum([self._brokers.kill(broker) for broker in victims])
        yield down_s
        self._back(victims)

    def _restart(self, broker: int, down_s: float) -> Steps:
        self.away[broker] += 1
        self._brokers.terminate(broker)
        limit = time.monotonic() + STOP_LIMIT_S
        while self._brokers.runs(broker) and time.monotonic() < limit:
            yield LOOK_S
        if self._brokers.runs(broker):
            self._found("stuck", f"broker {broker} did not stop within {STOP_LIMIT_S} s after SIGTERM")
            self._brokers.kill(broker)
        elif self._brokers.exit_code(broker) not in (0, -9):
            code = self._brokers.exit_code(broker)
            self._found("died", f"broker {broker} ended with exit code {code} when it was asked to stop")
        yield down_s / 4
        self._back([broker])

    def _cut(self, ways: list[tuple[int | None, int | None]], lasts_s: float) -> Steps:
        for sender, receiver in ways:
            self._brokers.network.cut(sender, receiver)
        yield lasts_s
        for sender, receiver in ways:
            self._brokers.network.heal(sender, receiver)

    def _back(self, brokers: list[int]) -> None:
        """A broker that two faults took away comes back with the first."""
        for broker in brokers:
            self.away[broker] -= 1
            self._brokers.start(broker)
