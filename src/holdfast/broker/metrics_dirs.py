"""Prometheus' families of what each log directory did: no other system of this kind tells it by disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.metrics_names import kafka_name
from holdfast.model.histogram import NOTHING, Observed

if TYPE_CHECKING:
    from holdfast.broker.metrics import DirReading

_FLUSHES: Final = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"


def dir_count_families(dirs: Iterable[DirReading]) -> Iterator[Any]:
    """Gauges of every directory; counters and histograms where somebody counts."""
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
    from prometheus_client.metrics_core import HistogramMetricFamily as Histogram
    from prometheus_client.metrics_core import Metric

    every = list(dirs)
    for name, value, meaning in (
        ("bytes", [d.log_bytes for d in every], "Bytes of the logs in it, copies on their way too."),
        ("queue_depth", [d.waiting for d in every], "Pieces of work that its thread has not done yet."),
        ("cordoned", [int(d.cordoned) for d in every], "1 where it takes no new replicas."),
    ):
        gauge = Gauge(f"holdfast_log_directory_{name}", meaning, labels=["logDirectory"])
        for each, number in zip(every, value, strict=True):
            gauge.add_metric([each.path], number)
        yield gauge
    counted = [(d.path, d.counts) for d in every if d.counts is not None]
    if not counted:
        return
    for name, numbers, meaning in (
        ("appended_bytes", [c.appended_bytes for _, c in counted], "Bytes of batches written to it."),
        ("errors", [c.errors for _, c in counted], "Errors that the system gave for its files."),
    ):
        metric = Metric(f"holdfast_log_directory_{name}", meaning, "counter")
        for (path, _), number in zip(counted, numbers, strict=True):
            metric.add_sample(f"{metric.name}_total", {"logDirectory": path}, number)
        yield metric
    for name, times, meaning in (
        ("append", [c.appends for _, c in counted], "How long it took to write batches of a partition to it."),
        ("flush", [c.flushes for _, c in counted], "How long it took to bring a log of it to the device."),
    ):
        seconds = Histogram(f"holdfast_log_directory_{name}_seconds", meaning, labels=["logDirectory"])
        for (path, _), observed in zip(counted, times, strict=True):
            seconds.add_metric([path], buckets(observed), observed.sum_us / 1e6)
        yield seconds
    flushes = NOTHING
    for _, counts in counted:
        flushes = flushes.plus(counts.flushes)
    family = kafka_name(_FLUSHES)
    summary = Metric(family, f"{_FLUSHES}. Of all directories, since the start.", "summary")
    summary.add_sample(f"{family}_count", {}, flushes.observations)
    summary.add_sample(f"{family}_sum", {}, flushes.sum_us / 1000)
    yield summary


def buckets(observed: Observed) -> list[tuple[str, float]]:
    """As prometheus_client takes them."""
    return [("+Inf" if end == float("inf") else repr(end), count) for end, count in observed.below()]
