"""What befalls the directories of the metadata: dead, hung, wiped, for all brokers or for one.

Owns when a directory answers whom, and the lanes (coordination/lanes.py) that brokers ask them by. Never two at a time,
and the next one only when both copies are good again: what two faults take nobody has promised.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.coordination.lanes import Answer, run_job
from tests.simulation.device import CrashNow, ProcessGone, WouldBlock
from tests.simulation.faults import Fault, Kind

if TYPE_CHECKING:
    from tests.simulation.cluster import Simulation
    from tests.simulation.node import SimProcess

T = TypeVar("T")
PATHS = ("/c/store", "/c/store-2")
BACK_S = 6.0


class _Thaw:
    """What a call waits for that no directory answers: looks like a lock (WouldBlock)."""

    def __init__(self) -> None:
        self.path = "the metadata directories"
        self.when_free: list[Callable[[], None]] = []


class _Late:
    """Work that a directory takes up when it answers again."""

    def __init__(self, process: SimProcess, job: Callable[[], Any]) -> None:
        self.process, self.job = process, job
        self.answer: Answer[Any] | None = None

    def run(self) -> None:
        if self.process.alive:
            with contextlib.suppress(ProcessGone, CrashNow):
                self.answer = run_job(self.job)


class StoreFaults:
    """See the module's docstring."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._bad: dict[str, tuple[str, int | None]] = {}
        """Path -> what it does, to which broker (None: to all)."""
        self._late: list[_Late] = []
        self._thaw = _Thaw()

    def state(self, broker_id: int, path: str) -> str | None:
        what, whom = self._bad.get(path, (None, None))
        return what if whom in (None, broker_id) else None

    def lanes(self, broker_id: int, process: SimProcess) -> SimLanes:
        return SimLanes(self, broker_id, process)

    def later(self, late: _Late) -> _Late:
        self._late.append(late)
        return late

    @property
    def thaw(self) -> _Thaw:
        return self._thaw

    def befall(self, fault: Fault) -> None:
        """Not while something is wrong with either. A controller may not have noticed yet that one was wiped."""
        reign = self._sim._reign()
        if self._bad or reign is None or not all(copy.is_good for copy in reign._store.copies()):
            return
        if not all(map(self._is_whole, (0, 1))):
            return
        path = PATHS[fault.other % 2]
        whom = fault.broker + 1 if fault.for_s % 0.002 < 0.001 else None
        if fault.kind is Kind.STORE_WIPE:
            self._wipe(fault.other % 2)
        elif fault.kind is Kind.STORE_SWAP:
            self._be(path, "dead", None)
            self._sim.network.later(0.5, self._sim._new_topic, None)
            self._sim.network.later(fault.for_s + 3.0, self._swap, PATHS[1 - fault.other % 2])
        else:
            self._be(path, "hang" if fault.kind is Kind.STORE_HANG else "dead", whom)
            self._sim.network.later(fault.for_s, self.end)

    def _be(self, path: str, what: str, whom: int | None) -> None:
        self._sim.note(f"{path}: {what} for {'all' if whom is None else f'broker {whom}'}")
        self._bad = {path: (what, whom)}

    def _swap(self, other: str) -> None:
        """The one that was left out is back, the complete one is not there, and all brokers start."""
        if self._sim.healing or not self._bad:
            return
        self._be(other, "dead", None)
        for node in self._sim.nodes:
            self._sim.down(node, 0.2)
        self._sim.network.later(BACK_S, self.end)

    def _is_whole(self, which: int) -> bool:
        return self._sim.store_disks[which].mount("an onlooker").exists(f"{PATHS[which]}/copy.id")

    def _wipe(self, which: int) -> None:
        disk = self._sim.store_disks[which]
        files = disk.mount("an onlooker")
        for name in files.listdir(PATHS[which]):
            path = f"{PATHS[which]}/{name}"
            files.rmtree(path) if files.is_dir(path) else files.unlink(path)
        disk.sync()
        self._sim.note(f"{PATHS[which]}: wiped")

    def end(self) -> None:
        """All answer again; what hung lands."""
        if self._bad:
            self._sim.note(f"{', '.join(self._bad)}: well")
        self._bad = {}
        late, self._late = self._late, []
        for each in late:
            each.run()
        thaw, self._thaw = self._thaw, _Thaw()
        for call in thaw.when_free:
            call()


class SimLanes:
    """The lanes of one process."""

    def __init__(self, faults: StoreFaults, broker_id: int, process: SimProcess) -> None:
        self._faults, self._broker_id, self._process = faults, broker_id, process

    def _state(self, key: Hashable) -> str | None:
        return self._faults.state(self._broker_id, key if isinstance(key, str) else key[1])  # type: ignore[index]

    def ask(
        self, jobs: Mapping[Any, Callable[[], T]], *, patience_s: float, limit_s: float | None = None
    ) -> dict[Any, Answer[T]]:
        states = {key: self._state(key) for key in jobs}
        if jobs and limit_s is None and all(state == "hang" for state in states.values()):
            raise WouldBlock(self._faults.thaw)  # type: ignore[arg-type]
        found: dict[Any, Answer[T]] = {}
        for key, job in jobs.items():
            if states[key] == "hang":
                self._faults.later(_Late(self._process, job))
            elif states[key] == "dead":
                found[key] = Answer(error=OSError(errno.EIO, "Input/output error", str(key)))
            else:
                found[key] = run_job(job)
        return found

    def begin(self, key: Hashable, job: Callable[[], Any]) -> Any:
        late = _Late(self._process, job)
        state = self._state(key)
        if state == "hang":
            return self._faults.later(late)
        late.answer = (
            run_job(job) if state is None else Answer(error=OSError(errno.EIO, "Input/output error", str(key)))
        )
        return late

    def close(self) -> None:
        """Nobody waits."""
