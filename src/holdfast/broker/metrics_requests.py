"""Prometheus' lines of requests: how many, how long by stage, and with which errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.metrics_dirs import histogram_lines
from holdfast.broker.metrics_lines import head, labels, line
from holdfast.broker.metrics_names import kafka_name
from holdfast.broker.request_times import STAGES, ApiReading, both

if TYPE_CHECKING:
    from holdfast.broker.metrics import RequestsReading

_REQUESTS: Final = "kafka.network:type=RequestMetrics,name="
_SECONDS: Final = "holdfast_request_seconds"
_TIMES: Final = (
    ("TotalTimeMs", "From its last byte to the last byte of its answer."),
    ("RequestQueueTimeMs", "Waiting for the thread of its disk."),
    ("LocalTimeMs", "Worked on here, by the loop and by a disk."),
    ("RemoteTimeMs", "Waiting for others: for in-sync replicas, or for something to fetch."),
    ("ResponseQueueTimeMs", "Waiting for the answers to requests before it."),
    ("ResponseSendTimeMs", "Being sent."),
)
"""Kafka's name of each of STAGES, meaning."""
_QUANTILE: Final = {0.5: "0.50", 0.75: "0.75", 0.95: "0.95", 0.98: "0.98", 0.99: "0.99", 0.999: "0.999"}
_FETCHES: Final = ("FetchConsumer", "FetchFollower")


def request_lines(reading: RequestsReading) -> Iterator[str]:
    """Real buckets in a name of ours; quantiles of the last minute, counts and errors in Kafka's."""
    from kio.schema.errors import ErrorCode

    name = "RequestsPerSec"
    family = kafka_name(_REQUESTS + name.removesuffix("PerSec")) + "_total"
    yield head(family, "counter", f"{_REQUESTS}{name},request=API,version=N. Answered.")
    for (api, version), count in reading.counts.items():
        yield line(family, labels({"request": api, "version": str(version)}), count)
    name = "ErrorsPerSec"
    family = kafka_name(_REQUESTS + name.removesuffix("PerSec")) + "_total"
    yield head(family, "counter", f"{_REQUESTS}{name},request=API,error=NAME. Requests or partitions of them.")
    for (api, code), count in sorted(reading.errors.items()):
        yield line(family, labels({"request": api, "error": _word(ErrorCode, code)}), count)
    yield head(
        _SECONDS,
        "histogram",
        "How long requests took, by stage: total, request_queue, local, remote, response_queue, response_send. Those "
        "that took no time are left out.",
    )
    for each in reading.apis:
        for stage, observed in zip(STAGES, each.ever, strict=True):
            if observed.sum_us:  # a stage that this API does not have is twenty lines of nothing
                yield from histogram_lines(_SECONDS, {"request": each.name, "stage": stage}, observed)
    yield from _summaries(reading.apis)


def _summaries(apis: tuple[ApiReading, ...]) -> Iterator[str]:
    fetches = [each for each in apis if each.name in _FETCHES]
    if len(fetches) == 2:
        one, other = fetches
        apis = (*apis, ApiReading("Fetch", both(one.ever, other.ever), both(one.before, other.before)))
    for at, (name, meaning) in enumerate(_TIMES):
        family = kafka_name(_REQUESTS + name)
        yield head(family, "summary", f"{_REQUESTS}{name},request=API. {meaning}")
        for each in apis:
            if not (count := each.ever[at].observations):
                continue
            for quantile, us in each.ever[at].since(each.before[at]).quantiles():
                yield line(family, labels({"request": each.name, "quantile": _QUANTILE[quantile]}), us / 1000)
            marked = labels({"request": each.name})
            yield line(f"{family}_count", marked, count)
            yield line(f"{family}_sum", marked, each.ever[at].sum_us / 1000)


def _word(codes: Any, code: int) -> str:
    try:
        return str(codes(code).name).upper()
    except ValueError:
        return str(code)
