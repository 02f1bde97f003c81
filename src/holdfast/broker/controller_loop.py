"""The active controller's loop: events in, records committed, everybody told.

Owns the Controller while this broker is the controller, the queue of events to it, the store's thread and one
channel per broker. Deciding is in controller/; this module only orders it:

    claim -> load -> [take events -> decide and replay each -> commit all at once -> answer, tell the brokers]*

A decision is answered and told to brokers only once its records are durable. When a commit fails, or anything else
goes wrong between a decision and its telling, the reign is over: every waiter gets NotController, the state is
dropped, and whoever is next begins with what is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.broker import tool_requests
from holdfast.broker.controller_batch import DecidedBatch, give
from holdfast.broker.controller_channel import ControllerChannel, told_ends
from holdfast.broker.signs_of_life import lives
from holdfast.controller import broadcast
from holdfast.controller.controller import Controller
from holdfast.controller.decision_lines import DecisionLines
from holdfast.controller.events import (
    BrokerConnectionLost,
    BrokerHeartbeat,
    BrokerRegister,
    ClaimBrokerId,
    HeartbeatReply,
    ReplicaEnds,
    ReplicasOffline,
    ReplicasOnline,
)
from holdfast.metadata import host_records
from holdfast.metadata.image import ClusterImage
from holdfast.model.errors import (
    FencedControllerError,
    HoldfastError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
    UnknownServerError,
)
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import BrokerEpoch, BrokerId, TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.error_codes import code_of

if TYPE_CHECKING:
    from holdfast.broker.meters import Meters
    from holdfast.broker.platform import Platform, WorkThread
    from holdfast.client.outgoing import Outgoing
    from holdfast.controller.settings import ControllerSettings
    from holdfast.metadata.image import ClusterDelta
    from holdfast.metadata.store import Asked, Claim, Loaded, MetadataStore
    from holdfast.model.config import BrokerConfig

log = logging.getLogger(__name__)

MAX_BATCH = 200
"""Events decided between two commits."""
MAX_WAITING = 10_000
KNOWS_TIMEOUT_S = 1.0
PULSE_S = 1.0
"""A heartbeat that waits this long for a commit is answered before it is decided."""
_STORAGE_ERROR = code_of(KafkaStorageError)


class ReignHost(Protocol):
    """What a reign needs of the broker that it is in."""

    broker_id: BrokerId
    platform: Platform
    config: BrokerConfig
    meters: Meters | None
    outgoing: Outgoing

    @property
    def broker_epoch(self) -> BrokerEpoch: ...

    def monotonic_ms(self) -> int: ...

    def controller_settings(self) -> ControllerSettings: ...

    def suspect(self, broker_id: BrokerId | None) -> None:
        """A broker's connection ended by itself."""


class ControllerLoop:
    """One reign: made with a claim, ended by ``close`` or by a failed commit."""

    def __init__(
        self, broker: ReignHost, store: MetadataStore, thread: WorkThread, claim: Claim, loaded: Loaded
    ) -> None:
        self._broker = broker
        self._store = store
        self._max_records = store.max_records
        self._thread = thread
        self.epoch = claim.epoch
        image = loaded.applied(store.cluster_id())
        self.controller = Controller(image, broker.controller_settings(), broker.platform.rng)
        self._durable = image
        """The image that brokers may be told: without the decisions of a commit that is under way."""
        self._end_offset = loaded.end_offset
        self._lines = DecisionLines()
        self._heard: dict[int, tuple[int, int]] = {}
        """By broker: the offset of the metadata that it has taken last, and when it said so (monotonic)."""
        self._events: deque[tuple[Any, asyncio.Future[Any] | None]] = deque()
        self._busy = False
        self._under_way: DecidedBatch | None = None
        """What is being committed."""
        self._closed = False
        self._channels: dict[int, ControllerChannel] = {}
        self._full_states: broadcast.FullStates | None = None
        """Made when a reign begins and every broker is to be told everything; kept until the next decision."""
        self._said_offline: dict[int, set[TopicPartition]] = {}
        """What each broker's channel has answered 56 for, and not 0 since."""
        self._probes: dict[int, asyncio.Task[bool]] = {}
        self._obeying: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.ended = asyncio.Event()

    @property
    def image(self) -> ClusterImage:
        """The state as replayed; at most the commit under way ahead of what is durable."""
        return self.controller.image

    @property
    def end_offset(self) -> int:
        """Of the metadata log, as far as it is durable."""
        return self._end_offset

    def heard_by(self, broker_id: int) -> tuple[int, int] | None:
        """The end of the metadata that a broker has, and when it had that (monotonic); None: it said nothing yet."""
        found = self._heard.get(broker_id)
        if found is None:
            return None
        end = found[0] + 1
        return end, self._broker.monotonic_ms() if end >= self._durable.next_offset else found[1]

    def start(self) -> None:
        """Tell every registered broker who the controller is now, and find out who is alive."""
        me = self._broker.broker_id
        begun = told(LogEvent.CONTROLLER_CLAIMED, broker=me, epoch=self.epoch)
        log.info("broker %d is the controller with epoch %d", me, self.epoch, extra=begun)
        now_ms = self._broker.monotonic_ms()
        own_epoch = self._broker.broker_epoch
        self.controller.begin(now_ms, own_epoch=own_epoch)
        for broker in self.image.brokers.values():
            self._open_channel(broker.id)
            if broker.id == self._broker.broker_id and broker.epoch != own_epoch:
                self._refused(broker.id, broker.epoch)  # an earlier start of this one
        self._arm()

    # -- events ------------------------------------------------------------------------------------------------

    async def submit(self, event: Any) -> Any:
        """Decide, commit, tell; the decision's reply. Raises what the controller decided to refuse with."""
        if isinstance(event, BrokerRegister):
            await self._ask_the_one_before(event)
        elif isinstance(event, ClaimBrokerId):
            event = await self._with_answers(event)
        if self._closed:
            raise NotControllerError("this broker is not the controller")
        if len(self._events) >= MAX_WAITING:  # not "ask another one": there is none, and everybody would ask at once
            raise RequestTimedOutError(f"the controller has {MAX_WAITING} requests to decide before this one")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._events.append((event, future))
        self._kick()
        reply = await (self._heard_out(event, future) if isinstance(event, BrokerHeartbeat) else future)
        if isinstance(reply, HoldfastError):
            raise reply
        return reply

    async def _heard_out(self, event: BrokerHeartbeat, future: asyncio.Future[Any]) -> Any:
        """The reply to a heartbeat. While a commit waits for what is behind the store, nobody can be elected in the
        place of who lives: so it is told that it does, and that nothing else was heard of it."""
        while not future.done():
            await asyncio.wait((future,), timeout=PULSE_S)
            if not future.done() and self._under_way is not None and self._lives(event):
                with contextlib.suppress(ValueError):  # it was decided, and is in that commit
                    self._events.remove((event, future))
                return HeartbeatReply(is_caught_up=False, is_fenced=False, should_shut_down=False)
        return future.result()

    def _lives(self, event: BrokerHeartbeat) -> bool:
        durable = self._durable.brokers.get(event.broker_id)
        if durable is None or not durable.may_lead or event.want_fence or event.want_shutdown:
            return False
        return self.controller.hear(event.broker_id, event.broker_epoch, self._broker.monotonic_ms())

    def post(self, event: Any) -> None:
        """As ``submit`` when nobody waits for the reply."""
        if not self._closed:
            self._events.append((event, None))
            self._kick()

    def _kick(self) -> None:
        if not self._busy and not self._closed:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        """Decide what waits now; commit it all together."""
        if self._closed:
            return
        batch = DecidedBatch()
        try:
            self._decide(batch)
        except Exception:
            log.exception("a decision of the controller could not be applied")
            self._fail(batch, "a decision could not be applied")
            return
        if not batch.records:
            self._settle(batch)
            return
        self._under_way = batch
        self._thread.submit(
            functools.partial(self._commit, batch.records, self._durable, self.image),
            functools.partial(self._committed, batch),
        )

    def _decide(self, batch: DecidedBatch) -> None:
        now_ms = self._broker.monotonic_ms()
        for event in self.controller.due(now_ms):
            self._events.appendleft((event, None))
        for _ in range(min(len(self._events), MAX_BATCH)):
            if self._max_records is not None and len(batch.records) >= self._max_records:
                break  # the others are decided after this commit
            event, future = self._events.popleft()
            try:
                decision = self.controller.handle(event, now_ms)
            except Exception as e:
                log.exception("the controller failed on %s", type(event).__name__)
                batch.replies.append((future, UnknownServerError(f"{type(e).__name__}: {e}")))
                continue
            batch.replies.append((future, decision.reply))
            batch.resend.update(decision.resend_to)
            if decision.records:
                base_offset = self._end_offset + len(batch.records)
                batch.deltas.append(self.controller.replay(decision.records, base_offset))
                batch.records.extend(decision.records)

    def _commit(self, records: list[Any], before: ClusterImage, after: ClusterImage) -> int:
        """On the store's thread. The images are the states around these records."""
        base_offset = self._store.commit(records, self.epoch, before=before, after=after)
        if self._store.wants_snapshot:
            self._store.snapshot(after, self.epoch)
        return base_offset

    def _committed(self, batch: DecidedBatch, base: int | None, error: HoldfastError | None) -> None:
        self._under_way = None
        if self._closed:
            return  # everybody was refused
        if error is not None or base != self._end_offset:
            # That another one is the controller is nothing to look after.
            level = logging.WARNING if isinstance(error, FencedControllerError) else logging.ERROR
            self._fail(batch, f"commit failed: {error or f'offset {base}'}", level)
        else:
            self._end_offset += len(batch.records)
            self._settle(batch)

    def _settle(self, batch: DecidedBatch) -> None:
        """What was decided is durable: tell the brokers, then whoever asked."""
        if self._durable is not self.image:
            self._durable, self._full_states = self.image, None
        try:
            if self._broker.meters is not None:
                self._broker.meters.elections.count(batch.deltas, self.image)
            for delta in batch.deltas:
                self._tell(delta)
            for broker_id in batch.resend:
                if (channel := self._channels.get(broker_id)) is not None:
                    channel.send(self._full_state(broker_id))
        except Exception:
            log.exception("brokers could not be told what the controller decided")
            self._fail(batch, "brokers could not be told")
            return
        batch.answer()
        self._log_decisions(batch.deltas)
        self._busy = False
        if self._events:
            self._kick()
        self._arm()

    def _log_decisions(self, deltas: list[ClusterDelta]) -> None:
        """One line for each thing that is different now. Whatever is wrong with them, the reign goes on."""
        now_ms = self._broker.monotonic_ms()
        try:
            for number, delta in enumerate(deltas, 1):
                after = deltas[number].before if number < len(deltas) else self.image
                for line in self._lines.of(delta, after, now_ms):
                    line.log(log)
        except Exception:
            log.exception("what the controller decided could not be logged")

    def _fail(self, batch: DecidedBatch, reason: str, level: int = logging.ERROR) -> None:
        batch.refuse()
        self.close(reason, level)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.controller.next_deadline_ms()
        if deadline_ms is not None and not self._closed:
            wait_s = max(0.0, (deadline_ms - self._broker.monotonic_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._kick)

    # -- telling the brokers -----------------------------------------------------------------------------------

    def _tell(self, delta: ClusterDelta) -> None:
        image = self.image
        for broker_id in delta.changed_brokers:
            registered, channel = image.brokers.get(broker_id), self._channels.get(broker_id)
            if registered is None:
                if channel is not None:
                    self._channels.pop(broker_id).close()
            elif channel is None or channel.broker_epoch != registered.epoch:
                self._open_channel(broker_id)
            elif registered.fenced:
                channel.release()  # whoever waits for all live brokers waits for one less
        outgoing = broadcast.plan(image, delta, offline=self.controller.offline_replicas())
        built = broadcast.build_requests(image, outgoing, self._broker.broker_id, self.epoch)
        for broker_id, requests in built.items():
            channel = self._channels.get(broker_id)
            if channel is not None:
                channel.send(requests)

    def _open_channel(self, broker_id: int) -> None:
        if (old := self._channels.pop(broker_id, None)) is not None:
            old.close()
        self._said_offline.pop(broker_id, None)
        registered = self.image.brokers[broker_id]
        self._channels[broker_id] = ControllerChannel(
            broker_id,
            registered.epoch,
            connection=lambda client_id, on_close: self._broker.outgoing.connection(
                registered.endpoints.for_controller, client_id, on_close=on_close
            ),
            full_state=lambda: self._full_state(broker_id),
            on_answer=self._answered,
            on_refused=self._refused,
            on_lost=self._broker.suspect,
        )

    def _full_state(self, broker_id: int) -> list[Any]:
        states, offline = self._full_states, self.controller.offline_replicas()
        if states is None or states.image is not self._durable or offline:
            states = broadcast.FullStates(self._durable, offline, self._broker.broker_id, self.epoch)
            self._full_states = None if offline else states  # that is a live view
        return states.requests(broker_id)

    def _answered(self, broker_id: int, request: Any, response: Any) -> None:
        if request.__api_key__ == ApiKey.UPDATE_METADATA and not int(response.error_code):
            self._heard[broker_id] = int(request.metadata_offset), self._broker.monotonic_ms()
        if request.__api_key__ != ApiKey.LEADER_AND_ISR or int(response.error_code):
            return
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        answers = {
            TopicPartition(names[topic.topic_id], int(p.partition_index)): int(p.error_code)
            for topic in response.topics
            for p in topic.partition_errors
        }
        refused = self._said_offline.setdefault(broker_id, set())
        # Answers come in order, and heartbeats beside them: a 56 may be old news when it is heard. The next answer
        # on the same line tells.
        if online := tuple(tp for tp, code in answers.items() if not code and tp in refused):
            refused.difference_update(online)
            self.post(ReplicasOnline(broker_id=broker_id, partitions=online))
        if lost := tuple(tp for tp, code in answers.items() if code == _STORAGE_ERROR):
            refused.update(lost)
            self.post(ReplicasOffline(broker_id=broker_id, partitions=lost))
        if ends := tuple(told_ends(request, response)):
            self.post(ReplicaEnds(broker_id=broker_id, ends=ends))

    async def told_everybody(self, timeout_s: float) -> None:
        """Return when every live broker has answered what was sent so far, or the time is up."""
        waits = [
            asyncio.ensure_future(channel.flushed())
            for broker_id, channel in self._channels.items()
            if (b := self.image.brokers.get(broker_id)) is not None and not b.fenced
        ]
        if waits:
            _, pending = await asyncio.wait(waits, timeout=timeout_s)
            for wait in pending:
                wait.cancel()

    async def has_told(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker that was given up, or is new, knows what was decided without it; waits a moment for that.

        Before it does, it must not count as alive: it may still believe that it leads what others lead by now (H-13).
        """
        try:
            async with asyncio.timeout(KNOWS_TIMEOUT_S):
                while not self._closed:
                    registered, channel = self.image.brokers.get(broker_id), self._channels.get(broker_id)
                    if registered is None or registered.epoch != broker_epoch or not registered.fenced:
                        break  # the decision says what follows
                    if channel is None or await channel.flushed():
                        break
                    await asyncio.sleep(0)  # one that was closed says so at once
        except TimeoutError:
            return False
        return True

    # -- who is alive ------------------------------------------------------------------------------------------

    def _refused(self, broker_id: int, broker_epoch: int) -> None:
        """A channel's connection was refused: nothing listens there any more."""
        registered = self.image.brokers.get(broker_id)
        if registered is not None and registered.epoch == broker_epoch and not registered.fenced:
            self.post(BrokerConnectionLost(broker_id=broker_id, broker_epoch=broker_epoch, refused=True))

    def connection_closed(self, broker_id: int, broker_epoch: int) -> None:
        """The connection over which a broker heartbeats has ended: ask its port whether it is dead."""
        registered = self.image.brokers.get(broker_id)
        if self._closed or registered is None or registered.epoch != broker_epoch or broker_id in self._probes:
            return
        task = asyncio.get_running_loop().create_task(self._probe(broker_id, broker_epoch))
        self._probes[broker_id] = task
        task.add_done_callback(lambda _: self._probes.pop(broker_id, None))

    async def _ask_the_one_before(self, event: BrokerRegister) -> None:
        """Before a broker is told that its id is in use at another address: a killed one is not heard of at once."""
        known = self.image.brokers.get(event.broker_id)
        elsewhere = known is not None and not known.endpoints.shares_address_with(event.endpoints)
        if known is not None and elsewhere and known.incarnation_id != event.incarnation_id and not known.fenced:
            await self._probe(known.id, known.epoch)

    async def _with_answers(self, event: ClaimBrokerId) -> ClaimBrokerId:
        """The claim, and whether the one who has the host's id lives: it may have been killed a moment ago, or not be
        active yet."""
        entry = host_records.host(self.image, event.applicant.host)
        known = None if entry is None else self.image.brokers.get(entry.broker_id)
        if known is not None and await self._probe(known.id, known.epoch):
            return dataclasses.replace(event, answering=frozenset((known.id,)))
        return event

    async def _probe(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the port of a registered broker is served; one that refuses is news."""
        found = await lives(self._broker.outgoing, self.image.brokers[broker_id].endpoints.for_controller)
        if found is False:
            self._refused(broker_id, broker_epoch)
        return found is True

    # -- ending ------------------------------------------------------------------------------------------------

    def lost(self, reason: str) -> None:
        """The store says that the claim is over: the reign ends now, whatever a commit that is under way comes to. What
        is wrong with a store it says itself; a session that ended while the broker was away is no error."""
        self.close(f"the claim is lost: {reason}", logging.WARNING)

    def broker_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """The store says that a broker is dead."""
        self._refused(broker_id, broker_epoch)

    def log_dir_failed(self, broker_id: BrokerId) -> None:
        """The store says so: the broker's answers to all that it is told again say which replicas are gone."""
        if not self._closed and (channel := self._channels.get(broker_id)) is not None:
            channel.send(self._full_state(broker_id))

    def asked(self, asked: Asked, decided: Callable[[], None]) -> None:
        """The store says what a tool wants."""
        if not self._closed:
            obeying = tool_requests.obey(self, self._broker.config, asked, decided)
            task = asyncio.get_running_loop().create_task(obeying)
            self._obeying.add(task)
            task.add_done_callback(self._obeying.discard)

    def close(self, reason: str = "the broker stops", level: int = logging.INFO) -> None:
        """End the reign: nobody is told anything any more."""
        if self._closed:
            return
        self._closed = True
        ended = told(LogEvent.CONTROLLER_RESIGNED, broker=self._broker.broker_id, epoch=self.epoch, reason=reason)
        log.log(level, "controller epoch %d ends: %s", self.epoch, reason, extra=ended)
        if self._timer is not None:
            self._timer.cancel()
        for channel in self._channels.values():
            channel.close()
        for task in self._probes.values():
            task.cancel()
        if self._under_way is not None:
            self._under_way.refuse()
        for _, future in self._events:
            give(future, NotControllerError("the controller lost its claim"))
        self._events.clear()
        self.ended.set()
