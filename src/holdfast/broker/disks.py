"""The log directories of a running broker: their probes, their failures, and how they come back.

Owns what follows on this broker when a directory fails or is loaded again, and the operator's four wishes: offline,
online, add, remove. What the controller hears of it is replica_news.py, the probes are disk_probes.py. The tables are
the log manager's (storage/dir_changes.py), the roles the replicas'; what follows in the cluster is the controller's
(controller/replicas.py).

    OSError > LogDir.judge > _failed: partitions stop, whoever waits is answered > heartbeat > others are elected
    online() > another LogDir, loaded > heartbeat: back, damaged > LeaderAndIsr > it follows, and joins the ISR

A dir that fails has all its files closed, so that it can be unmounted, mended and mounted again while we run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import posixpath
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.broker.disk_probes import DiskProbes, ProbesHost
from holdfast.broker.disk_status import DiskStatus, StatusHost, replicas_on, status_of
from holdfast.broker.last_copies import refuse_last_copies
from holdfast.broker.new_dirs import LooksBefore, look_before
from holdfast.broker.properties_file import KeepsLogDirs, keep_log_dirs
from holdfast.broker.replica_news import NewsHost, ReplicaNews
from holdfast.model.config import absolute_path
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    KafkaStorageError,
    LogDirNotFoundError,
)
from holdfast.model.fates import ReplicaFate
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import TopicPartition
from holdfast.replication.types import Role
from holdfast.storage import dir_changes
from holdfast.storage.dir_state import DirState
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir

if TYPE_CHECKING:
    from holdfast.broker.cordons import Cordons
    from holdfast.broker.meters import Meters
    from holdfast.broker.server import Server
    from holdfast.metadata.store import MetadataStore

log = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 60.0
"""How long a directory may take to be loaded when it comes back; one that hangs is left as it was."""
_TAKE_S = 2.0
"""How long clients may take to receive what was read from a directory before it failed."""
_AGAIN_S = 1.0
"""Until the files of a directory are to be given back again, where so much waits for it that that was refused."""
_RETURNS_KEPT = 16


class DisksHost(StatusHost, LooksBefore, KeepsLogDirs, ProbesHost, NewsHost, Protocol):
    """What the log directories ask of the broker."""

    server: Server
    cordons: Cordons
    store: MetadataStore
    meters: Meters | None

    def now_ms(self) -> int: ...

    def end_threads(self, log_dir: LogDir) -> None: ...

    def fatal(self, reason: str) -> None: ...

    def hosts(self, tp: TopicPartition) -> bool: ...


class Disks:
    """See the module's docstring. Everything on the loop, but the callbacks of LogDir."""

    def __init__(self, broker: DisksHost) -> None:
        self._broker = broker
        self.news = ReplicaNews(broker)
        self._probes = DiskProbes(broker, strain=self.news.strain, relieve=self.news.relieve)
        self._looking: set[LogDir] = set()
        """Directories that are awaited and have been asked."""
        self._changing: set[str] = set()
        self._returning: deque[asyncio.Future[None]] = deque(maxlen=_RETURNS_KEPT)
        self._serves = False

    def make(self, path: str) -> LogDir:
        """A LogDir with threads of its own."""
        name = f"disk-{posixpath.basename(path)}"
        broker = self._broker
        threads = [broker.thread(name + lane) for lane in ("", "-sync", "-background")]
        broker.platform.works_on(path, threads)
        made = LogDir(
            path,
            broker.platform.files,
            threads[0],
            sync_queue=threads[1],
            background=threads[2],
            on_offline=self._on_loop(self._failed),
            on_full=self._on_loop(self._filled),
            on_log_failed=self._on_loop(self._log_failed),
            clock=broker.now_ms,
        )
        made.cordoned = broker.cordons.holds(path)
        if broker.meters is not None:
            made.meter = broker.meters.of_dir(path)
        return made

    def _on_loop(self, what: Any) -> Any:
        return lambda *args: self._broker.loop.call_soon_threadsafe(what, *args)

    def serve(self) -> None:
        """The logs are loaded and the replicas are there: failures have consequences from now on."""
        self._serves = True
        self.news.begin()
        for directory in self._broker.logs.dirs:
            if not directory.is_online:
                dir_changes.release(self._broker.logs, directory)

    # -- what goes wrong ---------------------------------------------------------------------------------------

    def _failed(self, directory: LogDir, error: KafkaStorageError) -> None:
        broker = self._broker
        if not self._serves or directory not in broker.logs.dirs:
            return
        broker.logs.past.failed(directory)
        if not any(d.is_online for d in broker.logs.dirs):
            paths = ", ".join(d.path for d in broker.logs.dirs)
            broker.fatal(f"Shutdown broker because all log dirs in {paths} have failed")
            return
        lost = [each.topic_partition for each in broker.logs.logs_in(directory)]
        self._tell_lost(directory, lost)
        broker.moves.dir_failed(directory)
        broker.replicas.log_dir_failed(directory, broker.now_ms())
        broker.logs.new.dir_failed(directory)
        self.news.failed(lost)
        broker.membership.beat()
        broker.store.log_dir_failed()
        dir_changes.release(broker.logs, directory, partial(broker.loop.call_later, _AGAIN_S))
        broker.loop.call_later(_TAKE_S, broker.server.let_go, directory)
        timeout_ms = broker.config.int("log.dir.failure.timeout.ms")
        broker.loop.call_later(timeout_ms / 1000, self._check_reported, directory, timeout_ms)

    def _tell_lost(self, directory: LogDir, lost: list[TopicPartition]) -> None:
        partitions = self._broker.replicas.partitions
        led = sum(tp in partitions and partitions[tp].role is Role.LEADER for tp in lost)
        counts = told(LogEvent.DIR_REPLICAS_OFFLINE, dir=directory.path, replicas=len(lost), led=led)
        log.warning("%d replicas were on log dir %s, %d of them led", len(lost), directory.path, led, extra=counts)

    def _check_reported(self, directory: LogDir, timeout_ms: int) -> None:
        """While the controller does not know of a dead directory its partitions have no leader: better none of
        this broker than that (H-21)."""
        broker = self._broker
        known = directory.directory_id is None or directory.directory_id in broker.membership.reported_dirs
        if directory in broker.logs.dirs and not known:
            broker.fatal(
                f"Shutdown broker because the controller could not be told within {timeout_ms} ms that log directory "
                f"{directory.path} has failed"
            )

    def _log_failed(self, directory: LogDir, failed: Log) -> None:
        """One log, not its directory (K18-03)."""
        broker, tp = self._broker, failed.topic_partition
        if not self._serves or not dir_changes.fail_log(broker.logs, failed, failed.failure or KafkaStorageError("")):
            return
        broker.logs.past.failed(directory)  # what this directory has of it is not all that was written
        broker.replicas.log_failed(tp)
        self.news.failed((tp,))
        broker.membership.beat()

    def _filled(self, directory: LogDir, is_full: bool) -> None:
        if directory not in self._broker.logs.dirs:
            return
        if is_full:
            self.news.strain(directory)
        else:
            self._broker.logs.past.renew()
            self.news.relieve()

    # -- probes ------------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Ask every directory that is online whether it works, each on its own thread, and look at those that have
        not answered the last time."""
        for directory in self._broker.logs.dirs:
            if not directory.is_online:
                self._look_for_room(directory)
            elif self._probes.ask(directory) and directory.health.is_strained:
                self.news.strain(directory)
        self.news.relieve()
        logs = self._broker.logs
        if any(logs.new.has_place(tp) for tp in logs.standings.wanted()):
            self._make_up_for_refusals()

    def _look_for_room(self, directory: LogDir) -> None:
        """A directory that was full when it was to be loaded, or did not answer, is no dead one: it is used once it can
        be."""
        if not directory.is_awaited or directory.path in self._changing or directory in self._looking:
            return

        def looked(is_fit: bool | None, error: HoldfastError | None) -> None:
            self._looking.discard(directory)
            if is_fit and directory in self._broker.logs.dirs and directory.path not in self._changing:
                log.warning("log dir %s can be loaded now", directory.path)
                self._returning.append(asyncio.ensure_future(self._return(directory)))

        self._looking.add(directory)
        directory.queue.submit(partial(_is_fit, directory), looked)

    async def _return(self, directory: LogDir) -> None:
        try:
            await self.online(directory.path)
        except HoldfastError as e:
            log.warning("log dir %s stays offline: %s", directory.path, e)

    # -- what operators wish -----------------------------------------------------------------------------------

    def _find(self, path: str) -> LogDir:
        wanted = posixpath.normpath(path)
        for directory in self._broker.logs.dirs:
            if posixpath.normpath(directory.path) == wanted:
                return directory
        paths = ", ".join(d.path for d in self._broker.logs.dirs)
        me = self._broker.broker_id
        raise LogDirNotFoundError(f"{path} is no log directory of broker {me}: expected one of {paths}")

    async def online(self, path: str) -> None:
        """Use a directory again that has failed and was mended, replaced by an empty one, or taken offline by hand.

        LogDirNotFoundError (57): there is no such directory. KafkaStorageError (56): it is still bad; why.
        """
        directory = self._find(path)
        if not directory.is_online:
            await self._load(directory, directory.path)
            await keep_log_dirs(self._broker)

    async def add(self, path: str, *, create: bool = False) -> None:
        """Use one more directory: one that is there and holds nothing but what a broker writes, unless ``create``.
        ``log.dirs`` of the properties file is the operator's to change as well, except with ``holdfast up``."""
        wanted = posixpath.normpath(path)
        for directory in self._broker.logs.dirs:
            if posixpath.normpath(directory.path) == wanted:
                raise InvalidRequestError(f"{path} is a log directory of broker {self._broker.broker_id} already")
        if not posixpath.isabs(wanted):
            raise InvalidRequestError(f"log directory {path}: expected an absolute path")
        if not create:
            await look_before(self._broker, wanted)
        await self._load(None, wanted)
        await keep_log_dirs(self._broker)

    async def _load(self, old: LogDir | None, path: str) -> None:
        broker = self._broker
        if path in self._changing:
            raise InvalidRequestError(f"{path} is being loaded already")
        self._changing.add(path)
        new = self.make(path)
        new.is_offered = old is None
        result: asyncio.Future[HoldfastError | None] = broker.loop.create_future()

        def done(error: HoldfastError | None) -> None:
            if error is None:
                self._make_up_for_refusals()
            if not result.done():
                result.set_result(error)

        try:
            dir_changes.restore(broker.logs, old, new, broker.now_ms(), done, gives_way=self._gives_way)
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                error = await result
        except TimeoutError:
            error = KafkaStorageError(f"log dir {path} was not loaded within {LOAD_TIMEOUT_S:.0f} s")
            new.is_awaited = old is not None and old.is_awaited
            new.mark_offline(error)
        finally:
            self._changing.discard(path)
        if error is not None:
            if old is not None:
                old.is_awaited = new.is_awaited
            broker.end_threads(new)
            raise error if isinstance(error, KafkaStorageError) else KafkaStorageError(str(error))
        new.is_offered = False
        new.cordoned = broker.cordons.holds(new.path)  # it may have changed meanwhile
        self.news.is_back(new)
        if old is not None:
            self._forget(old)
        event = LogEvent.DIR_ADDED if old is None else LogEvent.DIR_ONLINE
        log.warning("log dir %s is %s", path, "added" if old is None else "online again", extra=told(event, dir=path))
        broker.membership.beat()
        broker.moves.resume()

    def _gives_way(self, tp: TopicPartition) -> bool:
        """Whether a copy without records, made while its directory was away, may go. The controller hears of it as of
        one that fails and is back: it forgets what it knew of the one that goes."""
        info, me = self._broker.metadata.partition(tp), self._broker.broker_id
        if info is None or me == info.leader or me in info.isr or not self._broker.replicas.give_way(tp):
            return False
        self.news.failed((tp,))
        return True

    def _make_up_for_refusals(self) -> None:
        """What could have been on a directory that could not be read, and is on none of them, was never made, or is
        lost. It was refused as long as that was not known. So was what was to be made new on a directory that was
        bad."""
        broker, logs = self._broker, self._broker.logs
        known = all(d.is_online for d in logs.dirs)
        for topic, partitions in broker.metadata.topics.items():
            for number, info in partitions.items():
                tp = TopicPartition(topic, number)
                partition = broker.replicas.partitions.get(tp)
                here = partition is not None and (partition.log is not None or partition.role is not Role.OFFLINE)
                here = here or logs.get(tp) is not None or tp in logs.standings.failed
                here = here or logs.standings.fate(tp) is not None
                wished = logs.standings.is_refused(tp) and logs.new.has_place(tp)
                if broker.broker_id in info.replicas and not here and (known or wished):
                    # One that was refused never had anything that it could have lost: it may lead.
                    was_made = not logs.standings.is_refused(tp)
                    logs.standings.back(tp, ReplicaFate.LOST if was_made else ReplicaFate.DAMAGED)
        broker.replicas.forget_offline(broker.hosts)
        self.news.note_returned()

    def there_is_a_place(self) -> None:
        """A directory is not cordoned any more: replicas that had no place are made."""
        self._make_up_for_refusals()
        self._broker.membership.beat()

    def _forget(self, directory: LogDir) -> None:
        self._probes.forget(directory)
        self._broker.end_threads(directory)

    async def offline(self, path: str, *, force: bool) -> None:
        """Use a directory no more, as if it had failed. InvalidRequestError for the last good one, and, without
        ``force``, for one that has the last copy of something."""
        directory = self._find(path)
        if directory.is_online:
            self._keep_one(directory)
            if not force:
                self._refuse_last_copies(directory, "nobody can read or write that while it is offline")
            if self._has_all_metadata(directory):
                raise InvalidRequestError(
                    f"{directory.path} also holds the only copy of the metadata: give metadata.log.dirs one on another "
                    f"disk first"
                )
            directory.mark_offline(KafkaStorageError(f"log dir {directory.path} was taken offline by hand"))

    def _has_all_metadata(self, directory: LogDir) -> bool:
        """Every copy of the metadata lies in it: with it this process could decide nothing (D13)."""
        inside = absolute_path(directory.path)
        copies = self._broker.store.directories
        return bool(copies) and all(posixpath.commonpath((inside, path)) == inside for path in copies)

    def _keep_one(self, directory: LogDir) -> None:
        if not any(d.is_online for d in self._broker.logs.dirs if d is not directory):
            raise InvalidRequestError(
                f"{directory.path} is the last log directory that broker {self._broker.broker_id} can use"
            )

    def _refuse_last_copies(self, directory: LogDir, then: str) -> None:
        broker, held = self._broker, self._broker.logs.held_by(directory)
        refuse_last_copies(broker.metadata, broker.broker_id, directory.path, held, then)

    async def remove(self, path: str, *, force: bool) -> None:
        """Have one directory less: an empty one, or one that is offline; its replicas are then made anew on the others
        (K112-41). InvalidRequestError if it holds replicas that are served, or, without ``force``, if the others have
        too little room for what it held (K112-43), or if it has the last copy of something."""
        directory = self._find(path)
        self._keep_one(directory)
        logs = self._broker.logs
        held = logs.held_by(directory)
        if held and directory.is_online:
            raise InvalidRequestError(
                f"{directory.path} holds {len(held)} replicas: move them first, or take it offline and lose this copy"
            )
        needed = sum(held.values())
        rooms = (logs.space_of(d) for d in logs.dirs if d is not directory and d.answers)
        usable = sum(room.usable for room in rooms if room is not None)
        self._broker.absent.check_removal(directory, force=force)
        if needed > usable and not force:
            raise InvalidRequestError(
                f"the replicas of {directory.path} need {needed} bytes, the other log directories have {usable}"
            )
        if not force:
            self._refuse_last_copies(directory, "that is lost when it is removed")
        self._broker.moves.dir_failed(directory)
        dir_changes.take_away(logs, directory)
        logs.past.removed(directory.path)
        self._broker.loop.call_later(_TAKE_S, self._broker.server.let_go, directory)
        self._forget(directory)
        self._make_up_for_refusals()
        log.warning("log dir %s is removed", directory.path, extra=told(LogEvent.DIR_REMOVED, dir=directory.path))
        self._broker.membership.beat()
        await keep_log_dirs(self._broker)

    # -- description -------------------------------------------------------------------------------------------

    def describe(self) -> list[DiskStatus]:
        """All directories."""
        return [
            dataclasses.replace(self.describe_one(directory), replicas=replicas_on(self._broker, directory))
            for directory in self._broker.logs.dirs
        ]

    def describe_one(self, directory: LogDir) -> DiskStatus:
        """One directory without what is on it, of which there may be thousands."""
        return status_of(self._broker, directory, self._probes.last_ms(directory))


def _is_fit(directory: LogDir) -> bool:
    if directory.state is DirState.SILENT:
        directory.knock()  # it returns when there is an answer
        return True
    try:
        return directory.has_room()
    except OSError:  # it is worse than full by now
        return False
