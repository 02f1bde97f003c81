"""The start of a broker's log directories: all of them are loaded, and one that does not answer is not waited for.

Owns the limit. Loading takes as long as there is to recover, so what is measured is another thing: while a directory is
loaded, its background thread writes and syncs a small file again and again. One that does not get that done for
``PATIENCE_S`` is silent: the broker starts without it, its replicas answer 56 as those of a bad one (K112-34, K112-08),
and it is taken up when its thread answers (disks.py). While there is none that can be used, the start waits for
those that are silent: they may be good.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.platform import Platform
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager

PATIENCE_S = 2.0
LOOK_S = 0.25


class LoadsLogs(Protocol):
    """What loading the directories asks of the broker."""

    logs: LogManager
    loop: asyncio.AbstractEventLoop
    platform: Platform

    def now_ms(self) -> int: ...


async def load_logs(broker: LoadsLogs) -> None:
    """Load all log directories but those that do not answer. Raises what keeps the broker from starting."""
    logs, mono = broker.logs, broker.platform.monotonic_s
    asked: dict[LogDir, float] = {}
    answering: set[LogDir] = set()
    started: asyncio.Future[HoldfastError | None] = broker.loop.create_future()
    logs.start(broker.now_ms(), started.set_result)

    def answered(directory: LogDir, _: object, error: HoldfastError | None) -> None:
        del asked[directory]
        if error is None:
            answering.add(directory)

    while not started.done():
        for directory in logs.loading:
            if directory not in asked:
                asked[directory] = mono()
                directory.background.submit(directory.knock, partial(answered, directory))
        await asyncio.wait((started,), timeout=LOOK_S)
        silent = [d for d in logs.loading if d in asked and mono() - asked[d] > PATIENCE_S]
        if silent and any(d.is_online for d in answering.difference(silent)):
            logs.start_without(silent, f"it has not answered for {PATIENCE_S:.0f} s")
    error = started.result()
    if error is not None:
        raise error
