"""A ZooKeeper server: its settings, the command that runs it, and what it answers to a four-letter word.

The server is Apache ZooKeeper's own, from the jars that the package pyspark brings. Owns the files of one server's
folder; starts no process: who does so owns it (testing/zookeeper.py, cli/local_zookeeper.py).

    FOLDER/zoo.cfg, FOLDER/log4j2.properties     written before every start
    FOLDER/data/                                 snapshots and transaction logs, and myid of a member of an ensemble
    FOLDER/zookeeper.log                         what it logs, and at most LOGS_KEPT older ones of LOG_BYTES
    FOLDER/server.out                            of the last start: what Java itself says
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.java.runtime import Java

MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
"""It also runs a server that is alone."""
CLIENT_PORT, QUORUM_PORT, ELECTION_PORT = 2181, 2888, 3888
"""Where everybody has them, and each host has one server."""
LOG_BYTES, LOGS_KEPT = 8 << 20, 3
WORDS: Final = "srvr,ruok,stat,mntr,dump,cons,conf,wchs"
MAX_SESSION_MS = 60_000
"""Sessions are what clients ask for up to this; ZooKeeper's own limit is 20 ticks, which with a short tick is less than
Kafka's default of 18 s."""
_JARS: Final = (
    "zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "log4j-api-*", "log4j-core-*", "log4j-slf4j2-impl-*",
    "netty-*", "snappy-java-*", "metrics-core-*", "commons-io-*", "commons-cli-*",
)  # fmt: skip
"""What a server loads: with these alone it starts in half the time and half the memory."""
_MODE = re.compile(r"^Mode: (\w+)", re.MULTILINE)


class ZooKeeperUnavailableError(RuntimeError):
    """No server of ZooKeeper can be started here; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleMember:
    """One server of an ensemble as all of them know it: ``number`` is its myid, 1 to 255."""

    number: int
    host: str
    quorum_port: int = QUORUM_PORT
    election_port: int = ELECTION_PORT

    def __post_init__(self) -> None:
        if not 1 <= self.number <= 255:
            raise ValueError(f"the number of a ZooKeeper server is {self.number}: expected 1 to 255")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server. ``host`` and ``client_port``: where clients reach it. Without ``members`` it is alone; otherwise
    ``number`` says which of them it is. ``tick_ms``: the shortest session is two of them, and sessions end on a tick.
    ``keeps``: snapshots that are kept when older ones are removed, once an hour; None removes nothing. ``more``:
    further lines of its configuration, NAME=VALUE; ``java_options``: of its process."""

    folder: Path
    host: str
    client_port: int = CLIENT_PORT
    tick_ms: int = 2000
    members: tuple[EnsembleMember, ...] = ()
    number: int | None = None
    keeps: int | None = None
    more: tuple[str, ...] = ()
    java_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = [member.number for member in self.members]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"the ZooKeeper servers {numbers}: expected each number once")
        if self.members and self.number not in numbers:
            raise ValueError(f"ZooKeeper server {self.number}: expected one of the members {numbers}")

    def text(self) -> str:
        """zoo.cfg."""
        lines = {
            "tickTime": self.tick_ms,
            "dataDir": self.folder / "data",
            "clientPort": self.client_port,
            "clientPortAddress": self.host,
            "maxClientCnxns": 0,
            "minSessionTimeout": 2 * self.tick_ms,
            "maxSessionTimeout": max(MAX_SESSION_MS, 20 * self.tick_ms),
            "4lw.commands.whitelist": WORDS,
            "admin.enableServer": "false",
        }
        if self.keeps is not None:
            lines |= {"autopurge.snapRetainCount": max(3, self.keeps), "autopurge.purgeInterval": 1}
        if self.members:
            lines |= {"initLimit": 20, "syncLimit": 5}
            lines |= {f"server.{m.number}": f"{m.host}:{m.quorum_port}:{m.election_port}" for m in self.members}
        return "".join(f"{line}\n" for line in (*(f"{key}={value}" for key, value in lines.items()), *self.more))

    def write(self) -> None:
        """The folder with all its files. What the server has kept stays."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (self.folder / "zoo.cfg").write_text(self.text())
        (self.folder / "log4j2.properties").write_text(log_settings(self.folder))
        if self.number is not None:
            (data / "myid").write_text(f"{self.number}\n")

    def command(self, java: Java, *, heap_mb: int = 256) -> list[str]:
        """What runs the server; ``write`` first. ZooKeeperUnavailableError without its jars."""
        return [
            os.fspath(java.executable), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:+PerfDisableSharedMem",
            "-XX:+ExitOnOutOfMemoryError", f"-XX:ErrorFile={self.folder / 'crash.log'}",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-Dzookeeper.jmx.log4j.disable=true",
            *self.java_options, "-cp", class_path(jars()), MAIN, os.fspath(self.folder / "zoo.cfg"),
        ]  # fmt: skip

    def sync(self) -> None:
        """Has the snapshots that there are on the disk; call it when the server serves for the first time.

        ZooKeeper syncs its transaction logs and not its snapshots, the first one included. After a power cut within
        the first half minute there is a log and no snapshot, and the server refuses to start: "No snapshot found, but
        there are log entries. Something is broken!".
        """
        folder = self.folder / "data" / "version-2"
        for path in (*folder.glob("snapshot.*"), folder, folder.parent):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def said(self, size: int = 2000) -> str:
        """The end of what the server wrote, for a person who asks why it does not run."""
        parts = []
        for name in ("server.out", "zookeeper.log"):
            path = self.folder / name
            if path.exists():
                parts.append(path.read_bytes()[-size:].decode(errors="replace"))
        return "".join(parts)


def jars() -> Path:
    """Where pyspark keeps them. ZooKeeperUnavailableError when it is not installed; it is not imported."""
    found = importlib.util.find_spec("pyspark")
    where = None if found is None or found.origin is None else Path(found.origin).parent / "jars"
    if where is None or not any(where.glob(_JARS[0])):
        looked = "the package pyspark is not installed" if where is None else f"there is none in {where}"
        raise ZooKeeperUnavailableError(
            f"ZooKeeper's server comes with the jars of PySpark, and {looked}: pip install 'holdfast[spark]', or name "
            "an ensemble that runs already"
        )
    return where


def class_path(folder: Path) -> str:
    """The jars that a server needs; all of them where one has another name than it had."""
    found = [sorted(folder.glob(f"{pattern}.jar")) for pattern in _JARS]
    return os.pathsep.join(str(jar) for group in found for jar in group) if all(found) else f"{folder}/*"


def log_settings(folder: Path) -> str:
    """log4j2.properties: one file, and some older ones."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/zookeeper.log
appender.file.filePattern = {folder}/zookeeper.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p [%t:%c{{1}}] %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {LOG_BYTES}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {LOGS_KEPT}
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def ask(dial: Callable[[], socket.socket], word: str) -> str:
    """What a server answers to a four-letter word over a connection of its own. OSError, TimeoutError of ``dial`` and
    of the connection."""
    with dial() as connection:
        connection.sendall(word.encode())
        answer = b""
        while more := connection.recv(65536):
            answer += more
    return answer.decode()


def mode_of(answer: str) -> str | None:
    """``leader``, ``follower`` or ``standalone`` by the answer to ``srvr``; None while it does not serve."""
    found = _MODE.search(answer)
    return None if found is None else found[1]


def is_of(settings: ServerSettings, answer: str) -> bool:
    """Whether the answer to ``conf`` is that of this server, and not of another one that has its port."""
    return f"dataDir={settings.folder / 'data'}" in answer


def connect_string(addresses: Sequence[tuple[str, int]], chroot: str = "") -> str:
    """``zookeeper.connect``."""
    return ",".join(f"{host}:{port}" for host, port in addresses) + chroot
