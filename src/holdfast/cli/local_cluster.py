"""The processes of a local cluster: one child per broker, and a parent that only watches.

    starting --every node serves, each sees all--> running --SIGTERM, SIGINT--> stopping --all ended--> over
        \\------------a node ends------------------------------------------------/

Owns the children, pids.json, when endpoints.json is there, and what is said on standard output (one line) and standard
error. Never restarts a node by itself: SIGUSR1 asks for it; a console it does. Never touches a log directory.

The broker's code is imported once, here, and children are forked: three nodes start in the time of one import. That
is safe because this process has one thread and opens nothing that a child would share, except the lock on the data
directory, which is meant to live as long as any broker of it.
"""

import fcntl
import gc
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from holdfast.cli import endpoints
from holdfast.cli.child_processes import die_with_parent, status_of_first_thread, wait_for_all_threads
from holdfast.cli.layout import BrokerLayout, log_path, properties_path, write_atomically
from holdfast.cli.probe import brokers_seen_by, leaderless
from holdfast.cli.up_address import not_of_this_machine, port_gets_free, port_is_free
from holdfast.cli.up_ports import other_port
from holdfast.model.types import TopicPartition, named

if TYPE_CHECKING:
    import ssl

    from holdfast.cli.local_zookeeper import LocalZooKeeper
    from holdfast.cli.up_console import LocalConsole
    from holdfast.cli.up_login import Login

LOCK_FILE = "up.lock"
STOP_TIMEOUT_S = 10.0
PROBE_PAUSE_S = 0.003
ZOOKEEPER_PAUSE_S = 0.05
LOCK_WAIT_S = 15.0
DOUBT_S, DOUBT_STEP_S = 1.0, 0.02
KILLED_STEP_S = 0.2
_STOPS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
_WATCHED = (*_STOPS, signal.SIGUSR1, signal.SIGCHLD)


LEADERS_WITHIN_S = 3.0
"""After this a partition without a leader is told: elections of a start are over."""
LOOK_AGAIN_S = 0.25
NAMED = 5
"""Partitions that the line at the start names one by one."""


class StartError(Exception):
    """The cluster cannot start; the message says why."""


@dataclass(slots=True)
class _Child:
    """A running broker process. ``pipe`` is the read end of what it has open as long as it lives: a byte tells that
    it serves, the end that it has died."""

    node: BrokerLayout
    pid: int
    pipe: int | None
    is_ready: bool = False


def say(line: str) -> None:
    """One line for the person at the terminal."""
    print(f"holdfast up: {line}", file=sys.stderr, flush=True)


def say_ready(addresses: Sequence[str], console: str | None) -> None:
    """The one line on standard output. Whoever started us may have stopped reading: the cluster runs all the same."""
    page = "" if console is None else f" console={console}"
    try:
        print(f"ready: bootstrap.servers={','.join(addresses)}{page}", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def say_metrics(nodes: Sequence[BrokerLayout]) -> None:
    """Where Prometheus finds them; nothing when they are nowhere."""
    pages = [url for node in nodes if (url := endpoints.metrics_url(node)) is not None]
    if pages:
        say(f"metrics: {', '.join(pages)}")


def leaderless_line(partitions: Sequence[TopicPartition]) -> str:
    """Which partitions nobody can read or write, and what to do about it. Pure."""
    return (
        f"no leader: {named(partitions, NAMED)}. `holdfast topics describe --unavailable-partitions` shows "
        "who had their records: bring back that broker or log directory. "
        "`holdfast elect unclean` goes on without what only it has"
    )


def operators_addresses(nodes: Sequence[BrokerLayout]) -> tuple[str, ...]:
    """Where commands and the console find brokers that change their disks. Pure."""
    if nodes[0].reach.is_loopback or nodes[0].is_secured:
        return tuple(node.address for node in nodes)
    return tuple(f"{node.between.local}:{node.brokers_port}" for node in nodes)


def say_operators(nodes: Sequence[BrokerLayout]) -> None:
    """The same for a person; nothing where clients' address is that of operators."""
    if not (nodes[0].reach.is_loopback or nodes[0].is_secured):
        say(f"for `holdfast log-dirs` on this machine: --bootstrap-server {','.join(operators_addresses(nodes))}")


def say_login(data_dir: str, nodes: Sequence[BrokerLayout]) -> None:
    """By which files clients of a secured cluster find in."""
    if nodes[0].is_secured:
        say(f"clients log in: {data_dir}/client.properties, librdkafka.properties; admin: {data_dir}/admin.properties")


def _is_ours(host: str, port: int) -> bool:
    """Whether a broker can listen there; StartError when the address is not of this machine."""
    try:
        return port_gets_free(port, host)
    except OSError as e:
        raise StartError(not_of_this_machine(host, e)) from None


def lock_directory(path: str) -> int:
    """One ``up`` per data directory. The descriptor returned is the lock; children inherit it. The process that holds
    it stands in the file.

    Waits for the brokers of an earlier run that was killed: they hold the lock until they have ended.
    """
    fd = os.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    limit_s = time.monotonic() + LOCK_WAIT_S
    told = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            return fd
        except BlockingIOError:
            if time.monotonic() > limit_s:
                raise StartError(f"{path} is in use by another 'holdfast up': choose another --data-dir") from None
            if not told:
                say(f"{path} is in use: waiting for the brokers of an earlier run to end")
                told = True
            time.sleep(0.05)


class LocalCluster:
    """Runs ``nodes`` until it is told to stop. ``run`` returns the exit code."""

    def __init__(
        self,
        data_dir: str,
        nodes: Sequence[BrokerLayout],
        run_broker: Callable[..., int],
        zookeeper: "LocalZooKeeper | None" = None,
        console: "LocalConsole | None" = None,
        login: "Login | None" = None,
    ) -> None:
        self._data_dir = data_dir
        self._nodes = list(nodes)
        self._run_broker = run_broker
        self._zookeeper = zookeeper
        self._console = console
        self._login = login
        """None: nobody logs in."""
        self._children: dict[int, _Child] = {}
        self._undead: list[int] = []
        """Killed processes of which a thread waits for a disk: the system tells of their end when it answers."""
        self._doubtful_until_s = 0.0
        """A pipe has ended a moment ago: its process may be ending."""
        self._last_pids: dict[int, int] = {}
        self._wake_fd = -1
        self._wake_write_fd = -1
        self._signals: list[int] = []
        self._stopping = False

    def run(self) -> int:
        """Start, tell, watch, stop. StartError before the first child exists."""
        for node in self._nodes:
            for host, port in node.listens:
                if not _is_ours(host, port):
                    raise StartError(self._taken(node.broker_id, host, port))
        if self._zookeeper is not None and not port_gets_free(self._zookeeper.port):
            raise StartError(f"port {self._zookeeper.port} for the ZooKeeper server is taken: choose another --port")
        self._catch_signals()
        # What exists now is shared with every child: the collector need not touch (and so copy) those pages.
        gc.collect()
        gc.freeze()
        code = 1
        endpoints.take_away(self._data_dir)
        try:
            if self._start_zookeeper() and self._start_missing() and self._wait_ready() and self._make_users():
                say_metrics(self._nodes)
                say_operators(self._nodes)
                say_login(self._data_dir, self._nodes)
                page = None if self._console is None else self._console.url
                endpoints.tell(self._data_dir, self._nodes, page)
                say_ready([node.address for node in self._nodes], page)
                if self._console is not None:
                    self._console.start(operators_addresses(self._nodes))
                self._tell_leaderless()
                while not self._stop_asked():
                    self._turn(None)
            code = 0 if self._stop_asked() else 1
        finally:
            self._stop()
        return code

    def _taken(self, broker_id: int, host: str, port: int) -> str:
        """What to say of it, with a port that is free."""
        free = other_port(self._nodes[0].port, len(self._nodes), host, lambda host, port: port_is_free(port, host))
        other = "" if free is None else f" ({free} is free)"
        return (
            f"port {port} for broker {broker_id} is taken: choose another --port{other}, or stop what listens on"
            f" {host or '0.0.0.0'}:{port}"
        )

    # -- starting ------------------------------------------------------------------------------------------

    def _start_zookeeper(self) -> bool:
        """True when it serves, or there is none; False when a stop was asked for. StartError has what it wrote."""
        if self._zookeeper is None:
            return True
        self._zookeeper.start()
        while not self._zookeeper.serves():
            self._turn(ZOOKEEPER_PAUSE_S)
            if self._stop_asked():
                return False
            if not self._zookeeper.runs:
                raise StartError(f"the ZooKeeper server has ended:\n{self._zookeeper.settings.said().rstrip()}")
        return True

    def _start_missing(self) -> list[int]:
        started = []
        for node in self._nodes:
            if node.broker_id in self._children:
                continue
            taken = [port for host, port in node.listens if not port_gets_free(port, host)]
            if taken:
                say(f"broker {node.broker_id} not started: its port {taken[0]} is taken by another process")
                continue
            self._children[node.broker_id] = self._fork(node)
            started.append(node.broker_id)
        self._last_pids |= {broker_id: child.pid for broker_id, child in self._children.items()}
        pids = json.dumps({str(broker_id): pid for broker_id, pid in sorted(self._last_pids.items())})
        write_atomically(os.path.join(self._data_dir, "pids.json"), pids + "\n")
        return started

    def _fork(self, node: BrokerLayout) -> _Child:
        ready_read, ready_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_broker(node, parent, ready_read, ready_write)
        os.close(ready_write)
        return _Child(node, pid, ready_read)

    def _become_broker(self, node: BrokerLayout, parent: int, ready_read: int, ready_write: int) -> NoReturn:
        """The child: never returns into the parent's code."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in _WATCHED:
                signal.signal(number, signal.SIG_DFL)
            # A group of its own: Ctrl-C in the terminal reaches `up` only, which stops the brokers in order.
            os.setpgid(0, 0)
            die_with_parent(parent)
            for fd in (self._wake_fd, self._wake_write_fd, ready_read):
                os.close(fd)
            for other in self._children.values():
                if other.pipe is not None:
                    os.close(other.pipe)
            if self._console is not None:
                self._console.in_a_child()
            log_file = log_path(self._data_dir, node.broker_id)
            redirect_output(log_file, node.broker_id)
            properties = properties_path(self._data_dir, node.broker_id)
            code = self._run_broker(properties, ready_fd=ready_write, log_path=log_file)
        except BaseException:  # includes SystemExit and KeyboardInterrupt: nothing may unwind into the parent's frames
            logging.getLogger(__name__).exception("broker %d ended by an error", node.broker_id)
        finally:
            logging.shutdown()
            sys.stderr.flush()
            os._exit(code)

    def _wait_ready(self) -> bool:
        """True when every node serves and sees all others; False when one ended or a stop was asked for."""
        unseen = list(self._nodes)
        while unseen:
            waiting = not all(child.is_ready for child in self._children.values())
            self._turn(None if waiting else PROBE_PAUSE_S)
            if self._stop_asked() or len(self._children) < len(self._nodes):
                return False
            if waiting:
                continue
            unseen = [n for n in unseen if not len(brokers_seen_by(*self._place(n))) >= len(self._nodes)]
        return True

    def _place(self, node: BrokerLayout) -> "tuple[str, int, ssl.SSLContext | None]":
        """Where `up` asks a broker itself: as one of the brokers, where everybody has to say who he is."""
        if self._login is None:
            return node.reach.local, node.port, None
        return node.between.local, node.brokers_port, self._login.tls

    def _make_users(self) -> bool:
        """StartError."""
        why = None if self._login is None else self._login.make_users()
        if why is not None:
            raise StartError(why)
        return True

    def _tell_leaderless(self) -> None:
        """One line when partitions stay without a leader: the cluster is ready, and these are not."""
        limit_s = time.monotonic() + LEADERS_WITHIN_S
        while not self._stop_asked():
            live = [node for node in self._nodes if node.broker_id in self._children]
            found = leaderless(*self._place(live[0])) if live else []
            if not found:
                return
            if time.monotonic() > limit_s:
                say(leaderless_line(found))
                return
            self._turn(LOOK_AGAIN_S)

    # -- watching ------------------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        self._wake_fd, self._wake_write_fd = os.pipe()
        os.set_blocking(self._wake_fd, False)
        os.set_blocking(self._wake_write_fd, False)
        for number in _WATCHED:
            # The handler has nothing to do: the number arrives through the wake-up pipe.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write_fd, warn_on_full_buffer=False)

    def _stop_asked(self) -> bool:
        return not _STOPS.isdisjoint(self._signals)

    def _turn(self, timeout_s: float | None) -> None:
        """Waits for one thing to happen, and sees to it."""
        pipes = {c.pipe: c for c in self._children.values() if c.pipe is not None}
        if time.monotonic() < self._doubtful_until_s:
            timeout_s = DOUBT_STEP_S if timeout_s is None else min(timeout_s, DOUBT_STEP_S)
        poll = select.poll()  # select(2) knows the first 1,024 descriptors only
        for fd in (self._wake_fd, *pipes):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(None if timeout_s is None else timeout_s * 1000):
            if fd == self._wake_fd:
                self._signals += drain(fd)
            elif os.read(fd, 1):
                pipes[fd].is_ready = True
            else:
                os.close(fd)
                pipes[fd].pipe = None
                self._doubtful_until_s = time.monotonic() + DOUBT_S
        if signal.SIGCHLD in self._signals or self._doubtful_until_s:
            self._signals = [s for s in self._signals if s != signal.SIGCHLD]
            self._reap()
            if time.monotonic() >= self._doubtful_until_s:
                self._doubtful_until_s = 0.0
        if signal.SIGUSR1 in self._signals:
            self._signals = [s for s in self._signals if s != signal.SIGUSR1]
            self._reap()
            if self._zookeeper is not None and not self._zookeeper.runs and not self._stopping:
                self._zookeeper.start()
                say("the ZooKeeper server is started again")
            for broker_id in [] if self._stopping else self._start_missing():
                say(f"broker {broker_id} started again as process {self._children[broker_id].pid}")
            if self._console is not None and not self._stopping and not self._console.runs:
                self._console.forgive()
                say(f"the console is started again as process {self._console.start(operators_addresses(self._nodes))}")

    def _reap(self) -> None:
        if self._zookeeper is not None and self._zookeeper.reap() and not self._stopping:
            say(f"the ZooKeeper server has ended: see {self._zookeeper.settings.folder}; SIGUSR1 starts it again")
        self._reap_console()
        self._undead = [pid for pid in self._undead if not os.waitpid(pid, os.WNOHANG)[0]]
        for broker_id, child in list(self._children.items()):
            pid, status = wait_for_all_threads(child.pid)
            if pid == 0:
                found = status_of_first_thread(child.pid)
                if found is None:
                    continue
                status = found
                self._undead.append(child.pid)
            del self._children[broker_id]
            if child.pipe is not None:
                os.close(child.pipe)
            if not self._stopping and not self._stop_asked():
                more = "" if pid else "; a thread of it waits for a disk"
                say(self._obituary(child, os.waitstatus_to_exitcode(status)) + more)

    def _reap_console(self) -> None:
        """Unlike a broker it is started again: it holds nothing, and a page that is open waits for it."""
        how = None if self._console is None else self._console.reap()
        if self._console is None or how is None or self._stopping or self._stop_asked():
            return
        if self._console.may_start:
            say(f"{how}; started again as process {self._console.start()}")
        else:
            say(f"{how}; it is not started again before SIGUSR1")

    def _obituary(self, child: _Child, code: int) -> str:
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}: see {log_path(self._data_dir, child.node.broker_id)}"
        return f"broker {child.node.broker_id} (process {child.pid}) {how}"

    # -- stopping ------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """SIGTERM to all; a second signal or ten seconds turn it into SIGKILL."""
        self._stopping = True
        endpoints.take_away(self._data_dir)
        if self._console is not None:
            self._console.stop()
        asked = len(self._signals)
        self._signal_children(signal.SIGTERM)
        limit_s = time.monotonic() + STOP_TIMEOUT_S
        killed = False
        while self._children:
            self._turn(max(0.0, limit_s - time.monotonic()) if not killed else KILLED_STEP_S)
            self._reap()
            impatient = len(self._signals) > asked
            if self._children and not killed and (impatient or time.monotonic() >= limit_s):
                names = ", ".join(str(broker_id) for broker_id in sorted(self._children))
                why = "asked again" if impatient else f"not over within {STOP_TIMEOUT_S:g} s"
                say(f"stop {why}: killing broker {names}")
                self._signal_children(signal.SIGKILL)
                killed = True
        if self._console is not None:
            self._console.close()
        if self._zookeeper is not None:
            self._zookeeper.close()

    def _signal_children(self, number: signal.Signals) -> None:
        for child in self._children.values():
            os.kill(child.pid, number)


def drain(fd: int) -> list[int]:
    """All bytes that a non-blocking descriptor has."""
    found: list[int] = []
    while True:
        try:
            part = os.read(fd, 512)
        except BlockingIOError:
            return found
        found += part
        if len(part) < 512:
            return found


def redirect_output(path: str, broker_id: int) -> None:
    """Output goes to the node's file; warnings go to the terminal of ``up`` besides."""
    from holdfast.broker.log_lines import LogLines

    terminal = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    warnings = LogLines(terminal)  # the terminal may be stopped, and nobody waits for it
    warnings.setLevel(logging.WARNING)
    warnings.setFormatter(logging.Formatter(f"%(levelname)s [broker-{broker_id}] %(message)s"))
    logging.getLogger("holdfast").addHandler(warnings)
