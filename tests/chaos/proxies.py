"""Network cuts without namespaces: every broker is reached through proxies of ours, which reset and refuse.

A broker has one of them for each of its listeners, on a port that the broker advertises. Who connects is found in
/proc: the process that has the socket. That costs tens of milliseconds on a busy machine, so nobody looks while nothing
is cut: clients that connect again all at once would never be served. A cut in one direction breaks the connection, so
it is a cut in both. What a silent network does, this cannot show; what a firewall that answers does, it can.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from holdfast.testing import free_port
from tests.chaos.network import CLIENTS, PORTS

HOST = "127.0.0.1"
CHUNK = 1 << 16
LOOK_S = 0.05
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_CONNECTION = re.compile(r"^ *\d+: \w+:(\w{4}) \w+:(\w{4})(?: +\S+){6} +([1-9]\d*)", re.MULTILINE)
"""Of the kernel's table: local and remote address come second and third, the inode tenth (0: nobody has it)."""


class Proxies:
    """A thread with an event loop that passes bytes on."""

    def __init__(self, brokers: Sequence[int]) -> None:
        self.address = "127.0.0.1"
        self.description = "a proxy before each broker that resets and refuses connections"
        places = [(broker, which) for broker in brokers for which in PORTS]
        first = free_port(2 * len(places))
        self._listeners = {place: first + 2 * number for number, place in enumerate(places)}
        """By broker and listener."""
        self._advertised = {place: first + 2 * number + 1 for number, place in enumerate(places)}
        self._pids: dict[int, int] = {}
        self._cuts: Counter[tuple[int | None, int | None]] = Counter()
        self._open: dict[tuple[asyncio.StreamWriter, ...], tuple[int, tuple[int, int]]] = {}
        """Both ends of each connection -> the port of who connected, and where to."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    async def _watch(self) -> None:
        """A proxy listens while its broker does: the port of one that is down must refuse."""
        while True:
            for place in self._advertised:
                pid = self._pids.get(place[0])
                lives = pid is not None and _lives(pid)
                if lives and place not in self._servers and await self._listens(place):
                    accept = functools.partial(self._serve, place)
                    self._servers[place] = await asyncio.start_server(accept, HOST, self._advertised[place])
                elif not lives and place in self._servers:
                    self._servers.pop(place).close()
            await asyncio.sleep(LOOK_S)

    async def _listens(self, place: tuple[int, int]) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self._listeners[place])
        except OSError:
            return False
        writer.close()
        return True

    def listener(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return HOST, self._listeners[broker, which]

    def advertised(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return HOST, self._advertised[broker, which]

    def inside(self, broker: int) -> AbstractContextManager[None]:
        return nullcontext()

    def started(self, broker: int, pid: int) -> None:
        self._pids[broker] = pid

    def cut(self, sender: int | None, receiver: int | None) -> None:
        self._cuts[sender, receiver] += 1
        self._loop.call_soon_threadsafe(self._break_cut_ones)

    def heal(self, sender: int | None, receiver: int | None) -> None:
        self._cuts[sender, receiver] -= 1

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers.values():
            server.close()
        self._watching.cancel()
        for ends in self._open:
            for writer in ends:
                writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)

    # -- on the loop -------------------------------------------------------------------------------------------

    def _is_cut(self, source: int | None, target: int) -> bool:
        if source == target:
            return False
        ways = self._ways()
        return any(
            sender in (None, here) and receiver in (None, there)
            for sender, receiver in ways
            for here, there in ((source, target), (target, source))
        )

    def _ways(self) -> list[tuple[int | None, int | None]]:
        """That are cut now."""
        return [way for way, count in self._cuts.items() if count > 0]

    def _break_cut_ones(self) -> None:
        owners = self._owners()
        for ends, (port, place) in list(self._open.items()):
            if self._is_cut(owners.get((port, self._advertised[place])), place[0]):
                for writer in ends:
                    writer.transport.abort()

    async def _serve(self, place: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        ways = self._ways()
        if ways and self._is_cut(self._owners().get((port, self._advertised[place])), place[0]):
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._listeners[place])
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, far_writer)
        self._open[ends] = (port, place)
        if self._ways() != ways:  # another cut has begun meanwhile
            self._break_cut_ones()
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            del self._open[ends]
            for end in ends:
                end.close()

    def _owners(self) -> dict[tuple[int, int], int]:
        """Port that somebody connected from, and port connected to -> the broker whose process has that socket; clients
        are not in it."""
        holders = {inode: broker for broker, pid in self._pids.items() for inode in _inodes_of(pid)}
        with open("/proc/net/tcp") as table:
            found = _CONNECTION.findall(table.read())
        return {(int(port, 16), int(to, 16)): holders[inode] for port, to, inode in found if inode in holders}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def _lives(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _inodes_of(pid: int) -> set[str]:
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                match = _SOCKET.match(os.readlink(f"/proc/{pid}/fd/{name}"))
            except FileNotFoundError:
                continue
            if match is not None:
                found.add(match[1])
    except FileNotFoundError:  # it ended meanwhile
        pass
    return found
