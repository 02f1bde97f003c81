"""The composition root: one broker from its configuration to its last byte. Its process is process.py.

Owns the order of starting and stopping, and nothing that decides:

    config -> disks -> logs -> listeners -> controller candidate -> registration -> serving
    SIGTERM -> controlled shutdown -> listeners closed -> logs closed clean -> exit 0

All state changes happen on the event loop; files are touched on the thread of their log directory.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Coroutine
from typing import Any

from holdfast.broker import disk_start, dynamic_config
from holdfast.broker.absent_dirs import AbsentDirs
from holdfast.broker.access import Access
from holdfast.broker.admission import Admission
from holdfast.broker.certificates import Certificates
from holdfast.broker.cleaner import LogCleaner
from holdfast.broker.controller_loop import ControllerLoop
from holdfast.broker.coordinator_host import Coordinators
from holdfast.broker.cordons import Cordons
from holdfast.broker.disks import Disks
from holdfast.broker.dispatch import Dispatcher
from holdfast.broker.farewell import clients_gone, logs_closed
from holdfast.broker.gate import Gate
from holdfast.broker.group_shell import GroupShell
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.identity import host_key
from holdfast.broker.kept_ids import KeptIds
from holdfast.broker.listening import when_free
from holdfast.broker.membership import Identity, Membership
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache
from holdfast.broker.meters import Meters
from holdfast.broker.metrics_server import MetricsServer
from holdfast.broker.moves import Moves
from holdfast.broker.outbox import BrokerOutbox
from holdfast.broker.platform import Platform, WorkThread
from holdfast.broker.producer_ids import ProducerIdShell
from holdfast.broker.quota_view import QuotaView
from holdfast.broker.quotas import ClientQuotas
from holdfast.broker.reigns import Reigns
from holdfast.broker.replica_fetcher import ReplicaFetchers
from holdfast.broker.server import Server
from holdfast.broker.strangers import StrangerLimits
from holdfast.broker.topic_creation import TopicCreation
from holdfast.broker.topic_notes import TopicNotes
from holdfast.broker.transaction_shell import TransactionShell
from holdfast.broker.transactional_appends import TransactionalAppends
from holdfast.broker.txn_verification import TxnVerification
from holdfast.broker.user_view import UserView
from holdfast.client.outgoing import Outgoing
from holdfast.controller.settings import ControllerSettings
from holdfast.coordination.stores import open_store
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.metadata.store import Candidate, MetadataStore, Presence
from holdfast.model.config import BrokerConfig, LogConfig
from holdfast.model.config_connection_keys import REQUEST_TIMEOUT
from holdfast.model.listeners import Endpoints, Listening
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import BrokerEpoch, TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import decode_response, encode_body, parse_response_header
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.replication.local_replicas import FetchSessions, LocalReplicas
from holdfast.replication.types import ReplicationSettings
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_manager import LogManager
from holdfast.storage.new_replicas import Placement
from holdfast.transactions.coordinator import TransactionCoordinator

log = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_S = 3.0
EXIT_DISKS_FAILED = 1
DEPARTED_S = 3.0
"""How long clients are told the address of a broker that died."""
SUSPICION_S = 1.0
"""How long a broker counts as leaderless for clients when the controller says nothing of it."""


class Broker:
    """One node. Attributes are its parts; each of these says by a Protocol of its own what it uses of the others."""

    # Made by ``start``, in this order.
    store: MetadataStore
    kept_ids: KeptIds | None
    reigns: Reigns
    cluster_id: str
    cordons: Cordons
    disks: Disks
    logs: LogManager
    absent: AbsentDirs
    topic_creation: TopicCreation
    fetchers: ReplicaFetchers
    producer_ids: ProducerIdShell
    txn_verification: TxnVerification
    transactional_appends: TransactionalAppends
    coordinators: Coordinators
    groups_shell: GroupShell
    groups: GroupCoordinator
    transactions_shell: TransactionShell
    transactions: TransactionCoordinator
    replicas: LocalReplicas
    fetch_sessions: FetchSessions
    moves: Moves
    topic_notes: TopicNotes
    housekeeping: Housekeeping
    dispatcher: Dispatcher
    admission: Admission
    server: Server
    membership: Membership

    def __init__(self, config: BrokerConfig, platform: Platform | None = None) -> None:
        self.config = config
        self.platform = platform or Platform.real()
        self.broker_id = config.node_id
        self.loop = asyncio.get_running_loop()
        self._clock_base = self.platform.wall_s() - self.platform.monotonic_s()
        self.metadata = MetadataCache()
        self.outgoing = Outgoing.of(config)
        self.certificates = Certificates(self)
        port = config.int("metrics.port")
        self.meters = Meters() if port else None
        host = config.optional_str("metrics.host") or config.listeners[0].host
        self.metrics = MetricsServer(self, host, port) if port else None
        self.controller: ControllerLoop | None = None
        self.list_changes = asyncio.Lock()
        self.stopping = asyncio.Event()
        self.exit_code = 0
        self.properties_path: str | None = None
        """The file whose log.dirs follow what is added and removed; None: its operator's."""
        self._told = (-1, -1)
        """Controller epoch and metadata offset of the newest UpdateMetadata."""
        self._threads: list[WorkThread] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._tick_timer: asyncio.TimerHandle | None = None

    # -- clocks ------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Wall clock of this process: milliseconds since 1970 that never jump back."""
        return int((self._clock_base + self.platform.monotonic_s()) * 1000)

    def monotonic_ms(self) -> int:
        """Milliseconds that only grow, for deadlines of the controller."""
        return int(self.platform.monotonic_s() * 1000)

    # -- starting ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, listen, register. Returns when the controller counts this broker as alive."""
        config, listening = self.config, self.config.listening
        listening.refuse()
        if warning := listening.warning():
            log.warning("%s", warning)
        self.certificates.open(listening)
        if self.metrics is not None:
            self.metrics.start()
        self.store = open_store(config, self.platform)
        self.kept_ids = None if self.store.host_ids is None else KeptIds(self, self.store.host_ids)
        self.reigns = Reigns(self, self.store)
        self.cluster_id = await self.reigns.cluster_id()
        await self._load_logs()
        self._wire()
        endpoints = await self._bind(listening)
        self.membership = self._membership(endpoints)
        me = self.membership.identity
        self.metadata.me = LiveBroker(me.broker_id, endpoints, me.rack)
        self.store.enter(
            Presence(
                broker_id=me.broker_id,
                incarnation_id=me.incarnation_id,
                endpoints=endpoints,
                rack=me.rack,
                host=host_key(config),
            )
        )
        self.disks.serve()
        self.server.start()
        letting_in = self._spawn(dynamic_config.let_clients_in(self))
        self._spawn(self.reigns.run(Candidate.at(self.broker_id, endpoints.for_controller)))
        self.membership.start()
        self._tick_timer = self.loop.call_later(self.platform.tick_s, self._tick)
        self.housekeeping.start()
        await self.membership.unfenced.wait()
        await letting_in
        if self.metrics is not None:
            self.metrics.open()

    async def _bind(self, listening: Listening) -> Endpoints:
        """Listen everywhere; what the cluster is told of it."""
        ports = {}
        for endpoint in listening.bound:
            name, use = endpoint.name, listening.use_of(endpoint.name)
            bind = functools.partial(self.server.bind, *endpoint.address, use, self.certificates.of(name))
            ports[name] = await when_free(bind)
        return listening.endpoints(ports)

    def thread(self, name: str) -> WorkThread:
        """A thread of its own, which ends with the broker."""
        thread = self.platform.thread(name, self.loop)
        self._threads.append(thread)
        return thread

    def end_threads(self, log_dir: LogDir) -> None:
        """The threads of a directory that is not used any more end when they have done what is queued."""
        lanes = (log_dir.queue, log_dir.sync_queue, log_dir.background)
        for thread in [t for t in self._threads if t in lanes]:
            self.end_thread(thread)

    def end_thread(self, thread: WorkThread) -> None:
        """It does what is queued, and ends."""
        thread.close()
        self._threads.remove(thread)

    async def _load_logs(self) -> None:
        self.cordons = Cordons(self)
        self.disks = Disks(self)
        self.logs = LogManager(
            [self.disks.make(path) for path in self.config.log_dirs],
            node_id=self.broker_id,
            cluster_id=self.cluster_id,
            config_of=self.log_config,
            new_id=self.platform.new_id,
            boot_id=self.platform.boot_id,
            placement=Placement(self.config.str("log.dir.placement")),
        )
        self.logs.upkeep.unchecked_most = self.platform.unchecked_batches
        self.logs.removals.clock, self.logs.removals.later = self.platform.monotonic_s, self.loop.call_later
        await disk_start.load_logs(self)
        self.absent = AbsentDirs(self)
        self.absent.look()

    def _wire(self) -> None:
        config = self.config
        self.access = Access.of(config, self.loop)
        self.user_view = UserView(self.cluster_id)
        self.quota_view = QuotaView()
        self.quotas = ClientQuotas(self)
        self.topic_creation = TopicCreation(self)
        self.fetchers = ReplicaFetchers(self)
        self.producer_ids = ProducerIdShell(self)
        self.txn_verification = TxnVerification(self)
        self.transactional_appends = TransactionalAppends(self)
        self.coordinators = Coordinators()
        self.groups_shell = GroupShell(self)
        self.groups = self.groups_shell.coordinator
        self.transactions_shell = TransactionShell(self)
        self.transactions = self.transactions_shell.coordinator
        self.replicas = LocalReplicas(
            self.broker_id,
            self.logs,
            ReplicationSettings.of(config),
            BrokerOutbox(self),
            log_config=self.log_config,
            is_known=lambda tp: self.metadata.partition(tp) is not None,
            clock=self.now_ms,
            traffic=None if self.meters is None else self.meters.traffic,
        )
        self.fetch_sessions = self.replicas.consumer_sessions(
            slots=config.int("max.incremental.fetch.session.cache.slots"),
            new_id=functools.partial(self.platform.rng.getrandbits, 31),
            resolve=self.metadata.resolve,
        )
        self.moves = Moves(self)
        self.cleaner = LogCleaner(self)
        self.topic_notes = TopicNotes(self)
        self.housekeeping = Housekeeping(self)
        self.dispatcher = Dispatcher(self)
        self.admission = Admission(self.dispatcher.dispatch)
        self.gate = Gate.of(self)
        self.server = Server(
            dispatch=self.gate.admit,
            on_close=self._connection_closed,
            max_frame_bytes=config.int("socket.request.max.bytes"),
            limits=dynamic_config.connection_limits(config),
            max_idle_ms=config.int("connections.max.idle.ms"),
            ip_rate=self.quota_view.ip_rate,
            strangers=StrangerLimits.of(config),
            patience_s=config.int(REQUEST_TIMEOUT) / 1000,
            turn_order=self.platform.turn_order,
            listen=self.platform.listen,
            times=None if self.meters is None else self.meters.requests,
        )

    def _membership(self, endpoints: Endpoints) -> Membership:
        config = self.config
        return Membership(
            Identity(
                broker_id=self.broker_id,
                endpoints=endpoints,
                rack=config.optional_str("broker.rack"),
                cluster_id=self.cluster_id,
                incarnation_id=self.platform.new_id(),
                host=host_key(config) if self.kept_ids is None else None,
            ),
            self.reigns.locate,
            on_refused=self.reigns.refused,
            heartbeat_interval_ms=config.int("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.int("broker.session.timeout.ms"),
            on_fatal=self.fatal,
            on_lost=self.suspect,
            on_registered=self._registered,
            past=self.logs.past,
            turns=self.disks.news.turns,
            on_told=self.disks.news.told,
            directories=self.cordons,
            outgoing=self.outgoing,
            offline_dirs=lambda: tuple(
                d.directory_id for d in self.logs.dirs if not d.is_online and d.directory_id is not None
            ),
        )

    def _registered(self) -> None:
        self.admission.registered()
        self.disks.news.restate()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(coroutine)
        self._tasks.append(task)
        return task

    # -- being the controller ----------------------------------------------------------------------------------

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """Of this broker's registration; -1 before it."""
        return self.membership.broker_epoch

    def controller_settings(self) -> ControllerSettings:
        """What the controller goes by, from this broker's configuration."""
        return ControllerSettings.of(self.config, self.platform.random_bytes(32))

    async def ask_controller(self, api: ApiKey, version: int, request: Any, timeout_s: float) -> Any:
        """An entity to the active controller, wherever it is; the answer. Tries until the time is up."""
        frame = await self.membership.forward(int(api), version, 0, encode_body(request), timeout_s)
        assert frame is not None, "it is sent to this broker too"
        _, start = parse_response_header(int(api), version, memoryview(frame)[4:])
        return decode_response(int(api), version, memoryview(frame)[4 + start :])

    # -- what comes in -----------------------------------------------------------------------------------------

    @property
    def told(self) -> tuple[int, int]:
        """Controller epoch and metadata offset of the newest metadata that we have; -1, -1: none yet."""
        return self._told

    @property
    def told_epoch(self) -> int:
        """Of the controller whose metadata we have; -1: none yet."""
        return self._told[0]

    def apply_metadata(self, request: Any) -> None:
        """UpdateMetadata: remember it, and let changed topic configurations take effect.

        One that a lost connection of the controller left behind may come late: what is newer stays.
        """
        told = (request.controller_epoch, request.metadata_offset)
        if told < self._told:
            log.info("metadata of offset %d comes after that of %d: not taken", told[1], self._told[1])
            return
        self._told = told
        self.topic_notes.changed()
        before, alive = set(self.metadata.topics), set(self.metadata.brokers)
        configured = set(self.metadata.topic_configs)
        changed = self.metadata.update(request)
        self.access.learn(request)
        self.user_view.update(request)
        self.quota_view.update(request)
        for topic in changed:
            self.logs.update_config(topic, self.log_config(topic))
        dynamic_config.apply(self)
        if changed or configured - self.metadata.topic_configs.keys():
            dynamic_config.limit_replication(self)
            self.cleaner.wake()
        back = self.metadata.brokers.keys() - alive
        if back:
            self.replicas.brokers_are_back(back, self.now_ms())
        for broker_id, seen in self.metadata.departed.items():
            self.loop.call_later(DEPARTED_S, self._forget_departed, broker_id, seen)
        self.disks.news.metadata_changed()
        self.absent.metadata_changed()
        self.coordinators.metadata_changed(before - self.metadata.topics.keys())
        if request.type == TYPE_FULL:
            self.replicas.remove_strays(self.hosts, controller_epoch=request.controller_epoch, now_ms=self.now_ms())
            self.moves.resume()
            self.admission.open()

    def hosts(self, tp: TopicPartition) -> bool:
        """Whether the cluster has a replica of it here, as far as this broker was told."""
        info = self.metadata.partition(tp)
        return info is not None and self.broker_id in info.replicas

    def _forget_departed(self, broker_id: int, seen: LiveBroker) -> None:
        if self.metadata.departed.get(broker_id) is seen:
            del self.metadata.departed[broker_id]

    def offsets_ended(self, partition: int, producer_id: int, is_commit: bool) -> None:
        """The marker of a transaction with offsets of groups is committed in a partition of theirs."""
        self.groups_shell.complete_transaction(partition, producer_id, is_commit)

    def suspect(self, broker_id: int | None) -> None:
        """A connection to this broker ended by itself: it may have died, and the controller will say so soon."""
        if broker_id is None or broker_id == self.broker_id or broker_id not in self.metadata.brokers:
            return
        self.metadata.suspects.add(broker_id)
        self.loop.call_later(SUSPICION_S, self.metadata.suspects.discard, broker_id)

    def log_config(self, topic: str) -> LogConfig:
        """The effective configuration of a topic's logs."""
        config = LogConfig.of(self.config, self.metadata.topic_configs.get(topic, {}))
        return dataclasses.replace(config, jitter_seed=self._jitter_seed) if config.segment_jitter_ms else config

    @functools.cached_property
    def _jitter_seed(self) -> int:
        """Of this broker's life: when its segments roll, where there is chance in it."""
        return self.platform.rng.getrandbits(32)

    def _connection_closed(self, connection: Any) -> None:
        connection.session.close()
        registered = connection.session.broker
        if registered is not None and self.controller is not None:
            self.controller.connection_closed(*registered)

    # -- time --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_ms = self.now_ms()
        try:
            deadline = self.replicas.next_deadline_ms()
            if deadline is not None and deadline <= now_ms:
                self.replicas.tick(now_ms)
        except Exception:
            log.exception("tick failed")
        self.coordinators.tick(now_ms)
        self._tick_timer = self.loop.call_later(self.platform.tick_s, self._tick)

    # -- stopping ----------------------------------------------------------------------------------------------

    def fatal(self, reason: str) -> None:
        """End the process: it cannot go on."""
        log.critical("%s", reason, extra=told(LogEvent.BROKER_FAILED, reason=reason))
        self.exit_code = EXIT_DISKS_FAILED
        self.stopping.set()

    async def stop(self) -> None:
        """Controlled shutdown: leaders move first, then the listeners close, then the logs close clean."""
        if self.exit_code == 0 and self.config.bool("controlled.shutdown.enable"):
            self.membership.want_shutdown()
            try:
                async with asyncio.timeout(CONTROLLED_SHUTDOWN_S):
                    await self.membership.may_shut_down.wait()
                    await clients_gone(self)
            except TimeoutError:
                log.warning("controlled shutdown took longer than %.0f s: stopping anyway", CONTROLLED_SHUTDOWN_S)
        now_ms = self.now_ms()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self.housekeeping.close()
        self.certificates.close()
        self.topic_notes.close()
        if self.metrics is not None:
            self.metrics.close()
        self.server.stop_accepting()
        await self.moves.stop()
        high_watermarks = dict(self.replicas.high_watermarks())
        self.replicas.resign(now_ms)
        self.fetchers.close()
        self.txn_verification.close()
        self.transactions_shell.close()
        await self.membership.close()
        await self._hand_over()
        self.gate.close()
        self.server.close()
        await self.dispatcher.drain()
        await logs_closed(self.logs, self.membership.broker_epoch, high_watermarks)

    async def _hand_over(self) -> None:
        """Cease to be the controller or a candidate: another broker shall be it before our logs are closed.

        Until here a stopping broker may still become it: the last ones of a cluster need one to move their leaders.
        """
        if self.controller is not None:
            self.controller.close()
            self.controller = None
        for task in self._tasks:
            task.cancel()
        await self.reigns.close()
