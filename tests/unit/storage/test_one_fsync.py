"""A failed fsync is never tried again: the kernel has marked the pages as clean, so the second one would succeed and
the data be gone (H-28). The directory is bad instead."""

import pytest

from holdfast.model.errors import KafkaStorageError
from holdfast.storage import checkpoints

NOW_MS = 1_700_000_000_000


def syncs(files) -> int:
    return sum(name in ("fsync", "fsync_dir", "sync_all") for name, _ in files.calls)


@pytest.mark.parametrize("operation", ["fsync", "fsync_dir"])
def test_H_28_a_failed_fsync_is_the_end_of_its_directory(open_log, batch, files, operation):
    log, other = open_log(), open_log(topic="other")
    for each in (log, other):
        each.append_as_leader(batch(b"x"), 0, NOW_MS)
    files.fail(operation)
    files.fail_probes()
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert (log.dir.is_online, log.recovery_point) == (False, 0)
    done = syncs(files)
    files.rules.clear()  # the next one would succeed, and mean nothing
    for work in (
        log.flush,
        other.flush,
        log.flush_rolled,
        log.dir.probe,
        lambda: log.append_as_leader(batch(b"x"), 0, NOW_MS),
        lambda: log.close(clean=True),
    ):
        with pytest.raises(KafkaStorageError):
            work()
    assert syncs(files) == done
    assert log.recovery_point == other.recovery_point == 0
    assert not files.exists(f"{log.dir.path}/{checkpoints.CLEAN_SHUTDOWN}")
