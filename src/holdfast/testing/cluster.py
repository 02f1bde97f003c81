"""A real cluster in child processes: what ``holdfast up`` starts, as a context manager.

Owns the ``up`` process and, where none was given, a temporary data directory. It never looks inside a
broker: all it knows is the contract of ``up`` (one ``ready:`` line, ``pids.json``, SIGTERM, SIGUSR1) and
the wire, so that it drives any broker with such a command.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from holdfast.client.security import SecuritySettings
from holdfast.client.security_options import parse_security
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.records.record import Record
from holdfast.testing import mounts
from holdfast.testing import topics as wire
from holdfast.testing.disks import Disk
from holdfast.testing.ports import BESIDE, free_port
from holdfast.testing.processes import children, has_gone, lives
from holdfast.testing.users import Reachable
from holdfast.testing.view import ClusterView, DirView, PartitionView, ask, ask_log_dirs
from holdfast.testing.waiting import has_news, wait_for

__all__ = ["Cluster", "ClusterError", "ClusterView", "DirView", "PartitionView"]

READY = "ready: bootstrap.servers="
STORE = "HOLDFAST_TEST_STORE"
NO_CONSOLE = "HOLDFAST_NO_CONSOLE"


class ClusterError(Exception):
    """The cluster did not do what was asked; the message ends with what it last wrote to standard error."""


def _for_store(settings: dict[str, str], store: str | None) -> dict[str, str]:
    """A session with ZooKeeper is as long as one with the controller was asked to be: what it is by default there is
    twice what it is here."""
    session = settings.get("broker.session.timeout.ms")
    if store in (None, "embedded") or session is None:
        return settings
    return {"zookeeper.session.timeout.ms": session, **settings}


class Cluster:
    """``with Cluster(brokers=3) as cluster:`` starts brokers 1..3 with two log directories each.

    * ``data_dir``: kept afterwards if given; otherwise a temporary directory that is removed.
    * ``settings``: broker settings, Kafka's keys (``{"min.insync.replicas": "2"}``).
    * ``up``: the command that starts a cluster; options as ``holdfast up`` takes them are added to it.
    * ``store``: where the metadata is, as ``--store`` of ``holdfast up`` has it; HOLDFAST_TEST_STORE of the environment
      if not given, and otherwise what ``up`` does by itself.
    * ``disks``: log directories that can fail, by broker and number: ``{(1, 2): EioDisk}`` (testing/disks.py).
    * ``user``: the brokers run as this user id; 65534 is nobody. Needs root.
    * ``secure``: everybody logs in, as with ``--secure``: ``properties`` has what clients need. Needs holdfast[secure].
    * ``console``: with a web console, which ``console_url`` names.

    With ``disks`` or ``user`` the data directory is a temporary one, as a user must reach it: no ``data_dir`` then.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        log_dirs: int = 2,
        data_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        up: Sequence[str] | None = None,
        ready_timeout_s: float = 60.0,
        store: str | None = None,
        disks: Mapping[tuple[int, int], Callable[..., Disk]] | None = None,
        user: int | None = None,
        console: bool = False,
        secure: bool = False,
    ) -> None:
        if data_dir is not None and (disks or user is not None):
            raise ValueError(f"data_dir={data_dir}: expected none with disks or a user: they have one of their own")
        self._scratch = mounts.scratch() if disks or user is not None else None
        self._temporary = data_dir is None and self._scratch is None
        if self._scratch is not None:
            data_dir = self._scratch / "data"
        self.data_dir = Path(tempfile.mkdtemp(prefix="holdfast-") if data_dir is None else data_dir).resolve()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._wanted_disks, self.user = dict(disks or {}), user
        self.disks: dict[tuple[int, int], Disk] = {}
        self.brokers, self.log_dirs = brokers, log_dirs
        self.port = free_port(brokers, beside=BESIDE) if port is None else port
        self.store = store or os.environ.get(STORE) or None
        self.settings = _for_store(dict(settings or {}), self.store)
        self._command = list(up or ["-m", "holdfast.cli.main", "up"])
        self._is_python = up is None
        self._ready_timeout_s = ready_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self.data_dir / "up.log"
        self.bootstrap = ""
        self._console, self.console_url = console, ""
        self.secure = secure
        self._reachable: Reachable | None = None

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._scratch is not None:
                self.print_logs()  # they go with the scratch directory
            if self.running:
                self.stop()
        finally:
            self._end()

    @property
    def running(self) -> bool:
        """Whether the ``up`` process lives; brokers may be down all the same."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the ``up`` process."""
        if self._process is None:
            raise ClusterError("the cluster was not started")
        return self._process.pid

    def start(self) -> str:
        """Starts the whole cluster and waits until it takes writes; returns bootstrap.servers."""
        if self.running:
            raise ClusterError(f"already running as process {self.pid}")
        self._make_disks()
        command, environment = self._interpreted()
        command += ["--brokers", str(self.brokers), "--log-dirs", str(self.log_dirs)]
        command += ["--data-dir", str(self.data_dir), "--port", str(self.port)]
        if self.store is not None:
            command += ["--store", self.store]
        if self.secure:
            command.append("--secure")
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        (self.data_dir / "pids.json").unlink(missing_ok=True)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=self._without_console(environment),
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )
        line = self._first_line()
        if not line.startswith(READY):
            raise ClusterError(f"up wrote {line!r}, expected '{READY}...'\n{self.log_tail()}")
        self.bootstrap, _, rest = line.removeprefix(READY).strip().partition(" ")
        self.console_url = rest.removeprefix("console=")
        self.secure = self.secure or (self.data_dir / "secure").is_dir()  # it was secured at an earlier start
        return self.bootstrap

    def _make_disks(self) -> None:
        """Once: they outlive a stop and a start."""
        assert self._scratch is not None or not self._wanted_disks
        for (broker, number), kind in sorted(self._wanted_disks.items()):
            if (broker, number) not in self.disks and self._scratch is not None:
                self.disks[broker, number] = kind(self.log_dir(broker, number), self._scratch, user=self.user)
        if self.user is not None:
            for path in (self.data_dir, *self.data_dir.glob("*"), *self.data_dir.glob("broker-*/*")):
                os.chown(path, self.user, self.user)

    def _interpreted(self) -> tuple[list[str], Mapping[str, str] | None]:
        """The command without options, and its environment where that is not ours."""
        if not self._is_python:
            return list(self._command), None
        if self.user is None or self._scratch is None:
            return [sys.executable, *self._command], None
        if self._reachable is None:
            self._reachable = Reachable(self.user, self._scratch)
        interpreter, environment = self._reachable.python()
        return [interpreter, *self._command], environment

    def _without_console(self, environment: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """An environment, not an option: whatever else starts a cluster does not know it."""
        found = dict(os.environ if environment is None else environment)
        found.pop(NO_CONSOLE, None)
        return found if self._console else {**found, NO_CONSOLE: "1"}

    def log_dir(self, broker: int, number: int) -> Path:
        """Where ``up`` has that log directory."""
        return self.data_dir / f"broker-{broker}" / f"log-dir-{number}"

    def stop(self, *, timeout_s: float = 60.0) -> None:
        """Stops all brokers cleanly (SIGTERM); raises if ``up`` did not end with exit code 0 in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise ClusterError(f"up did not stop within {timeout_s:g} s\n{self.log_tail()}") from None
        if code != 0:
            raise ClusterError(f"up ended with exit code {code}\n{self.log_tail()}")

    def kill(self, broker: int) -> None:
        """``kill -9`` of one broker; returns when the process is gone, and with it all that it had open. A thread that
        waits for a disk that hangs is not waited for: it has its directory's files open until the disk answers."""
        pid = self.pids()[broker]
        helpers = children(pid)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: has_gone(pid, helpers), f"the end of broker {broker}, process {pid}", timeout_s=10)

    def kill_all(self) -> None:
        """``kill -9`` of every broker and of ``up`` itself: a power cut without the disks."""
        pids = [*self.pids().values()] if (self.data_dir / "pids.json").exists() else []
        helpers = {pid: children(pid) for pid in pids}
        if self._process is not None:  # it does nothing for those that die, and they do not hear that it has ended
            self._process.send_signal(signal.SIGSTOP)
        for pid in pids:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        wait_for(lambda: all(has_gone(p, h) for p, h in helpers.items()), "the end of all brokers", timeout_s=10)

    def revive(self, *, timeout_s: float = 30.0) -> None:
        """Starts every broker that is down (SIGUSR1 to ``up``) and waits until each listens again."""

        def all_run() -> bool:
            os.kill(self.pid, signal.SIGUSR1)
            return len(self.live()) == self.brokers

        wait_for(all_run, "all brokers to run again", timeout_s=timeout_s, interval_s=0.2)
        tls = self._tls()
        for host, port in self._asked_at():
            answers = partial(ask, host, port, [], tls=tls)
            wait_for(answers, f"broker at {host}:{port}", timeout_s=timeout_s)

    def pids(self) -> dict[int, int]:
        """Process id by broker id, as ``up`` last wrote them; some may be dead."""
        written = json.loads((self.data_dir / "pids.json").read_text())
        return {int(broker): int(pid) for broker, pid in written.items()}

    def live(self) -> dict[int, int]:
        """The part of ``pids()`` that runs."""
        return {broker: pid for broker, pid in self.pids().items() if lives(pid)}

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every broker, in order of broker id."""
        pairs = (part.rsplit(":", 1) for part in self.bootstrap.split(","))
        return [(host, int(port)) for host, port in pairs]

    def properties(self, name: str = "client") -> dict[str, str]:
        """What a client needs, by the names that it has for it; without ``secure`` the brokers' addresses alone.

        * ``client``, ``admin``: a user with a password, who may read and write, and one who may everything; the names
          are those of Java's clients and of ours.
        * ``client-mtls``: the same user by its certificate.
        * ``librdkafka``, ``librdkafka-mtls``: ``client`` and ``client-mtls`` by librdkafka's names.
        """
        if not self.secure:
            return {"bootstrap.servers": self.bootstrap}
        return read_properties((self.data_dir / f"{name}.properties").read_text())

    def _administrator(self) -> SecuritySettings | None:
        return parse_security(self.properties("admin")) if self.secure else None

    def _asked_at(self) -> list[tuple[str, int]]:
        """Where brokers are asked by a plain socket: with the administrator's certificate, where they want one."""
        if not self.secure:
            return self.addresses()
        pairs = (part.rsplit(":", 1) for part in self.properties("client-mtls")["bootstrap.servers"].split(","))
        return [(host, int(port)) for host, port in pairs]

    def _tls(self) -> ssl.SSLContext | None:
        if not self.secure:
            return None
        folder = self.data_dir / "secure"
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "admin.pem")
        return context

    def addresses_of_brokers(self) -> list[tuple[str, int]]:
        """Host and port by which brokers reach each other, in order of broker id; no client is told these."""
        found = []
        for broker in range(1, self.brokers + 1):
            config = BrokerConfig.parse(read_properties((self.data_dir / f"broker-{broker}.properties").read_text()))
            found.append(config.listening.endpoints({}).for_brokers.address)
        return found

    def describe(self, topics: Iterable[str] | None = None, *, broker: int | None = None) -> ClusterView:
        """Metadata of the first broker that answers, or of ``broker``; all topics when none is named."""
        names = None if topics is None else list(topics)
        asked = self._asked_at()
        addresses = asked if broker is None else [asked[broker - 1]]
        trouble: OSError | None = None
        for host, port in addresses:
            try:
                return ask(host, port, names, tls=self._tls())
            except OSError as error:
                trouble = error
        raise ConnectionError(f"none of {addresses} answers") from trouble

    def describe_log_dirs(self, broker: int) -> dict[str, DirView]:
        """The log directories of one broker as it shows them itself, by path."""
        return ask_log_dirs(*self._asked_at()[broker - 1], tls=self._tls())

    def folder_of(self, broker: int, topic: str, partition: int) -> Path:
        """The directory of a replica; it has to be in exactly one log directory."""
        folders = [*self.data_dir.glob(f"broker-{broker}/log-dir-[0-9]*/{topic}-{partition}")]
        if len(folders) != 1:
            raise ClusterError(f"{topic}-{partition} on broker {broker}: expected one directory, found {folders}")
        return folders[0]

    def disk_of(self, broker: int, topic: str, partition: int) -> Disk:
        """The disk (of ``disks``) that a replica is on."""
        return self.disks[broker, int(self.folder_of(broker, topic, partition).parent.name.rpartition("-")[2])]

    def wait_in_sync(self, topics: Iterable[str] | None = None, *, timeout_s: float = 60.0) -> ClusterView:
        """Until every live broker shows every replica of the topics in its ISR; returns the last view."""
        names = None if topics is None else list(topics)

        def full() -> ClusterView | None:
            view = None
            for broker in self.live():  # the first that is not there yet is enough: topics may be many
                view = self.describe(names, broker=broker)
                if not view.partitions or view.under_replicated or len(view.brokers) != self.brokers:
                    return None
            return view

        view = wait_for(full, f"all replicas of {names or 'all topics'} to be in sync", timeout_s=timeout_s)
        assert view is not None
        return view

    def wait_for_leaders(self, topics: Iterable[str] | None = None, *, timeout_s: float = 60.0) -> ClusterView:
        """Until every live broker shows a living leader for every partition of the topics; returns the last view."""
        names = None if topics is None else list(topics)

        def led() -> ClusterView | None:
            view, live = None, self.live()
            for broker in live:
                view = self.describe(names, broker=broker)
                if any(partition.leader not in live for partition in view.partitions.values()):
                    return None
            return view

        view = wait_for(led, f"leaders of {names or 'all topics'}", timeout_s=timeout_s)
        assert view is not None
        return view

    # -- by our own client, for tests of something else than clients ---------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Mapping[int, tuple[int, ...]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Made, and led everywhere, when it returns. ``assignment``: brokers of each partition, instead of the numbers.
        HoldfastError as the broker has it."""
        security = self._administrator()
        wire.create_topic(self.bootstrap, name, partitions, replication_factor, assignment, config, security)
        self.wait_for_leaders([name])

    def produce(self, topic: str, records: Iterable[wire.Written], *, partition: int | None = None) -> int:
        """Write values, or pairs of key and value; acknowledged by all of the ISR when it returns. How many."""
        return wire.produce(self.bootstrap, topic, records, partition, self._administrator())

    def consume(self, topic: str, *, read_committed: bool = False) -> dict[int, list[Record]]:
        """All that is in the topic at this moment, by partition."""
        return wire.consume(self.bootstrap, topic, read_committed=read_committed, security=self._administrator())

    def log_tail(self, size: int = 2000) -> str:
        """The end of what ``up`` and its brokers wrote to standard error."""
        return self._log.read_bytes()[-size:].decode(errors="replace") if self._log.exists() else ""

    def print_logs(self, lines: int = 30) -> None:
        """The end of every broker's log, to standard output."""
        for path in sorted(self.data_dir.glob("broker-*.log")):
            print(path, *path.read_text(errors="replace").splitlines()[-lines:], sep="\n")

    def _first_line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        pipe, received = self._process.stdout, bytearray()
        deadline = time.monotonic() + self._ready_timeout_s
        while b"\n" not in received:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ClusterError(f"not ready after {self._ready_timeout_s:g} s\n{self.log_tail()}")
            if has_news(pipe, left):
                chunk = os.read(pipe.fileno(), 4096)
                if not chunk:
                    raise ClusterError(f"up ended with code {self._process.wait()}\n{self.log_tail()}")
                received += chunk
        return received.decode().splitlines()[0]

    def _end(self) -> None:
        if self.running:
            self.kill_all()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        for disk in self.disks.values():
            disk.close()
        if self._scratch is not None:
            mounts.remove(self._scratch)
        elif self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)
