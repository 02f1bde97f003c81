"""Who is the controller: locks of the operating system, one in each copy of the metadata.

Owns the open lock files. A lock is on an open descriptor: taking it is no I/O, so it works whatever the disk does. A
candidate opens the lock files of all copies that it can and must have the locks of all of them at once. Who waits holds
none, and has only the file open that it waits for; who reigns has those of the good copies. So nobody keeps a file open
in a copy that was left out, and its disk can be unmounted. A file that was replaced under its name (a directory wiped
and filled again) is opened anew.

This decides who tries. That two who hold different locks never both commit is not owed to the locks: see notes.py and
decision 0009.
"""

import logging
import threading
from collections.abc import Sequence
from functools import partial

from holdfast.coordination.lanes import Lanes
from holdfast.model.errors import KafkaStorageError
from holdfast.storage.file_locks import LockFile
from holdfast.storage.files import FileSystem

log = logging.getLogger(__name__)

FILE: str = "lock"


class Election:
    """The locks of one broker. ``take`` waits; the rest does not."""

    def __init__(self, paths: Sequence[str], files: FileSystem, lanes: Lanes, patience_s: float) -> None:
        self._paths = tuple(paths)
        self._files = files
        self._lanes = lanes
        self._patience_s = patience_s
        self._locks: dict[str, LockFile] = {}
        self._mutex = threading.Lock()
        self.is_held = False

    def open_all(self) -> bool:
        """Open what is not open yet, or is not what the name stands for any more. A directory that does not answer
        keeps the file that was opened before. Whether all have answered."""
        return self._open(self._paths)

    def _open(self, paths: Sequence[str]) -> bool:
        """Whether all have answered."""

        def opened(path: str, old: LockFile | None) -> LockFile | None:
            if old is not None and self._files.inode(f"{path}/{FILE}") == old.inode:
                return old
            return self._files.open_lock(f"{path}/{FILE}")

        jobs = {path: partial(opened, path, self._locks.get(path)) for path in paths}
        answers = self._lanes.ask(jobs, patience_s=self._patience_s, limit_s=self._patience_s)
        for path, answer in answers.items():
            if answer.value is not None and answer.value is not self._locks.get(path):
                old = self._locks.get(path)
                if old is not None:
                    old.close()
                self._locks[path] = answer.value
        return len(answers) == len(jobs)

    def take(self) -> None:
        """Wait for all locks. OSError when all directories fail, KafkaStorageError when one of them is silent."""
        while True:
            answered = self.open_all()
            if not self._locks:
                what = f"no lock file can be opened in {', '.join(self._paths)}"
                raise OSError(what) if answered else KafkaStorageError(what)
            blocked = self._take_free()
            if blocked is None:
                before = dict(self._locks)
                self.open_all()
                if before == self._locks:
                    self.is_held = True
                    return
                self._release()
            else:
                for path in [path for path, lock in self._locks.items() if lock is not blocked]:
                    self.let_go(path)
                blocked.wait()  # and begin again, with this one

    def try_take(self) -> bool:
        """Take all locks if nobody has one. OSError as ``take``."""
        answered = self.open_all()
        if not self._locks:
            what = f"no lock file can be opened in {', '.join(self._paths)}"
            raise OSError(what) if answered else KafkaStorageError(what)
        if self._take_free() is not None:
            return False
        before = dict(self._locks)
        self.open_all()
        if before != self._locks:  # a directory was wiped and filled again meanwhile
            self._release()
            return False
        self.is_held = True
        return True

    def _take_free(self) -> LockFile | None:
        """Take all, or none and return one that another has."""
        for lock in self._in_order():
            if not lock.try_take():
                self._release()
                return lock
        return None

    def take_one(self, path: str) -> bool:
        """Of a copy that was filled while we reign: whether its lock is ours now."""
        self._open((path,))
        lock = self._locks.get(path)
        return lock is not None and lock.try_take()

    def let_go(self, path: str) -> None:
        """Of a copy that is left out: its lock is free at once, its file is closed without waiting for the disk."""
        lock = self._locks.pop(path, None)
        if lock is not None:
            lock.release()
            self._lanes.begin(("lock", path), lock.close)

    def let_go_of_all(self) -> None:
        """Of every copy: who does not wait for them has no file open there."""
        self.is_held = False
        for path in tuple(self._locks):
            self.let_go(path)

    def _in_order(self) -> list[LockFile]:
        return [self._locks[path] for path in self._paths if path in self._locks]

    def _release(self) -> None:
        for lock in self._in_order():
            lock.release()

    def release(self) -> None:
        """Give all back."""
        with self._mutex:
            self.is_held = False
            self._release()

    def close(self) -> None:
        """The files as well."""
        self.release()
        for lock in self._in_order():
            lock.close()
        self._locks.clear()
