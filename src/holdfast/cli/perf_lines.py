"""What a measurement adds up to, and its lines: those of Kafka's producer-perf-test and consumer-perf-test. Pure.

Owns the histogram of latencies: integers, 0.2 % exact, of one size however long it is filled.
"""

import datetime
from array import array
from collections.abc import Sequence
from typing import Any, Final

MB: Final = 1024 * 1024
_BITS: Final = 10
_HALF: Final = 1 << (_BITS - 1)
_STEPS: Final = 32
"""Microseconds are kept up to 2**41: 25 days."""
PERCENTILES: Final = ((50.0, "p50"), (95.0, "p95"), (99.0, "p99"), (99.9, "p999"))
CONSUMER_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


class Latencies:
    """How often which latency was seen; ``add`` counts many records at once."""

    __slots__ = ("_counts", "count", "max_us", "sum_us")

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * _HALF * (_STEPS + 2)))
        self.count = 0
        self.sum_us = 0
        self.max_us = 0

    def add(self, us: int, records: int) -> None:
        """Of ``records`` records; a negative one is none at all."""
        us = max(0, us)
        shift = min(_STEPS, max(0, us.bit_length() - _BITS))
        self._counts[min(shift * _HALF + (us >> shift), len(self._counts) - 1)] += records
        self.count += records
        self.sum_us += us * records
        self.max_us = max(self.max_us, us)

    @property
    def average_ms(self) -> float:
        return self.sum_us / self.count / 1000 if self.count else 0.0

    @property
    def max_ms(self) -> float:
        return self.max_us / 1000

    def percentile_ms(self, percent: float) -> float:
        """So many of a hundred records took no longer."""
        wanted, seen = self.count * percent / 100, 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_value_us(index), self.max_us) / 1000
        return self.max_ms


def _value_us(index: int) -> int:
    """The largest latency that is counted there."""
    shift = max(0, index // _HALF - 1)
    return ((index - shift * _HALF + 1) << shift) - 1


class Sent:
    """Records of a window, or of all of a run."""

    __slots__ = ("latencies", "records", "size")

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.records = 0
        self.size = 0
        """Bytes of their values."""

    def add(self, records: int, size: int, us: int) -> None:
        self.records += records
        self.size += size
        self.latencies.add(us, records)

    def line(self, seconds: float, *, final: bool = False) -> str:
        """At the end with percentiles."""
        per_s, mb_per_s = _rates(self.records, self.size, seconds)
        found = self.latencies
        if not final:
            return (
                f"{self.records} records sent, {per_s:.1f} records/sec ({mb_per_s:.2f} MB/sec), "
                f"{found.average_ms:.1f} ms avg latency, {found.max_ms:.1f} ms max latency."
            )
        told = ", ".join(f"{round(found.percentile_ms(p))} ms {p:g}th" for p, _ in PERCENTILES)
        return (
            f"{self.records} records sent, {per_s:.1f} records/sec ({mb_per_s:.2f} MB/sec), "
            f"{found.average_ms:.2f} ms avg latency, {found.max_ms:.2f} ms max latency, {told}."
        )

    def document(self, seconds: float) -> dict[str, Any]:
        """As --json has it at the end; latencies in milliseconds."""
        per_s, mb_per_s = _rates(self.records, self.size, seconds)
        found = self.latencies
        return {
            "records": self.records,
            "bytes": self.size,
            "seconds": round(seconds, 3),
            "records_per_s": round(per_s, 1),
            "mb_per_s": round(mb_per_s, 3),
            "latency_ms": {
                "avg": round(found.average_ms, 3),
                "max": round(found.max_ms, 3),
                **{name: round(found.percentile_ms(percent), 3) for percent, name in PERCENTILES},
            },
        }


def _rates(records: int, size: int, seconds: float) -> tuple[float, float]:
    return (records / seconds, size / MB / seconds) if seconds > 0 else (0.0, 0.0)


def consumed_line(began_ms: int, ended_ms: int, records: int, size: int) -> str:
    """Under CONSUMER_HEADER. Nobody joins a group, so that all of the time is that of fetches."""
    seconds = max(1, ended_ms - began_ms) / 1000
    per_s, mb_per_s = _rates(records, size, seconds)
    cells: Sequence[str] = (
        _time(began_ms),
        _time(ended_ms),
        f"{size / MB:.4f}",
        f"{mb_per_s:.4f}",
        str(records),
        f"{per_s:.4f}",
        "0",
        str(ended_ms - began_ms),
        f"{mb_per_s:.4f}",
        f"{per_s:.4f}",
    )
    return ", ".join(cells)


def consumed_document(began_ms: int, ended_ms: int, records: int, size: int) -> dict[str, Any]:
    """As --json has it."""
    seconds = max(1, ended_ms - began_ms) / 1000
    per_s, mb_per_s = _rates(records, size, seconds)
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 3),
        "records_per_s": round(per_s, 1),
        "mb_per_s": round(mb_per_s, 3),
    }


def _time(at_ms: int) -> str:
    at = datetime.datetime.fromtimestamp(at_ms / 1000)
    return f"{at:%Y-%m-%d %H:%M:%S}:{at_ms % 1000:03d}"
