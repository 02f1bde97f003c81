"""What a broker counts while it works, all of it integers: made only where somebody may read it (metrics.port).

Owns nothing but the list. Each number has one writer, the loop or the thread of a directory, and no lock; who reads
them is metrics.py, when it is asked.
"""

from __future__ import annotations

import time

from holdfast.broker.request_times import RequestTimes
from holdfast.replication.traffic import Traffic


class Meters:
    """One per broker."""

    __slots__ = ("requests", "traffic")

    def __init__(self) -> None:
        self.traffic = Traffic(time.monotonic_ns)  # the clock of the loop, too: what it tells is compared
        self.requests = RequestTimes()
