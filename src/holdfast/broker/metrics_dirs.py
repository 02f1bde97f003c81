"""Prometheus' lines of what each log directory did: no other system of this kind tells it by disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from holdfast.broker.metrics_lines import gauge, head, labels, line
from holdfast.broker.metrics_names import kafka_name
from holdfast.model.histogram import NOTHING, Observed

if TYPE_CHECKING:
    from holdfast.broker.metrics import DirReading

_BOUNDS: Final = tuple("+Inf" if end == float("inf") else repr(end) for end, _ in NOTHING.below())
_FLUSHES: Final = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"


def dir_count_lines(dirs: Iterable[DirReading]) -> Iterator[str]:
    """Gauges of every directory; counters and histograms where somebody counts."""
    every = [(labels({"logDirectory": d.path}), d) for d in dirs]
    for name, value, meaning in (
        ("bytes", attrgetter("log_bytes"), "Bytes of the logs in it, copies on their way too."),
        ("queue_depth", attrgetter("waiting"), "Pieces of work that its thread has not done yet."),
        ("cordoned", attrgetter("cordoned"), "1 where it takes no new replicas."),
    ):
        yield from gauge(f"holdfast_log_directory_{name}", meaning, [(marked, value(d)) for marked, d in every])
    counted = [(marked, d.path, d.counts) for marked, d in every if d.counts is not None]
    if not counted:
        return
    for name, number, meaning in (
        ("appended_bytes", attrgetter("appended_bytes"), "Bytes of batches written to it."),
        ("errors", attrgetter("errors"), "Errors that the system gave for its files."),
    ):
        family = f"holdfast_log_directory_{name}_total"
        yield head(family, "counter", meaning)
        for marked, _, counts in counted:
            yield line(family, marked, number(counts))
    for name, times, meaning in (
        ("append", attrgetter("appends"), "How long it took to write batches of a partition to it."),
        ("flush", attrgetter("flushes"), "How long it took to bring a log of it to the device."),
    ):
        family = f"holdfast_log_directory_{name}_seconds"
        yield head(family, "histogram", meaning)
        for _, path, counts in counted:
            yield from histogram_lines(family, {"logDirectory": path}, times(counts))
    flushes = NOTHING
    for *_, counts in counted:
        flushes = flushes.plus(counts.flushes)
    family = kafka_name(_FLUSHES)
    yield head(family, "summary", f"{_FLUSHES}. Of all directories, since the start.")
    yield line(f"{family}_count", "", flushes.observations)
    yield line(f"{family}_sum", "", flushes.sum_us / 1000)


def histogram_lines(family: str, of: Mapping[str, str], observed: Observed) -> Iterator[str]:
    """One histogram's samples. No label of it comes before ``le`` in the alphabet."""
    marked, name, count = labels(of), f"{family}_bucket", 0
    rest = marked[1:]
    for bound, (_, count) in zip(_BOUNDS, observed.below(), strict=True):
        yield line(name, f'{{le="{bound}",{rest}', count)
    yield line(f"{family}_count", marked, count)
    yield line(f"{family}_sum", marked, observed.sum_us / 1e6)
