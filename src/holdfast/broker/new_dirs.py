"""A look at a directory that is to be used as a log directory from now on, before anything is written to it."""

from __future__ import annotations

import asyncio
import posixpath
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.model.errors import HoldfastError, InvalidRequestError
from holdfast.storage.dir_scan import NameKind, classify
from holdfast.storage.files import FileSystem

if TYPE_CHECKING:
    from holdfast.broker.platform import Platform, WorkThread

LOOK_TIMEOUT_S = 10.0
LOST_AND_FOUND = "lost+found"


class LooksBefore(Protocol):
    """What a look at a directory asks of the broker."""

    loop: asyncio.AbstractEventLoop
    platform: Platform

    def thread(self, name: str) -> WorkThread: ...

    def end_thread(self, thread: WorkThread) -> None: ...


async def look_before(broker: LooksBefore, path: str) -> None:
    """InvalidRequestError when it is not there or holds what is not a broker's: an unmounted or a mistyped directory
    must not be made on the disk below it."""
    thread = broker.thread(f"look-{posixpath.basename(path)}")
    looked: asyncio.Future[str | None] = broker.loop.create_future()

    def done(reason: str | None, error: HoldfastError | None) -> None:
        if not looked.done():
            looked.set_result(str(error) if error is not None else reason)

    try:
        thread.submit(partial(_unfit, broker.platform.files, path), done)
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            reason = await looked
    except TimeoutError:
        reason = f"it has not answered for {LOOK_TIMEOUT_S:.0f} s"
    finally:
        broker.end_thread(thread)
    if reason is not None:
        raise InvalidRequestError(f"log directory {path}: {reason}")


def _unfit(files: FileSystem, path: str) -> str | None:
    """Why a directory had better not be used."""
    try:
        if not files.exists(path):
            return "it does not exist; is its disk mounted? make it, or use --create"
        names = [n for n in files.listdir(path) if n != LOST_AND_FOUND and classify(n)[1] is NameKind.UNKNOWN]
    except OSError as e:
        return str(e)
    return f"it holds what is not a broker's, {names[0]!r}; empty it, or use --create" if names else None
