"""log.dirs in a broker's properties file, changed in its place: everything else of the file stays as it is.

For a broker of ``holdfast up``, whose file is made by a command: a directory that was added or removed while it ran is
so at the next start too. The file of any other broker is its operator's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.app import Broker

log = logging.getLogger(__name__)

KEY = "log.dirs"


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


async def keep_log_dirs(broker: Broker) -> None:
    """So that the next start has the directories of now, where the file is ours. Those that are absent stay away."""
    if broker.properties_path is None:
        return
    absent = broker.absent.directories
    paths = [d.path for d in broker.logs.dirs if d not in absent]
    try:
        await asyncio.to_thread(write_log_dirs, broker.properties_path, paths)
    except OSError as e:
        log.warning("log.dirs in %s is as it was: %s", broker.properties_path, e)
