"""A broker's properties file: what is odd about it, and log.dirs changed in its place.

For a broker of ``holdfast up``, whose file is made by a command: a directory that was added or removed while it ran is
so at the next start too. The file of any other broker is its operator's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.model.config import STORE_EMBEDDED, BrokerConfig, property_lines

if TYPE_CHECKING:
    from holdfast.broker.absent_dirs import AbsentDirs
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

KEY = "log.dirs"
METADATA_KEYS = ("metadata.log.dir", "metadata.log.dirs")


class KeepsLogDirs(Protocol):
    """Whose properties file it is."""

    properties_path: str | None
    absent: AbsentDirs
    logs: LogManager


def with_log_dirs(text: str, paths: Sequence[str]) -> str:
    """The file's text with these directories; the first entry is replaced, others are left out."""
    value = ",".join(paths).replace("\\", "\\\\")
    lines: list[str] = []
    placed = skipping = False
    for line in text.splitlines():
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if skipping:
            skipping = continues
            continue
        if re.split("[=:]", line, maxsplit=1)[0].strip() != KEY:
            lines.append(line)
            continue
        skipping = continues
        if not placed:
            lines.append(f"{KEY}={value}")
        placed = True
    if not placed:
        lines.append(f"{KEY}={value}")
    return "\n".join(lines) + "\n"


def write_log_dirs(path: str, paths: Sequence[str]) -> None:
    """A reader sees the old file or the new one. OSError."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    partial = f"{path}.tmp"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(with_log_dirs(text, paths))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def oddities(text: str, config: BrokerConfig) -> list[str]:
    """What the file says and perhaps does not mean, a line each: told in the log at the start."""
    found: list[str] = []
    values: dict[str, str] = {}
    for number, key, value in property_lines(text):
        if value is None:
            found.append(f"line {number}: {key!r} has no value: expected KEY=VALUE")
        elif key in values:
            found.append(f"line {number}: {key} is given again: {value!r} counts, not {values[key]!r}")
        values[key] = value or ""
    relative = [path for path in config.log_dirs if not os.path.isabs(path)]
    if relative:
        found.append(f"log.dirs: {', '.join(relative)} is looked for in {os.getcwd()}: expected absolute paths")
    if config.str("metadata.store") == STORE_EMBEDDED and not any(values.get(key) for key in METADATA_KEYS):
        found.append(
            f"metadata.log.dir is not set: this broker is a cluster by itself, with its metadata in"
            f" {config.log_dirs[0]}; all brokers of one cluster have the same one"
        )
    return found


async def keep_log_dirs(broker: KeepsLogDirs) -> None:
    """So that the next start has the directories of now, where the file is ours. Those that are absent stay away."""
    if broker.properties_path is None:
        return
    absent = broker.absent.directories
    paths = [d.path for d in broker.logs.dirs if d not in absent]
    try:
        await asyncio.to_thread(write_log_dirs, broker.properties_path, paths)
    except OSError as e:
        log.warning("log.dirs in %s is as it was: %s", broker.properties_path, e)
