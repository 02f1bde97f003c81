"""What the closer does (closer.py says what it is for).

    asleep --the broker's first thread has died--> connections and pipes end, locks are given back
           --> the port tells who comes that nobody lives here, for WINDOW_S
           --> the port refuses --> the locks that were still in use, each when its threads have gone --> end

Runs in a process that shares the broker's table of descriptors and a copy of its memory as it was at the start: it
makes no thread, no event loop, writes no log line (a log may be on the disk that hangs) and never returns to the code
that it came from.

A lock of a log directory is given back when no thread is left that may touch the directory. Everything else is given
back at once. A file of a log directory is closed last: closing one that was deleted waits for its disk.

Clients in the window. librdkafka, its only connection lost with nothing under way, has nobody to ask who leads now:
it connects to another broker, and asks it nothing. But when its second try at the dead broker is accepted and ends
later, when it has another connection, it asks there. So the port accepts, keeps what comes for HOLD_S, and ends it.
The controller asks the port whether its broker lives (ApiVersions, or SaslHandshake where it has to log in): it is
answered BROKER_NOT_AVAILABLE at once, which no living broker says. Whoever asks anything else, other brokers above all,
is not kept waiting. Where TLS is spoken the first message says the same of who it is, and the answer is an alert. That
anybody between the two could say so, too, gives him nothing that he has not: he can refuse connections as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NoReturn

NAME = b"holdfast-closer"
WINDOW_S = 0.15
"""The port outlives its broker by this. A broker that starts again waits for it (broker/listening.py)."""
HOLD_S = 0.03
"""How long a client's connection is kept in the window: it has made another one meanwhile."""
MAX_HELD = 512
"""Connections that are kept at a time; one more ends the oldest."""
SLOT_BYTES = 1 << 20
"""Of the notes, each of two."""
BROKER_NOT_AVAILABLE = 8
API_VERSIONS, SASL_HANDSHAKE = 18, 17
CONTROLLER_PREFIX = b"controller-"
"""How the client ids of a controller's connections begin."""
TLS_HANDSHAKE = 0x16
"""The first byte that is said on TLS."""
FROM_CONTROLLER, FROM_BROKER = b"holdfast-controller", b"holdfast-broker"
"""What our brokers name for a protocol there (client/security.py); it is not encrypted."""
KILLED_ALERT = bytes((0x15, 3, 3, 0, 2, 2, 111))
"""A fatal alert that no server of TLS says: certificate_unobtainable, of an extension that nobody asks for."""
ELECTION_LOCK = "/lock"
"""How the paths of the files end whose locks elect the controller (coordination/). Who claims next makes the late
writes of this process harmless."""
STEP_S = 0.001
THREADS_S = 0.02
"""How often is looked for threads that wait for a disk."""
_WAKE = signal.SIGUSR2
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1)
_DEAD = "ZX"
_REQUEST = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, length of the client id."""


def run(parent: int, tasks: int, notes: int, spare: tuple[int, ...]) -> NoReturn:
    """The life of the closer of process ``parent``; ``tasks``: its threads (a directory of /proc), open."""
    try:
        gc.disable()
        if _wait_for_death(parent):
            for descriptor in spare:
                os.close(descriptor)
            Remains(tasks, notes).close()
    finally:
        os._exit(0)


def _wait_for_death(parent: int) -> bool:
    """True when the parent was there and its first thread has died."""
    os.setsid()  # a signal to the broker's group is not for us
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [_WAKE])  # until here all are held up (closer.py)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(_WAKE), 0, 0, 0)
    if os.getppid() != parent:
        return True
    # The kernel sends it in the name of the parent; anybody else's is not news.
    while signal.sigwaitinfo([_WAKE]).si_pid != parent:
        pass
    return True


def threads(tasks: int | str) -> list[str]:
    """Ids of the threads of a process, by its directory ``task`` in /proc; none when it has gone."""
    try:
        return os.listdir(tasks)
    except OSError:
        return []


def state_of(thread: str, tasks: int | None = None) -> str:
    """Kernel's letter for the state of a thread, of this process without ``tasks``; X when it has gone."""
    try:
        path = f"/proc/self/task/{thread}/stat" if tasks is None else f"{thread}/stat"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=tasks)
        try:
            return os.read(descriptor, 4096).rpartition(b")")[2].split()[0].decode()
        finally:
            os.close(descriptor)
    except (OSError, IndexError):
        return "X"


def read_notes(notes: int) -> dict[str, Any]:
    """What the broker has noted; nothing where it cannot be read."""
    slot = os.pread(notes, 1, 0)[:1] or b"\0"
    place = slot[0] * SLOT_BYTES
    size = int.from_bytes(os.pread(notes, 4, place), "big") if slot[0] else 0
    try:
        return dict(json.loads(os.pread(notes, size, place + 4)))
    except ValueError:
        return {}


class Remains:
    """What a dead broker has left, by kind."""

    def __init__(self, tasks: int, notes: int) -> None:
        self._tasks = tasks
        found = read_notes(notes)
        self.locks = {int(descriptor): str(path) for descriptor, path in found.get("locks", {}).items()}
        self._directory: dict[str, str] = found.get("directory", {})
        self._undecided = frozenset(found.get("undecided", ()))
        self._is_known = bool(found)
        self._listeners: list[socket.socket] = []
        self._files: dict[int, str] = {}

    def close(self) -> None:
        """Everything, in the order of the module's docstring. Returns when nothing is left to wait for."""
        for descriptor, target in list(_descriptors()):
            if target.startswith("socket:"):
                self._end_socket(descriptor)
            elif target.startswith(("pipe:", "anon_inode:")) or target.endswith(ELECTION_LOCK):
                _close(descriptor)
            elif descriptor != self._tasks:
                self._files[descriptor] = target
        self.give_back()
        _Window(self._listeners).keep(self.give_back)
        self._close_files()
        # A service manager may end us now: the kernel gives back what is left with the last thread.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while self.locks:
            time.sleep(THREADS_S)
            self.give_back()
            self._close_files()

    def _end_socket(self, descriptor: int) -> None:
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError:
            _close(descriptor)
            return
        if _listens(sock):
            sock.setblocking(False)
            self._listeners.append(sock)
            return
        _end(sock)

    def give_back(self) -> None:
        """The locks that no thread is left for."""
        left = [thread for thread in threads(self._tasks) if state_of(thread, self._tasks) not in _DEAD]
        busy = {self._directory.get(thread) for thread in left if thread in self._directory.keys() | self._undecided}
        for descriptor, path in list(self.locks.items()):
            directory, _, name = path.rpartition("/")
            if name == ".lock" and (None in busy or directory in busy):
                continue
            del self.locks[descriptor]
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _close_files(self) -> None:
        """All but those of directories whose locks are in use. Closing one may wait for a disk. Nothing where it is not
        known what is in use: the kernel closes it with the last thread."""
        if not self._is_known:
            return
        kept = tuple(path.rpartition("/")[0] + "/" for path in self.locks.values())
        resolved = tuple(os.path.dirname(self._files.get(descriptor, "")) + "/" for descriptor in self.locks)
        for descriptor, target in list(self._files.items()):
            if not target.startswith(kept) and not target.startswith(resolved):
                del self._files[descriptor]
                _close(descriptor)


class _Window:
    """The listening sockets, a moment longer."""

    def __init__(self, listeners: list[socket.socket]) -> None:
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._held: dict[int, tuple[socket.socket, float]] = {}
        self._poll = select.poll() if listeners else None
        for descriptor in self._listeners:
            self._poll.register(descriptor, select.POLLIN)  # type: ignore[union-attr]

    def keep(self, meanwhile: Any) -> None:
        """Until WINDOW_S have passed; ``meanwhile`` is called every few milliseconds."""
        until = time.monotonic() + WINDOW_S
        while self._poll is not None and (now := time.monotonic()) < until:
            for descriptor, _ in self._poll.poll(1000 * STEP_S * 4):
                if descriptor in self._listeners:
                    self._accept(self._listeners[descriptor], now)
                else:
                    self._read(descriptor)
            self._end_since(now - HOLD_S)
            meanwhile()
        for listener in self._listeners.values():
            _end(listener)
        self._end_since(float("inf"))

    def _accept(self, listener: socket.socket, now: float) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        if len(self._held) >= MAX_HELD:
            self._end(next(iter(self._held)))
        self._held[sock.fileno()] = (sock, now)
        assert self._poll is not None
        self._poll.register(sock.fileno(), select.POLLIN)

    def _read(self, descriptor: int) -> None:
        """The first bytes say who it is; nothing more is read."""
        assert self._poll is not None
        self._poll.unregister(descriptor)
        sock, _ = self._held[descriptor]
        try:
            answer = answer_to(sock.recv(4096))
            if answer is None:
                return
            sock.send(answer)
        except OSError:
            pass
        self._end(descriptor)

    def _end_since(self, since: float) -> None:
        for descriptor, (_, accepted) in list(self._held.items()):
            if accepted <= since:
                self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        sock, _ = self._held.pop(descriptor)
        with contextlib.suppress(KeyError):
            self._poll.unregister(descriptor)  # type: ignore[union-attr]
        sock.close()


def answer_to(received: bytes) -> bytes | None:
    """What the first bytes of a connection in the window are answered: b"" ends it, None keeps it for HOLD_S."""
    if received[:1] == bytes((TLS_HANDSHAKE,)):
        if FROM_CONTROLLER in received:
            return KILLED_ALERT
        return b"" if FROM_BROKER in received else None
    try:  # by hand: the process that does this has not loaded the protocol
        _, api_key, version, correlation_id, length = _REQUEST.unpack_from(received)
    except struct.error:
        return b""
    if api_key not in (API_VERSIONS, SASL_HANDSHAKE):
        return b""
    client_id = received[_REQUEST.size : _REQUEST.size + max(0, length)]
    is_asking = (api_key, version) in ((API_VERSIONS, 0), (SASL_HANDSHAKE, 1))
    if is_asking and client_id.startswith(CONTROLLER_PREFIX):
        # Both answers begin so: an error, and a list with nothing in it.
        return struct.pack(">iihi", 10, correlation_id, BROKER_NOT_AVAILABLE, 0)
    return None if api_key == API_VERSIONS else b""


def _end(sock: socket.socket) -> None:
    """Also for those who have a copy of it: a thread that waits for a disk and is sending, a process just made."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        sock.close()


def _listens(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _descriptors() -> Iterator[tuple[int, str]]:
    """Each open descriptor and what it is, in the kernel's words."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            yield int(name), os.readlink(f"/proc/self/fd/{name}")


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.close(descriptor)
