"""One simulated broker: the real shell (broker/app.py) as a process of the simulation, and what can happen to it.

Owns the life of the process (start, kill -9, SIGSTOP, SIGTERM, loss of power), its disks, its clock and its
threads. Nothing of the broker is replaced but its Platform.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from holdfast.broker.app import Broker
from holdfast.broker.disk_io import DEFAULT_LIMIT
from holdfast.broker.platform import Platform, WorkThread
from holdfast.coordination.lanes import InlineLanes, Lanes
from holdfast.coordination.stores import EnsembleClients, ensemble_clients
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import DiskQueueFullError, HoldfastError, KafkaStorageError
from tests.simulation.device import CrashNow, ProcessGone, WouldBlock
from tests.simulation.dir_watch import DirWatch
from tests.simulation.disk import RoutedFiles, SimDisk
from tests.simulation.loop import PROCESS, SimLoop
from tests.simulation.network import Network

log = logging.getLogger(__name__)

CLOCKS_APART_S = 2.0
"""At most, of two machines whose clocks did not jump."""


class SimProcess:
    """One incarnation of a broker, or a client."""

    def __init__(self, loop: SimLoop, machine: str) -> None:
        self.loop = loop
        self.machine = machine
        self.alive = True
        self.stopped = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.tasks_kept = 1000
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """A task of this process."""
        return self.loop.create_task(coroutine, context=self.context.copy())

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run something as this process, now."""
        return self.context.copy().run(work, *args)

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.stopped:
            self.stopped = False
            self.loop.go_on(self)


class SimThread:
    """A WorkThread in virtual time: takes a while before and after each piece of work, one piece at a time."""

    def __init__(self, node: Node, process: SimProcess, name: str) -> None:
        self._node = node
        self._process = process
        self.name = name
        self._work: deque[tuple[Callable[[], Any], Callable[[Any, Any], None], float]] = deque()
        """Work, what is told of it, and when it was given."""
        self._busy = False
        self._due: asyncio.TimerHandle | None = None
        self.completed = 0
        node.threads.append(self)

    def submit(self, work: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        if len(self._work) >= DEFAULT_LIMIT:
            done(None, DiskQueueFullError(f"{self.name}: {len(self._work)} operations wait for the disk"))
            return
        self._work.append((work, done, self._process.loop.time()))
        if not self._busy:
            self._busy = True
            self._start()

    def close(self) -> None:
        """Threads of a simulation just end."""

    def _start(self) -> None:
        rng, loop = self._node.rng, self._process.loop
        delay = rng.uniform(*self._node.disk_s)
        if rng.random() < self._node.slow_disk_share:
            delay += rng.uniform(*self._node.slow_disk_s)
        self._at(loop.time() + delay)

    def _at(self, when_s: float) -> None:
        when_s = max(when_s, self._node.hangs_until(self.name))
        self._due = self._process.loop.call_at(when_s, self._run, context=self._process.context.copy())

    def thaw(self) -> None:
        """Its disk answers again, sooner than it was to."""
        if self._due is not None and self._process.alive:
            self._due.cancel()
            self._at(self._process.loop.time())

    def _run(self) -> None:
        self._due = None
        if self._node.hangs_until(self.name) > self._process.loop.time():  # since it has begun
            self._at(0.0)
            return
        work, done, self._node.asked_s = self._work[0]
        result: Any = None
        error: HoldfastError | None = None
        try:
            result = work()
        except WouldBlock as e:
            e.lock.when_free.append(self._start)
            return
        except HoldfastError as e:
            error = e
        except ProcessGone:
            return
        except CrashNow:
            self._node.kill()
            return
        except Exception as e:
            self._node.unexpected(f"{self.name}: {type(e).__name__}: {e}", e)
            error = KafkaStorageError(f"{self.name}: {type(e).__name__}: {e}")
        if not self._process.alive:
            return
        self._work.popleft()
        self._node.disk_worked()
        self._process.loop.call_soon(self._done, done, result, error)
        if self._work:
            self._start()
        else:
            self._busy = False

    def _done(self, done: Callable[[Any, Any], None], result: Any, error: HoldfastError | None) -> None:
        self.completed += 1
        done(result, error)


class Node:
    """Broker number ``broker_id`` with its machine; at most one incarnation lives at a time."""

    def __init__(
        self,
        broker_id: int,
        loop: SimLoop,
        network: Network,
        rng: random.Random,
        store_disks: Sequence[SimDisk],
        properties: dict[str, str],
        on_change: Callable[[Node], None],
        on_unexpected: Callable[[str, BaseException | None], None],
    ) -> None:
        self.broker_id = broker_id
        self.machine = f"10.0.0.{broker_id}"
        self.loop = loop
        self.network = network
        self.rng = rng
        self.on_change = on_change
        self.unexpected = on_unexpected
        self.disks = [self._disk() for _ in range(2)]
        self.store_disks = store_disks
        """Of the two copies of the metadata, and of the notes of which is good."""
        self.root_disk = SimDisk(rng, now_ms=self.wall_ms)
        """What the others are mounted on."""
        self.clock_offset_s = 1.7e9 + rng.uniform(-CLOCKS_APART_S / 2, CLOCKS_APART_S / 2)
        self.disk_s = (0.00002, 0.0005)
        self.slow_disk_share, self.slow_disk_s = 0.01, (0.01, 0.3)
        self.boot = 1
        self.incarnations = 0
        self.process: SimProcess | None = None
        self.broker: Broker | None = None
        self.threads: list[SimThread] = []
        self._hangs_until = [0.0] * len(self.disks)
        """Virtual time until which each disk answers nothing, whichever process asks."""
        self.ended: asyncio.Future[int] | None = None
        self.asked_s = 0.0
        """When what a disk does now was asked for."""
        self.dirs = DirWatch(self, lambda what: on_unexpected(what, None))
        self.lanes: Callable[[int, SimProcess], Lanes] = lambda broker_id, process: InlineLanes()
        """How a process asks the metadata directories."""
        self.thread: Callable[[Node, SimProcess, str], WorkThread] = SimThread
        self.ensemble: Callable[[Node, SimProcess], EnsembleClients] = lambda node, process: ensemble_clients
        """How a process reaches a ZooKeeper ensemble."""
        self.gives_up: Callable[[Exception], bool] = lambda error: False
        """Whether a process rightly ends with this."""
        self.when_gone: Callable[[SimProcess], None] = lambda process: None
        """Told the end of every process, when it does nothing any more."""
        self._properties = properties
        network.up.add(self.machine)

    def _disk(self) -> SimDisk:
        disk = SimDisk(self.rng, now_ms=self.wall_ms)
        disk.forgetful = 0.0  # disk_faults.py says when
        return disk

    @property
    def alive(self) -> bool:
        """Whether a process of it runs (or is stopped)."""
        return self.process is not None and self.process.alive

    @property
    def was_bad(self) -> bool:
        """Some directory of it was not what it is to be, ever since its disks are new."""
        return self.dirs.was_offline or any(disk.was_bad for disk in self.disks)

    def wall_ms(self) -> int:
        """This machine's clock."""
        return int((self.loop.time() + self.clock_offset_s) * 1000)

    def config(self) -> BrokerConfig:
        """As from its server.properties."""
        return BrokerConfig.parse(
            {
                "node.id": str(self.broker_id),
                "listeners": f"PLAINTEXT://{self.machine}:9092,INTERNAL://{self.machine}:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                "log.dirs": f"/n{self.broker_id}/d0,/n{self.broker_id}/d1",
                "metadata.log.dirs": "/c/store,/c/store-2",
                "metadata.witness.dirs": "/c/w",
                # Records carry the client's time, which begins in 1970: by age they would all be due at once.
                "log.retention.ms": "-1",
                **self._properties,
            }
        )

    def start(self) -> None:
        """Start the process, on a machine that has power."""
        assert not self.alive
        if self.machine not in self.network.up:
            self.network.machine_up(self.machine)
        self.incarnations += 1
        self.broker = None
        self.dirs.started()
        process = self.process = SimProcess(self.loop, self.machine)
        self.threads = []
        files = RoutedFiles(
            {
                f"/n{self.broker_id}/d0": self.disks[0].mount(process),
                f"/n{self.broker_id}/d1": self.disks[1].mount(process),
                "/c/store": self.store_disks[0].mount(process),
                "/c/store-2": self.store_disks[1].mount(process),
                "/c/w": self.store_disks[2].mount(process),
                "/c": self.root_disk.mount(process),
                f"/n{self.broker_id}": self.root_disk.mount(process),
            }
        )
        rng = random.Random(self.rng.getrandbits(64))
        platform = Platform(
            files=files,
            wall_s=lambda: self.loop.time() + self.clock_offset_s,
            monotonic_s=self.loop.time,
            thread=lambda name, _: self.thread(self, process, name),
            listen=lambda host, port: self.network.listen(process, host, port),  # type: ignore[arg-type,return-value]
            rng=rng,
            random_bytes=bytes,  # nobody guesses, and chance is for faults
            new_id=lambda: UUID(int=rng.getrandbits(128), version=4),
            lanes=lambda _: self.lanes(self.broker_id, process),
            ensemble=self.ensemble(self, process),
            boot_id=f"machine-{self.broker_id}-boot-{self.boot}",
            tick_s=0.5,
            unchecked_batches=10,
        )
        self.ended = self.loop.create_future()
        process.spawn(self._main(process, platform))

    async def _main(self, process: SimProcess, platform: Platform) -> None:
        code = 1
        try:
            broker = self.broker = Broker(self.config(), platform)
            starting = self.loop.create_task(broker.start())
            stopping = self.loop.create_task(broker.stopping.wait())
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
            else:
                starting.cancel()
            if hasattr(broker, "membership"):
                await broker.stop()
            code = broker.exit_code
        except Exception as e:
            if not self.gives_up(e):
                self.unexpected(f"broker {self.broker_id} could not run: {type(e).__name__}: {e}", e)
        self._gone(process, code)

    def _gone(self, process: SimProcess, code: int) -> None:
        if not process.alive:
            return
        self.on_change(self)  # what it did last counts
        process.alive = False
        process.held.clear()
        self.loop.bury(process)
        for disk in (*self.disks, *self.store_disks, self.root_disk):
            disk.kill(process)
        self.network.process_ended(process)
        self.when_gone(process)
        self.on_change(self)
        assert self.ended is not None
        if not self.ended.done():
            self.ended.set_result(code)

    # -- what can happen to it ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9: what was written is kept, the kernel closes its connections."""
        if self.process is not None:
            self._gone(self.process, -9)

    def lose_power(self) -> None:
        """The machine loses its power: what was not flushed is lost, nobody hears of it."""
        self.network.machine_down(self.machine)
        self.kill()
        self.boot += 1
        for disk in self.disks:
            disk.power_loss(self.rng)

    def wipe(self) -> None:
        """kill -9, and somebody replaces the disks by empty ones."""
        self.kill()
        self.disks = [self._disk() for _ in self.disks]
        self._hangs_until = [0.0] * len(self.disks)

    def terminate(self) -> None:
        """SIGTERM."""
        if self.alive and self.broker is not None:
            assert self.process is not None
            self.process.call(self.broker.stopping.set)

    def crash_after(self, operations: int | None) -> None:
        """Have the process killed in the middle of this many disk operations from now; None: not any more."""
        left = operations or 0

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                for disk in self.disks:
                    disk.fault = None
                raise CrashNow(f"in {operation} of {path}")

        for disk in self.disks:
            disk.fault = None if operations is None else count

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """What is read in here is read by an onlooker: no fault befalls it."""
        before = [(disk, disk.fault, disk.trouble, disk.onlooker) for disk in self.disks]
        for disk in self.disks:
            disk.fault = disk.trouble = disk.onlooker = None
        try:
            yield
        finally:
            for disk, fault, trouble, onlooker in before:
                disk.fault, disk.trouble, disk.onlooker = fault, trouble, onlooker

    def hang_disk(self, index: int, seconds: float) -> None:
        """One log directory answers nothing for a while."""
        self._hangs_until[index] = max(self._hangs_until[index], self.loop.time() + seconds)

    def hung(self) -> set[int]:
        """Which log directories answer nothing now."""
        return {index for index, until_s in enumerate(self._hangs_until) if until_s > self.loop.time()}

    def end_hangs(self) -> None:
        """All answer again; what waits lands."""
        self._hangs_until = [0.0] * len(self.disks)
        for thread in self.threads:
            thread.thaw()

    def hangs_until(self, thread: str) -> float:
        """Until when the disk of a thread answers nothing."""
        return max((s for i, s in enumerate(self._hangs_until) if thread.startswith(f"disk-d{i}")), default=0.0)

    def disk_worked(self) -> None:
        """A thread did something: logs may have changed."""
        self.on_change(self)
