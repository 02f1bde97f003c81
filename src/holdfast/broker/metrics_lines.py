"""Prometheus' text format, version 0.0.4: a page as lines that are made one after the other, when they are asked for.

Owns how a name, a label and a number are written, and how many lines are made in one go. A page with thousands of
partitions takes tens of milliseconds: it is made on the event loop, in pieces between which others run. On a thread it
would hold up the loop for longer, as a thread that computes keeps the interpreter for five milliseconds at a time,
each time that the loop wants it back.

Who makes lines yields each of them, and "" after work of the size of a line that has made none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

AT_ONCE: Final = 200
"""Lines of a piece: a seventh of a millisecond, two thirds where they are quantiles."""


def head(name: str, kind: str, meaning: str) -> str:
    """What stands above the samples of a metric: two lines. ``kind``: gauge, counter, histogram or summary; a counter's
    ``name`` with its ``_total``."""
    told = meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {told}\n# TYPE {name} {kind}\n"


def labels(values: Mapping[str, str]) -> str:
    """As they stand behind a name; "" for none."""
    if not values:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(values[name])}"' for name in sorted(values)]) + "}"


def of_listener(listener: str) -> str:
    """The labels of what Kafka tells by listener and network processor."""
    return labels({"listener": listener, "networkProcessor": "0"})


def line(name: str, marked: str, value: float) -> str:
    """One sample; ``marked``: its labels as ``labels`` writes them."""
    return f"{name}{marked} {float(value)!r}\n"


def gauge(name: str, meaning: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """A whole metric: its labels, as written, and values."""
    yield head(name, "gauge", meaning)
    for marked, value in samples:
        yield line(name, marked, value)


def pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """So many lines that the loop is not held up."""
    left = iter(lines)
    while some := list(islice(left, AT_ONCE)):
        yield "".join(some).encode()


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value
