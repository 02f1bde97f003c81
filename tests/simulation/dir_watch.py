"""The checkers for log directories, of one broker:

* a healthy directory is never taken offline: this process has met an error of it. One error of one log is not one of
  its directory (K18-03), nor is a full disk;
* an offline directory is not touched again after its failure was told, by any call on any file (H-19); until somebody
  has it brought back, and but for the note that it has to let go of (storage/incarnation.py);
* what can be on no bad directory is made on a good one (H-20);
* no replica is made on a directory that was cordoned when the work was given to its thread (K1066-04).

They look at the state that the broker shows and at what its disks are asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.model.types import TopicPartition
from holdfast.storage.dir_state import DirState
from holdfast.storage.incarnation import FILE_NAME

if TYPE_CHECKING:
    from tests.simulation.node import Node


_REPLICA = re.compile(r"/n\d+/d\d/[^/.]+-\d+")
"""Where a replica lies; copies of moves have another ending, and were begun before."""


class DirWatch:
    """Of one Node, over all its incarnations. ``fail`` takes the words of a violation."""

    def __init__(self, node: Node, fail: Callable[[str], None]) -> None:
        self._node = node
        self._fail = fail
        self.was_offline = False
        """Some directory, at some time."""
        self.came_late = False
        """Some directory, at some time, was taken up after a start without it: its replicas count as damaged."""
        self._told: dict[int, str] = {}
        self._offline: dict[int, float] = {}
        """Index -> virtual time at which the present process took it offline."""
        self._bad_at_start: set[int] = set()
        self._lost: set[int] = set()
        self._healing: Counter[int] = Counter()
        """By how many it is being brought back: all but the first are refused at once."""
        self._untouchable: set[int] = set()
        self._cordoned: dict[int, float] = {}
        """Index -> virtual time since which it is cordoned."""

    def started(self) -> None:
        """A new process: it knows nothing of what was told to the one before."""
        self._told.clear()
        self._offline.clear()
        self._healing.clear()
        self._bad_at_start = set()
        self._untouchable.clear()
        self._cordoned.clear()
        for index, disk in enumerate(self._node.disks):
            disk.onlooker = partial(self._seen, index)

    def told(self, index: int, what: str) -> None:
        """The process met an error of this disk."""
        self._told[index] = what

    # -- after every step --------------------------------------------------------------------------------------

    def step(self) -> None:
        """Whether a directory went offline, or came back."""
        logs = getattr(self._node.broker, "logs", None)
        if logs is None:
            return
        for log_dir in logs.dirs:
            offline = log_dir.failure is not None
            index = int(log_dir.path[-1])
            if offline != (index in self._offline):
                self._changed(index, log_dir, offline)
            if not log_dir.cordoned:
                self._cordoned.pop(index, None)
            else:
                self._cordoned.setdefault(index, self._node.loop.time())

    def _changed(self, index: int, log_dir: Any, offline: bool) -> None:
        node = self._node
        if not offline:
            del self._offline[index]
            self.came_late = self.came_late or index in self._bad_at_start
            self._told.pop(index, None)
            self._untouchable.discard(index)
            return
        self._offline[index] = node.loop.time()
        self.was_offline = True
        if log_dir.state is DirState.SILENT:  # the broker has started without it
            self._bad_at_start.add(index)
            return
        if not hasattr(node.broker, "membership"):
            self._bad_at_start.add(index)
        if index not in self._told:
            self._fail(f"broker {node.broker_id}: {log_dir.path} is healthy and was taken offline: {log_dir.failure}")
        self._untouchable.add(index)

    def _seen(self, index: int, operation: str, path: str) -> None:
        """Before every operation on the disk."""
        if index in self._untouchable:
            self._touched(index, operation, path)
        elif operation == "mkdir" and index in self._cordoned and _REPLICA.fullmatch(path):
            since_s, asked_s = self._cordoned[index], self._node.asked_s
            is_new = not self._node.disks[index].holds(path)  # loading a directory that is back asks for each by mkdir
            if is_new and since_s < asked_s:
                self._fail(f"broker {self._node.broker_id}: {path} is made on a directory that is cordoned")

    def _touched(self, index: int, operation: str, path: str) -> None:
        if self._healing[index] or (operation == "unlink" and path.endswith(FILE_NAME)):
            return
        self._fail(f"broker {self._node.broker_id}: {path} is on an offline directory: {operation}")

    # -- repair ------------------------------------------------------------------------------------------------

    @property
    def can_heal(self) -> bool:
        """Whether a directory can come back while the broker runs."""
        return self._node.alive and hasattr(self._node.broker, "disks")

    async def heal(self, index: int) -> None:
        """Have the running broker bring it back."""
        self._healing[index] += 1
        try:
            broker: Any = self._node.broker
            await broker.disks.online(f"/n{self._node.broker_id}/d{index}")
        finally:
            self._healing[index] -= 1

    def replicas(self, index: int) -> list[Any]:
        """The logs that the present process has, or had, on it."""
        logs: Any = getattr(self._node.broker, "logs", None)
        path = f"/n{self._node.broker_id}/d{index}"
        return [] if logs is None else [log for log in logs.logs() if log.dir.path == path]

    def is_offline(self, index: int) -> bool:
        """The present process does not use it."""
        return self._node.alive and index in self._offline

    def lost_after_s(self, index: int, seconds: float) -> bool:
        """The present process, which has used it, has found it bad this long ago: what was not flushed may be gone."""
        since = self._offline.get(index)
        return (
            self._node.alive
            and since is not None
            and index not in self._bad_at_start
            and self._node.loop.time() - since > seconds
        )

    def excuses(self, tp: TopicPartition, is_new: bool) -> bool:
        """A replica is not served, and a bad directory is the reason: it is there, or may be there for all that the
        broker can know (K112-61). ``is_new``: its partition was made when the broker was registered as it is now."""
        node = self._node
        hung = node.hung()
        if not (self._offline or hung) or not node.alive or not hasattr(node.broker, "logs"):
            return False  # one that starts has yet to read them
        assert node.broker is not None
        log = node.broker.logs.get(tp)
        if log is not None:
            return log.dir.failure is not None or int(log.dir.path[-1]) in hung
        if len(hung.union(self._offline)) == len(node.disks):
            return True
        # It is refused while any directory is bad, also one that has failed since the start (K112-08).
        return not is_new
