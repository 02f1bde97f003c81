"""Log lines that nobody waits for: a full or frozen disk under the log file stops neither the loop nor a disk thread.

Owns a bounded queue of finished lines and the thread that writes them to one descriptor. Who logs makes the line and
goes on. Lines that find the queue full, or that the file does not take, are lost; how many is told in their place,
before the next line that finds room. Writes to the descriptor itself: a thread that hangs in the kernel holds no lock
of Python's that the end of the process would wait for.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections import deque
from types import TracebackType
from typing import Final

from holdfast.broker.log_file import LogFile
from holdfast.broker.log_format import JsonLines, make_formatter
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError

MAX_LINES: Final = 20_000
MAX_BYTES: Final = 8 << 20
FLUSH_S: Final = 1.0
"""What the end of a process waits for."""
LEVEL_VARIABLE: Final = "HOLDFAST_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_AT_ONCE: Final = 100
"""Lines that go with one write: about as many are lost with one that fails."""


class LogLines(logging.Handler):
    """Lines to the descriptor ``fd``, which is ``file``'s if there is one. Any thread may log; ``flush`` waits, but
    not for ever."""

    def __init__(
        self, fd: int, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, file: LogFile | None = None
    ) -> None:
        super().__init__()
        self._fd = fd
        self._file = file
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, int]] = deque()
        """Lines, and for how many of those that were logged each of them stands."""
        self._bytes = 0
        self._writes = False  # lines that the thread has taken out
        self._lost = 0
        self._started = False

    def start(self) -> None:
        """Begin to write; until then lines wait. A process forks what it forks before."""
        with self._changed:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._run, name="log-lines", daemon=True).start()

    @property
    def is_json(self) -> bool:
        """Whether every line is to be an object: what is said besides would be none."""
        return isinstance(self.formatter, JsonLines)

    @property
    def is_for_people(self) -> bool:
        """Text on standard error, and no file that is kept."""
        return self._file is None and not self.is_json

    @property
    def leads_elsewhere(self) -> bool:
        """Whether lines do not go to standard error."""
        return self._fd != 2

    @property
    def lost(self) -> int:
        """Lines lost that were not told yet."""
        return self._lost

    def emit(self, record: logging.LogRecord) -> None:
        """Make the line and leave it to the thread."""
        try:
            line = self.format(record)
        except Exception:  # the arguments are not what the text wants: say which text, as logging itself does
            what = f"a log line could not be made of {record.msg!r}:\n{traceback.format_exc()}"
            line = self._line(logging.ERROR, what)
        self.say(line)

    def say(self, line: str) -> None:
        """A line as it is."""
        data = line.encode(errors="backslashreplace") + b"\n"
        with self._changed:
            if len(self._waiting) >= self._max_lines or self._bytes + len(data) > self._max_bytes:
                self._lost += 1
                return
            if self._lost:
                self._put(self._told(self._lost), self._lost)
                self._lost = 0
            self._put(data, 1)
            self._changed.notify_all()

    def _put(self, data: bytes, count: int) -> None:
        self._waiting.append((data, count))
        self._bytes += len(data)

    def flush(self) -> None:
        """Return when all is written, or after a second: a file that takes nothing is not waited for."""
        self.start()
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._writes, FLUSH_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                lines = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                data = b"".join(line for line, _ in lines)
                self._bytes -= len(data)
                self._writes = True
            is_written = self._write(data)
            with self._changed:
                self._writes = False
                if not is_written:
                    self._lost += sum(count for _, count in lines)
                self._changed.notify_all()

    def _told(self, lost: int) -> bytes:
        what = f"{lost} log lines were lost here: what they are written to did not take them"
        return self._line(logging.WARNING, what).encode() + b"\n"

    def _line(self, level: int, what: str) -> str:
        """A line of our own."""
        return self.format(logging.LogRecord(__name__, level, __file__, 0, "%s", (what,), None))

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            return False
        if self._file is not None:
            self._file.written()
        return True


def level_asked_for() -> str:
    """The level of HOLDFAST_LOG_LEVEL; ConfigError when it is none."""
    level = os.environ.get(LEVEL_VARIABLE) or "INFO"
    if level.upper() not in LEVELS:
        raise ConfigError(f"{LEVEL_VARIABLE}={level}: expected one of {', '.join(LEVELS)}")
    return level.upper()


def configure_logging(config: BrokerConfig, path: str | None = None) -> LogLines:
    """All log lines go to standard error, or to log.file (once ``start_writing`` was called), with the broker's number
    if it is known. What ends a thread by itself is logged too.

    ``path``: the file that standard output and standard error lead to; log.file does not count then. ConfigError.
    """
    level = level_asked_for()
    file = _file_of(config, path)
    lines = LogLines(2 if file is None else file.fd, file=file)
    lines.setFormatter(make_formatter(config.str("log.format"), config.given_id))
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(level)
    threading.excepthook = _thread_ended
    sys.unraisablehook = _not_raised
    return lines


def _file_of(config: BrokerConfig, path: str | None) -> LogFile | None:
    bounds = {"max_bytes": config.int("log.file.max.bytes"), "backups": config.int("log.file.backups")}
    if path is not None:
        return LogFile(path, (2, 1), **bounds)
    own = config.optional_str("log.file")
    if own is None:
        return None
    try:
        return LogFile.opened(own, **bounds)
    except OSError as e:
        raise ConfigError(f"log.file={own}: {e.strerror or e}: expected a file that can be written") from None


def without_log_file(config: BrokerConfig, path: str | None) -> list[str]:
    """What a person should hear: keys of the file where there is none, or another one."""
    own = config.optional_str("log.file")
    if path is not None:
        return [] if own is None else [f"log.file={own} has no effect: the log is in {path}"]
    if own is not None:
        return []
    keys = ("log.file.max.bytes", "log.file.backups")
    return [f"{k}={config.static[k]} has no effect: log.file is not given" for k in keys if k in config.static]


def name_broker(broker_id: int) -> None:
    """The broker's number is known now: the lines from here on have it."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogLines):
            handler.setFormatter(make_formatter("json" if handler.is_json else "text", broker_id))


def start_writing() -> None:
    """Every LogLines of this process may have a thread from now on."""
    for handler in [*logging.getLogger().handlers, *logging.getLogger("holdfast").handlers]:
        if isinstance(handler, LogLines):
            handler.start()


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    name = "a thread" if ended.thread is None else ended.thread.name
    logging.getLogger(__name__).critical("%s ended by an error", name, exc_info=_info(ended))


def _not_raised(error: sys.UnraisableHookArgs) -> None:
    logging.getLogger(__name__).error("%s: %r", error.err_msg or "nobody caught", error.object, exc_info=_info(error))


def _info(
    error: threading.ExceptHookArgs | sys.UnraisableHookArgs,
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    value = error.exc_value
    return None if value is None else (type(value), value, error.exc_traceback)
