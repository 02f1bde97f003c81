"""What the controller is to hear of replicas whose disk fails, fills, hangs, lies or is back.

Owns which replica has news (``turns``), which are strained or doubted, and when the controller knows what a directory
that is back lacks; and, by what the controller says, which damaged replica is given up. What is done to a directory is
disks.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.broker.turns import TurnsToTell
from holdfast.model.errors import HoldfastError, KafkaStorageError
from holdfast.model.fates import ReplicaFate, ReplicaTurn
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.replication.types import Role
from holdfast.storage import dir_changes
from holdfast.storage.log_dir import LogDir
from holdfast.storage.standings import ReplicaState

if TYPE_CHECKING:
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_BACK = {ReplicaFate.DAMAGED: ReplicaTurn.BACK_DAMAGED, ReplicaFate.LOST: ReplicaTurn.BACK_LOST}


class NewsHost(Protocol):
    """Where the news is found, and who carries it."""

    broker_id: BrokerId
    logs: LogManager
    replicas: LocalReplicas
    metadata: MetadataCache
    membership: Membership

    @property
    def told_epoch(self) -> int: ...


class ReplicaNews:
    """See the module's docstring. On the loop."""

    def __init__(self, broker: NewsHost) -> None:
        self._broker = broker
        self._turns = TurnsToTell()
        self._next_turns: dict[TopicPartition, ReplicaTurn] = {}
        """Of replicas that are back before the controller has heard that they failed."""
        self._strained: set[TopicPartition] = set()
        """Those of which the controller was told so, or will be."""
        self._controller = -1
        """Epoch of the controller that was told."""
        self._doubted: dict[TopicPartition, KafkaStorageError] = {}
        """A batch of their logs is damaged, though the disk works: what it is."""
        self._returned: set[LogDir] = set()
        """Back, and the controller has not heard yet what their replicas lack."""
        self._serves = False

    def begin(self) -> None:
        """The logs are loaded and the replicas are there: what is strained has consequences from now on."""
        self._serves = True

    # -- what happens to replicas ------------------------------------------------------------------------------

    def failed(self, replicas: Iterable[TopicPartition]) -> None:
        """Their directory, or their log, cannot be used any more."""
        self._turns.update(dict.fromkeys(replicas, ReplicaTurn.FAILED))

    def is_back(self, directory: LogDir) -> None:
        """It is used again: as good as others once the controller has heard what its replicas lack."""
        self._returned.add(directory)
        if not self._broker.logs.standings.returned:  # there is nothing to tell first
            self._as_good_as_others()

    def strain(self, directory: LogDir) -> None:
        """Others had better lead what is on a directory that is full or slow, and need not wait for it."""
        broker, me, news = self._broker, self._broker.broker_id, False
        if not self._serves:
            return
        for tp, partition in broker.replicas.partitions.items():
            log_ = partition.log
            if log_ is None or log_.dir is not directory or partition.role is Role.OFFLINE:
                continue
            info = broker.metadata.partition(tp)
            if tp not in self._strained or (info is not None and me in info.isr and len(info.isr) > 1):
                self._strained.add(tp)
                if self._turns.get(tp) in (None, ReplicaTurn.STRAINED, ReplicaTurn.RELIEVED):
                    self._turns[tp] = ReplicaTurn.STRAINED
                    news = True
        if news:
            broker.membership.beat()

    def relieve(self) -> None:
        """Say so of replicas that are strained no more: there is room again, or they have moved."""
        broker, news = self._broker, False
        for tp in list(self._strained):
            partition = broker.replicas.partitions.get(tp)
            if partition is not None and partition.log is not None and partition.log.dir.health.is_strained:
                continue
            if tp in self._doubted:
                continue
            self._strained.discard(tp)
            if self._turns.get(tp) in (None, ReplicaTurn.STRAINED):
                self._turns[tp] = ReplicaTurn.RELIEVED
                news = True
        if news:
            broker.membership.beat()

    def doubt(self, tp: TopicPartition, error: HoldfastError) -> None:
        """A batch of its log is damaged, though its disk works (K18-03). Somebody else leads, and it leaves the ISR, if
        there is anybody else in it; then it is made anew (``_judge_doubted``). The last one that has the records is
        kept, and led with, as it is."""
        if tp not in self._doubted:
            log.error("%s is damaged, and is given up if others in the ISR have it: %s", tp, error)
        self._doubted[tp] = KafkaStorageError(str(error))
        self._strain_doubted(tp)

    def _strain_doubted(self, tp: TopicPartition) -> None:
        self._strained.add(tp)
        if self._turns.get(tp) in (None, ReplicaTurn.STRAINED, ReplicaTurn.RELIEVED):
            self._turns[tp] = ReplicaTurn.STRAINED
            self._broker.membership.beat()

    def _judge_doubted(self) -> None:
        """Give up those without which all is there; ask again for those that are not the last any more."""
        logs, me = self._broker.logs, self._broker.broker_id
        for tp, error in list(self._doubted.items()):
            info, log_ = self._broker.metadata.partition(tp), logs.get(tp)
            if info is None or log_ is None or not log_.is_online:
                del self._doubted[tp]
            elif info.leader not in (None, -1, me) and me not in info.isr:
                del self._doubted[tp]
                log_.dir.fail_log(log_, error)
            elif me in info.isr and len(info.isr) > 1:
                self._strain_doubted(tp)

    # -- what the controller hears -----------------------------------------------------------------------------

    def turns(self) -> Mapping[TopicPartition, ReplicaTurn]:
        """What the heartbeat that is made now tells."""
        self.note_returned()
        return self._turns.carried()

    def note_returned(self) -> None:
        """That a replica is back is told at least once, also when it is in use by then: the controller may count it as
        offline. And it is told until it is used."""
        logs, metadata, me = self._broker.logs, self._broker.metadata, self._broker.broker_id
        for tp, fate in list(logs.standings.returned.items()):
            info = metadata.partition(tp)
            if info is not None and me in info.replicas:
                if self._turns.get(tp) is ReplicaTurn.FAILED:  # first things first
                    self._next_turns[tp] = _BACK[fate]
                else:
                    self._turns[tp] = _BACK[fate]
            elif metadata.updates:  # it was taken away meanwhile: the full state that answers this has it deleted
                self._turns[tp] = _BACK[fate]
                logs.standings.gone(tp)

    def told(self, turns: Mapping[TopicPartition, ReplicaTurn]) -> None:
        """The controller has recorded these: the last heartbeat carried them, and this is its answer."""
        for tp, turn in turns.items():
            fate = self._broker.logs.standings.fate(tp)
            if fate is not None and _BACK[fate] is turn:
                self._broker.logs.standings.confirmed(tp, fate)
            if self._turns.told(tp, turn) and tp in self._next_turns:
                self._turns[tp] = self._next_turns.pop(tp)
                self._broker.membership.beat()
        if self._returned and any(turn in _BACK.values() for turn in turns.values()):
            self._as_good_as_others()

    def _as_good_as_others(self) -> None:
        logs = self._broker.logs
        for directory in self._returned:
            # One that has a replica which cannot be loaded is not: nobody has heard what that one lacks.
            if not any(failed.dir is directory for failed in logs.standings.failed.values()):
                logs.past.healed(directory)
        self._returned.clear()

    def restate(self) -> None:
        """The controller is another one, or this broker has registered anew: it knows of nobody that is strained."""
        for tp in self._strained:
            if self._turns.get(tp) in (None, ReplicaTurn.STRAINED):
                self._turns[tp] = ReplicaTurn.STRAINED

    def metadata_changed(self) -> None:
        """Replicas that cannot be used are made anew once somebody else leads, so that nothing is lost by it. A new
        controller hears once more of those that are strained."""
        logs, me = self._broker.logs, self._broker.broker_id
        controller = self._broker.told_epoch
        if controller != self._controller:
            self._controller = controller
            self.restate()
        self._judge_doubted()
        for tp, failed in list(logs.standings.failed.items()):
            info = self._broker.metadata.partition(tp)
            if info is None or info.leader in (None, -1, me) or me in info.isr:
                continue
            if failed.dir.is_online and logs.standings.of(tp) is ReplicaState.FAILED:
                dir_changes.give_up(logs, tp, partial(self._gave_up, tp))

    def _gave_up(self, tp: TopicPartition, error: HoldfastError | None) -> None:
        self.note_returned()
        if error is not None:
            log.warning("%s is left as it is: %s", tp, error)
        self._broker.membership.beat()
