"""What errors of the metadata directories amount to: is another claim worth it, or have they all failed (H-23).

Nothing can be decided without any directory, so a process that finds all of them bad ends. One error ends a reign, and
is a question to the next claim, which opens, reads, writes and syncs the log: if that fails as well, they are bad. What
is not the disk's fault (no room, no descriptors, no memory) is tried on for ever, and so is a directory that does not
answer.
"""

import errno
from typing import Final

from holdfast.metadata.store import Fatal, Judgement, Retry
from holdfast.model.errors import HoldfastError, KafkaStorageError

_NOT_THE_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class DiskJudge:
    """Errors of claims and of looks after the copies since the last claim that worked."""

    __slots__ = ("_errors", "_last")

    def __init__(self) -> None:
        self._errors = 0
        self._last: HoldfastError | None = None

    def worked(self) -> None:
        """A claim: the directories can be read and written."""
        self._errors, self._last = 0, None

    def failed(self, error: HoldfastError) -> None:
        """One more; counted when it is the disk's."""
        cause = error.__cause__
        if isinstance(error, KafkaStorageError) and isinstance(cause, OSError) and cause.errno not in _NOT_THE_DISK:
            self._errors += 1
            self._last = error

    @property
    def judgement(self) -> Judgement:
        if self._errors > 1:
            return Fatal(reason=f"Shutdown broker because all metadata log dirs have failed: {self._last}")
        return Retry()
