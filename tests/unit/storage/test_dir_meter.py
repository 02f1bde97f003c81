"""What a log directory counts of what is written to it."""

import time

from holdfast.model.histogram import EVERY, EXACT
from holdfast.storage.dir_meter import DirMeter

NOW_MS = 1_700_000_000_000


def test_every_byte_is_counted_and_of_many_writes_some_are_timed_for_all(open_log, batch, log_dir):
    meter = log_dir.meter = DirMeter(time.monotonic_ns)
    log, sizes = open_log(), []

    def append(times: int) -> None:
        for _ in range(times):
            data = batch(b"x")
            sizes.append(len(data))
            log.append_as_leader(data, 0, NOW_MS)

    append(EXACT)
    assert meter.append_times.now().observations == EXACT, "each of the first ones"
    append(3 * EVERY + 5)
    assert meter.append_times.now().observations == EXACT + 3 * EVERY
    assert meter.appended_bytes == sum(sizes)
    meter.periods += 1
    append(EVERY)  # the next that is timed sees that ten seconds are over
    assert meter.append_times.now().observations == len(sizes)
    append(1)
    assert meter.append_times.now().observations == len(sizes)
