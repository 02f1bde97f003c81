"""Log directories that fail under a running broker, by the schedule, and how they are repaired.

Owns what of it the fault model allows and when, what is wrong with which disk now, and the repair: in place while the
broker runs, or with a restart. A directory whose broker has noticed that it is bad keeps what was flushed, and of the
rest any part. As for a loss of power: one broker at a time, when all replicas of its partitions are in sync and nobody
else has lost anything since.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model.errors import HoldfastError
from tests.simulation.faults import Fault, Kind
from tests.simulation.trouble import DiskTrouble, Wrong

if TYPE_CHECKING:
    from tests.simulation.cluster import Simulation
    from tests.simulation.node import Node

WRONG = {
    Kind.DISK_CALL: Wrong.CALL,
    Kind.DISK_FILE: Wrong.FILE,
    Kind.DISK_DEAD: Wrong.DEAD,
    Kind.DISK_READ_ONLY: Wrong.READ_ONLY,
    Kind.DISK_TORN: Wrong.TORN,
    Kind.DISK_FLIP: Wrong.FLIPPED,
    Kind.DISK_FULL: None,
}
NOTICED_S = 2.0
"""After this long the notes in the other directories do not name a bad one any more (storage/incarnation.py)."""
RETRY_S = 1.0
FOR_GOOD = 0.3
"""Share of bad directories that are repaired only when everything is."""


class DiskFaults:
    """See the module's docstring; of one run."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._wrong: dict[int, DiskTrouble | None] = {}
        """Broker -> what is wrong with one of its disks; None: it is full."""

    @property
    def allowed(self) -> bool:
        """Nothing is wrong with any disk now."""
        return not self._wrong

    def befall(self, fault: Fault, node: Node, patience: int = 10) -> None:
        """One fault of the schedule, as soon as the fault model allows it; if that is not soon, nothing."""
        run, index = self._run, fault.other % 2
        if run.healing:
            return
        rng = random.Random(repr(fault))
        if not run.power or self._wrong or not node.alive or not run.watch.may_lose(node.broker_id):
            if run.power and patience:
                run.network.later(1.0, self.befall, fault, node, patience - 1)
            return
        wrong = WRONG[fault.kind]
        if wrong is None:
            self._wrong[node.broker_id] = None
            disk = node.disks[index]
            before, disk.capacity = disk.capacity, disk.used + rng.randrange(20_000)
            run.network.later(fault.for_s, self._room, node, index, before)
            return
        trouble = DiskTrouble(
            wrong, random.Random(rng.getrandbits(64)), rng.choice((0, rng.randrange(5), rng.randrange(40))),
            lambda what, first: self._met(node, index, what, first),
        )  # fmt: skip
        self._wrong[node.broker_id] = node.disks[index].trouble = trouble
        run.note(f"broker {node.broker_id}, d{index}: {trouble}")
        if wrong is Wrong.FLIPPED and rng.random() < 0.5:  # it is met by what the next start reads
            for one in run.nodes if rng.random() < 0.5 else (node,):
                run.down(one, 0.2)
        if rng.random() > FOR_GOOD:
            again = rng.choice((self._online, self._online, self._restart))
            run.network.later(fault.for_s + rng.uniform(0, 5), self._mend, node, index, trouble, again)

    def _met(self, node: Node, index: int, what: str, first: bool) -> None:
        if first:
            self._run.note(f"broker {node.broker_id}, d{index}: {what}")
        trouble = self._wrong.get(node.broker_id)
        if trouble is None or trouble.wrong is Wrong.FLIPPED:
            return
        of_a_log = what.split()[1].count("/") > 3
        if trouble.wrong in (Wrong.DEAD, Wrong.READ_ONLY) or not of_a_log:
            node.dirs.told(index, what)

    def _room(self, node: Node, index: int, before: int) -> None:
        node.disks[index].capacity = before
        self._run.note(f"broker {node.broker_id}, d{index}: there is room again")
        self._finish(node, index, self._online)

    def _mend(self, node: Node, index: int, trouble: DiskTrouble, again: Callable[[Node, int], None]) -> None:
        """The disk works again. ``again``: how the broker comes to know it."""
        if node.disks[index].trouble is not trouble:
            self._wrong.pop(node.broker_id, None)
            return
        node.disks[index].trouble = None
        self._run.note(f"broker {node.broker_id}, d{index}: repaired")
        self._finish(node, index, again)

    def _finish(self, node: Node, index: int, again: Callable[[Node, int], None]) -> None:
        self._wrong.pop(node.broker_id, None)
        dirs, rng = node.dirs, self._run.rng("disk")
        if not dirs.is_offline(index):
            return
        if not dirs.can_heal:
            again = self._restart
        doubtful = dirs.lost_after_s(index, NOTICED_S)
        lost = doubtful and rng.random() < 0.6
        if lost:
            self._run.watch.lost(node, dirs.replicas(index))
        if again == self._restart:
            node.kill()
        if lost:
            node.disks[index].mount_again(rng)
        elif doubtful:  # it was not mounted again: what could not be flushed is in memory for a while
            self._run.watch.lost(node, dirs.replicas(index))
            self._run.network.later(rng.choice((0.0, 0.01, 5.0)), node.disks[index].evict)
        again(node, index)

    def _restart(self, node: Node, index: int) -> None:
        self._run.down(node, 0.3)

    def _online(self, node: Node, index: int) -> None:
        """As a person would, by the broker's own means."""
        if not node.dirs.can_heal or node.process is None:
            self._restart(node, index)
        elif node.alive:
            node.process.spawn(self._heal(node, index))

    async def _heal(self, node: Node, index: int) -> None:
        try:
            await node.dirs.heal(index)
            self._run.note(f"broker {node.broker_id}, d{index}: online again")
        except HoldfastError as e:
            self._run.note(f"broker {node.broker_id}, d{index}: not online: {e}")
            self._run.network.later(RETRY_S, self._again, node, index)

    def _again(self, node: Node, index: int) -> None:
        if node.alive and node.disks[index].trouble is None and node.dirs.is_offline(index):
            self._online(node, index)

    def mend_all(self) -> None:
        """The end of a run: every disk works, and every broker shall know it."""
        for node in self._run.nodes:
            node.end_hangs()
            for index, disk in enumerate(node.disks):
                disk.capacity = 1 << 40
                if disk.trouble is not None:
                    disk.trouble = None
                    self._run.note(f"broker {node.broker_id}, d{index}: repaired")
                    self._finish(node, index, self._online)
                elif node.dirs.is_offline(index):
                    self._online(node, index)
        self._wrong.clear()
