"""What the background does with retired files and deleted logs, at once."""

from holdfast.storage.log import Log
from holdfast.storage.removal import Removals


def purge(log: Log, now_ms: int) -> None:
    """Remove the retired files whose time is up, in the log's background lane. Refused when the dir is dead then."""
    Removals().add(log.dir, log.take_retired(now_ms))
    with log.guard():
        pass


def remove(log: Log) -> None:
    """Remove the directory of a log that is none any more."""
    log.release()
    Removals().add(log.dir, [log.path])
