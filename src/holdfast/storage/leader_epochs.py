"""Which leader wrote which offsets of one log: epoch -> start offset (KIP-101, KIP-279).

Owns the entries and the file ``leader-epoch-checkpoint``; decides nothing about truncation, it only answers
where an epoch ends. Invariant: epochs and start offsets grow strictly from entry to entry.

The file is replaced as a whole on every change but not synced: what it says of the batches past the recovery
point is in the batches too, and recovery puts it back from them. ``flush`` syncs it before the recovery point
moves.

Who copies a log that has been cleaned finds gaps, and cannot know where in a gap an epoch began. It begins, then, where
the batch before the gap ends: a follower with something else in the gap, which was never committed, would keep that if
it were told a later end. What it cuts off too much it fetches again; a follower that is in sync is past the gap, which
was committed when it was made. (Kafka takes the first batch that is left.)
"""

import logging
import os.path
from array import array
from bisect import bisect_right

from holdfast.model.types import LeaderEpoch, Offset
from holdfast.storage.checkpoints import decode_lines, decode_number
from holdfast.storage.files import FileSystem

log = logging.getLogger(__name__)

FILE_NAME = "leader-epoch-checkpoint"
_MAX_EPOCH = 2**31 - 1


class LeaderEpochs:
    """The epochs of one log. Changed on the dir's thread; the loop asks.

    ``_entries`` is replaced as a whole on a change, so that a reader on the loop sees one state.
    """

    __slots__ = ("_dirty", "_entries", "_files", "_path", "is_ahead")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._path = path
        self._entries: tuple[array[int], array[int]] = (array("q"), array("q"))
        self._dirty = False  # the file is not known to be on the device
        self.is_ahead = False
        """The file does not say yet what is known here: nothing has been written in the last epoch, or the file could
        not be written."""

    @classmethod
    def load(cls, files: FileSystem, path: str) -> "LeaderEpochs":
        """From the file; empty when it is missing or not a checkpoint (recovery refills it)."""
        epochs = cls(files, path)
        try:
            data = files.read_bytes(path)
            epochs._dirty = True  # a process that was killed may have written it
            rows = decode_lines(data, fields=2)
            for epoch, start in rows:
                epochs._put(decode_number(epoch, _MAX_EPOCH), decode_number(start))
        except FileNotFoundError:
            pass
        except ValueError as e:
            log.warning("%s is not a leader epoch checkpoint, it is made again from the log: %s", path, e)
            epochs._entries = (array("q"), array("q"))
        return epochs

    def moved(self, path: str) -> None:
        """The log's directory is ``path`` now."""
        self._path = f"{path}/{FILE_NAME}"

    @property
    def latest(self) -> LeaderEpoch | None:
        epochs = self._entries[0]
        return epochs[-1] if epochs else None

    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        epochs, starts = self._entries
        return list(zip(epochs, starts, strict=True))

    def assign(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """From ``start`` on the log is of ``epoch``, and the file says so. True if that was news."""
        news = self.assign_in_memory(epoch, start)
        self.is_ahead = self.is_ahead or news
        self.write_ahead()
        return news

    def begin(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """A leader of ``epoch`` begins at ``start``. The file is written with the first batch: until then a crash
        forgets only that somebody was elected, and many leaders that begin at once cost no file each."""
        begun = self.assign_in_memory(epoch, start)
        self.is_ahead = self.is_ahead or begun
        return begun

    def assign_in_memory(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """As ``assign``, while recovery reads a log: the file is written at its end, once."""
        latest = self.latest
        if epoch < 0 or (latest is not None and epoch <= latest):  # a batch without an epoch begins none
            return False
        self._put(epoch, start)
        return True

    def _put(self, epoch: LeaderEpoch, start: Offset) -> None:
        epochs, starts = self._entries
        # An epoch that wrote nothing before the next one began says nothing: Kafka drops it as well.
        keep = len(starts)
        while keep and (starts[keep - 1] >= start or epochs[keep - 1] >= epoch):
            keep -= 1
        self._entries = (epochs[:keep] + array("q", (epoch,)), starts[:keep] + array("q", (start,)))

    def truncate_from_end(self, end: Offset) -> bool:
        """The log ends at ``end`` now: forget epochs that start there or later."""
        changed = self.forget_from(end)
        self.is_ahead = self.is_ahead or changed
        self.write_ahead()
        return changed

    def forget_from(self, end: Offset) -> bool:
        """As ``truncate_from_end``, while recovery reads a log."""
        epochs, starts = self._entries
        keep = len(starts)
        while keep and starts[keep - 1] >= end:
            keep -= 1
        if keep == len(starts):
            return False
        self._entries = (epochs[:keep], starts[:keep])
        self.is_ahead = True
        return True

    def truncate_from_start(self, start: Offset) -> bool:
        """The log starts at ``start`` now: the epoch of that offset starts there, earlier ones are gone."""
        changed = self.forget_before(start)
        self.is_ahead = self.is_ahead or changed
        self.write_ahead()
        return changed

    def forget_before(self, start: Offset) -> bool:
        """As ``truncate_from_start``, while recovery reads a log."""
        epochs, starts = self._entries
        drop = bisect_right(starts, start) - 1
        if drop < 0 or (starts[drop] == start and drop == 0):
            return False
        starts = starts[drop:]
        starts[0] = start
        self._entries = (epochs[drop:], starts)
        return True

    def clear(self) -> None:
        """Nothing is left of the log."""
        if self._entries[0]:
            self._entries = (array("q"), array("q"))
            self.is_ahead = True
        self.write_ahead()

    def end_offset(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset] | None:
        """The largest known epoch not above ``epoch`` and where it ends; None if that is not known.

        The log's end for the latest epoch, the start of the following one otherwise. An ``epoch`` before the
        first known one answers itself and the start of the first, so that a follower cuts there.
        """
        epochs, starts = self._entries
        if not epochs:
            return None
        if epoch == epochs[-1]:
            return epoch, log_end
        i = bisect_right(epochs, epoch)
        if i == len(epochs):
            return None  # an epoch that we have not heard of
        return (epochs[i - 1] if i else epoch), starts[i]

    def epoch_at(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch that wrote ``offset``."""
        epochs, starts = self._entries
        i = bisect_right(starts, offset)
        return epochs[i - 1] if i else None

    def encode(self) -> bytes:
        """The file's text."""
        rows = self.entries()
        return f"0\n{len(rows)}\n{''.join(f'{epoch} {start}{chr(10)}' for epoch, start in rows)}".encode()

    def _write(self) -> None:
        self._files.write_atomic(self._path, self.encode(), durable=False)
        self._dirty = True
        self.is_ahead = False

    def rewrite(self) -> None:
        """Write the file as it should be now."""
        self._write()

    def write_ahead(self) -> None:
        """The file says what is known here."""
        if self.is_ahead:
            self._write()

    def flush(self) -> None:
        """The file is on the device when this returns."""
        self.write_ahead()
        if self._dirty:
            handle = self._files.open(self._path)
            handle.fsync()
            handle.close()
            self._files.fsync_dir(os.path.dirname(self._path))
            self._dirty = False
