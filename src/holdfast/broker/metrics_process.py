"""Prometheus' lines of this process, and which build it is; read from /proc now. Not for the event loop: the system may
take its time to list what is open."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.broker.metrics_lines import gauge, head, labels, line
from holdfast.broker.metrics_names import kafka_name

_PROC: Final = Path("/proc/self")
_CPU: Final = "process_cpu_seconds_total"


def process_lines() -> Iterator[str]:
    """As Prometheus' own libraries name them. What the system does not tell is left out."""
    yield from _stat_lines()
    if (opened := _open_files()) is not None:
        yield from gauge("process_open_fds", "Number of open file descriptors.", [("", opened)])
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield from gauge("process_max_fds", "Maximum number of open file descriptors.", [("", most)])
    about = labels({"version": __version__, "python": platform.python_version()})
    yield from gauge("holdfast_build_info", "1; what runs here.", [(about, 1)])
    for name in ("read", "write"):
        mbean = f"kafka.server:type=KafkaServer,name=linux-disk-{name}-bytes"
        value = _io_bytes(f"{name}_bytes: ")
        told = f"{mbean}. What this process had the system {name}, by /proc/self/io."
        yield from gauge(kafka_name(mbean), told, [] if value is None else [("", value)])


def _stat_lines() -> Iterator[str]:
    try:
        # What comes before has the name of the process, which may be anything. The third field is the first here.
        fields = (_PROC / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    for name, value, meaning in (
        ("virtual_memory_bytes", int(fields[20]), "Virtual memory size in bytes."),
        ("resident_memory_bytes", int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), "Resident memory size in bytes."),
    ):
        yield from gauge(f"process_{name}", meaning, [("", value)])
    if (booted := _booted_s()) is not None:
        started = booted + int(fields[19]) / ticks
        meaning = "Start time of the process since unix epoch in seconds."
        yield from gauge("process_start_time_seconds", meaning, [("", started)])
    yield head(_CPU, "counter", "Total user and system CPU time spent in seconds.")
    yield line(_CPU, "", (int(fields[11]) + int(fields[12])) / ticks)


@cache
def _booted_s() -> int | None:
    """Unix time; kept, as the start of a process must not change when the clock is set."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next((int(each.split()[1]) for each in file if each.startswith("btime ")), None)
    except OSError:
        return None


def _open_files() -> int | None:
    try:
        return os.stat(_PROC / "fd").st_size or len(os.listdir(_PROC / "fd"))  # older systems do not count them
    except OSError:
        return None


def _io_bytes(field: str) -> int | None:
    try:
        with open(_PROC / "io", encoding="ascii") as file:
            found = [each.removeprefix(field) for each in file if each.startswith(field)]
    except OSError:
        return None
    return int(found[0]) if found else None
