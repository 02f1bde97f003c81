"""What a broker hears of its cleaning process (cleaner_process.py), and its end. On the loop."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.cleaner_process import ALIVE, END, FAILED, FRAME, MADE, CleaningFailure
from holdfast.storage.cleaning_job import CleanedSegment, CleaningStats

SILENCE_S: Final = 300.0
"""A process that says nothing for so long hangs, or its disk does. A sync of a gigabyte may take long, too."""
_READ_BYTES: Final = 64 << 10
_MAX_FRAME: Final = 16 << 20
_REAP_S: Final = 0.02
_REAPS: Final = 100


class CleanerPipe:
    """``done`` is called once, when the process has ended or cannot be made to: one whose disk hangs is left to the
    kernel. ``made`` before that, with each segment."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: subprocess.Popen[bytes],
        made: Callable[[CleanedSegment], None],
        done: Callable[[CleaningStats | CleaningFailure], None],
    ) -> None:
        assert process.stdout is not None
        self._loop = loop
        self._process = process
        self._made = made
        self._done = done
        self._pipe = process.stdout
        self._data = bytearray()
        self._is_over = False
        self._silence = loop.call_later(SILENCE_S, self._silent)
        os.set_blocking(self._pipe.fileno(), False)
        loop.add_reader(self._pipe.fileno(), self._readable)

    def kill(self) -> None:
        """It is not wanted any more."""
        self._end(CleaningFailure("it was ended", None, None, False))

    def _silent(self) -> None:
        self._end(CleaningFailure(f"its process said nothing for {SILENCE_S:.0f} s", None, None, False))

    def _readable(self) -> None:
        try:
            got = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not got:
            self._end(CleaningFailure("its process ended before it was done", None, None, False))
            return
        self._silence.cancel()
        self._silence = self._loop.call_later(SILENCE_S, self._silent)
        self._data += got
        self._frames()

    def _frames(self) -> None:
        data = self._data
        while not self._is_over and len(data) >= FRAME.size:
            kind, size = FRAME.unpack_from(data)
            end = FRAME.size + size
            if size > _MAX_FRAME:
                self._end(CleaningFailure(f"its process sent a frame of {size} bytes", None, None, False))
                return
            if len(data) < end:
                return
            told: Any = json.loads(bytes(data[FRAME.size : end]))
            del data[:end]
            if kind == MADE:
                self._made(CleanedSegment(*told))
            elif kind == FAILED:
                self._end(CleaningFailure(*told))
            elif kind == END:
                self._end(CleaningStats(*told))
            elif kind != ALIVE:
                self._end(CleaningFailure(f"its process sent a frame of kind {kind!r}", None, None, False))

    def _end(self, how: CleaningStats | CleaningFailure) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._silence.cancel()
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self._process.kill()
        self._reap(how, _REAPS)

    def _reap(self, how: CleaningStats | CleaningFailure, tries: int) -> None:
        """Killed or ended by itself, it is gone in a moment, unless its disk hangs."""
        if self._process.poll() is None and tries:
            self._loop.call_later(_REAP_S, self._reap, how, tries - 1)
            return
        self._done(how)
