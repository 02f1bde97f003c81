"""Which log each replica of a broker has, and the copies that moves make of some.

``LogTable`` owns the logs that are served or offline, how many each directory counts for placement, and the high
watermarks that logs begin with when they are opened. ``FutureLogs`` owns the copies: those that are being made, those
that earlier lives have left, and who waits for a log that is about to be exchanged for its copy. On the event loop; no
file is touched here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from holdfast.model.types import Offset, TopicPartition
from holdfast.storage.dir_load import FoundFuture
from holdfast.storage.future_log import FutureLog
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir


class LogTable:
    """See the module's docstring. A log on a directory that went offline stays until another takes its place."""

    def __init__(self, dirs: Iterable[LogDir]) -> None:
        self._logs: dict[TopicPartition, Log] = {}
        self._counts: dict[str, int] = {d.path: 0 for d in dirs}
        """Path -> logs, with those that are being made there."""
        self._marks: dict[TopicPartition, Offset] = {}

    def get(self, tp: TopicPartition) -> Log | None:
        """The log of a replica, also on a directory that is offline."""
        return self._logs.get(tp)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._logs

    def __iter__(self) -> Iterator[Log]:
        """As they are when it begins: directories' threads look too."""
        return iter(list(self._logs.values()))

    def of_dir(self, directory: LogDir) -> list[Log]:
        """The logs of one directory."""
        return [each for each in self if each.dir is directory]

    # -- what changes it -----------------------------------------------------------------------------------

    def loaded(self, directory: LogDir, count: int) -> None:
        """So many logs were found in a directory, which is in use from now on."""
        self._counts[directory.path] = count

    def add(self, log: Log) -> None:
        """It was found in a directory, or made: it is counted there already (``loaded``, ``reserve``)."""
        self._logs[log.topic_partition] = log

    def exchange(self, new: Log) -> Log:
        """Another log is that of its replica from now on; the old one."""
        old = self._logs[new.topic_partition]
        self._logs[new.topic_partition] = new
        self._counts[old.dir.path] -= 1
        self._counts[new.dir.path] += 1
        return old

    def forget(self, tp: TopicPartition) -> None:
        """The log is not here any more."""
        gone = self._logs.pop(tp, None)
        if gone is not None:
            self._counts[gone.dir.path] -= 1

    def forget_dir(self, directory: LogDir) -> None:
        """The directory is no more of this broker."""
        self._counts.pop(directory.path, None)

    # -- how many ------------------------------------------------------------------------------------------

    def count(self, directory: LogDir) -> int:
        """Logs of a directory, with those that are being made there."""
        return self._counts[directory.path]

    def reserve(self, directory: LogDir) -> None:
        """A log is being made there."""
        self._counts[directory.path] += 1

    def give_back(self, directory: LogDir) -> None:
        """It was not, or it comes too late. Nothing where the directory is gone."""
        if directory.path in self._counts:
            self._counts[directory.path] -= 1

    # -- high watermarks -----------------------------------------------------------------------------------

    def mark_of(self, tp: TopicPartition) -> Offset | None:
        """The high watermark that a log which is opened now begins with; None when nobody knows one."""
        return self._marks.get(tp)

    def note_marks(self, marks: Mapping[TopicPartition, Offset]) -> None:
        """What a checkpoint said, or a replica that is no longer served."""
        self._marks.update(marks)

    def forget_mark(self, tp: TopicPartition) -> None:
        """It is of a log that is gone."""
        self._marks.pop(tp, None)


class FutureLogs:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._made: dict[TopicPartition, FutureLog] = {}
        self._left: list[FoundFuture] = []
        self._switching: dict[TopicPartition, list[Callable[[], None]]] = {}

    # -- that are being made -------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> FutureLog | None:
        """The copy that is being made of a replica's log."""
        return self._made.get(tp)

    def __iter__(self) -> Iterator[FutureLog]:
        """As they are when it begins: directories' threads look too."""
        return iter(list(self._made.values()))

    def add(self, copy: FutureLog) -> None:
        """A move makes it."""
        self._made[copy.topic_partition] = copy

    def forget(self, tp: TopicPartition) -> None:
        """It is the log now, or is given up."""
        self._made.pop(tp, None)

    # -- that earlier lives have left ------------------------------------------------------------------------

    def left(self) -> list[FoundFuture]:
        """Those that nobody has taken up or removed yet."""
        return list(self._left)

    def found(self, directory: LogDir, found: Iterable[FoundFuture]) -> None:
        """All that a directory had when it was loaded, in place of what was known of that path."""
        self._left = [f for f in self._left if f.directory.path != directory.path] + list(found)

    def take(self, tp: TopicPartition) -> list[FoundFuture]:
        """Those of one replica: the caller uses or removes them."""
        mine = [f for f in self._left if f.topic_partition == tp]
        self._left = [f for f in self._left if f.topic_partition != tp]
        return mine

    def settled(self, found: FoundFuture) -> None:
        """It is taken up, or removed."""
        self._left = [f for f in self._left if f is not found]

    def forget_dir(self, directory: LogDir) -> None:
        """The directory is no more of this broker."""
        self._left = [f for f in self._left if f.directory is not directory]

    # -- that take their log's place -------------------------------------------------------------------------

    def is_switching(self, tp: TopicPartition) -> bool:
        """Whether its log is about to be another one."""
        return tp in self._switching

    def begin_switch(self, tp: TopicPartition) -> None:
        """Its log is about to be another one: who wants it waits."""
        self._switching.setdefault(tp, [])

    def after_switch(self, tp: TopicPartition, wanting: Callable[[], None]) -> None:
        """Called when it is decided which log it has."""
        self._switching[tp].append(wanting)

    def end_switch(self, tp: TopicPartition) -> None:
        """It is decided."""
        for wanting in self._switching.pop(tp, ()):
            wanting()
