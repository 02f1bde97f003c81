"""The group coordinator's disk and clock: loads what it needs when this broker comes to lead, appends what it says.

Owns the loading of ``__consumer_offsets`` partitions. The coordinator itself is pure (groups/).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.replay import Replay
from holdfast.groups.settings import GroupSettings
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import ProduceResult

if TYPE_CHECKING:
    from holdfast.broker.app import Broker

log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
LOAD_CHUNK_BYTES = 5 << 20
LOAD_RETRY_S = 1.0


class GroupShell:
    """See the module's docstring; also the coordinator's GroupLog."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        rng = broker.platform.rng
        self.coordinator = GroupCoordinator(
            GroupSettings.of(broker.config), self, new_member_suffix=lambda: str(UUID(int=rng.getrandbits(128)))
        )

    # -- GroupLog ----------------------------------------------------------------------------------------------

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        """Append to the partition's log with acks=all."""

        def appended(result: ProduceResult) -> None:
            done(result.error)

        self._broker.replicas.append(
            TopicPartition(OFFSETS_TOPIC, partition),
            batch,
            acks=-1,
            timeout_ms=self._broker.config.int("offsets.commit.timeout.ms"),
            now_ms=self._broker.now_ms(),
            done=appended,
        )

    def metadata_changed(self, deleted: set[str]) -> None:
        """Offsets of deleted topics go; the offsets topic has the partitions that it has."""
        partitions = self._broker.metadata.topics.get(OFFSETS_TOPIC)
        if partitions is not None:
            self.coordinator.partition_count = len(partitions)
        if deleted:
            self.coordinator.on_topics_deleted(deleted, self._broker.now_ms())

    # -- leadership --------------------------------------------------------------------------------------------

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        """A partition came to this broker or went: load its groups or drop them."""
        if tp.topic != OFFSETS_TOPIC:
            return
        if not is_leader:
            self.coordinator.on_resigned(tp.partition)
            return
        self.coordinator.on_elected(tp.partition, leader_epoch)
        self._load(tp, leader_epoch)

    def _load(self, tp: TopicPartition, leader_epoch: int) -> None:
        hosting = self._broker.logs.get(tp)
        if hosting is None:
            return

        def read() -> Replay:
            replay = Replay()
            offset, end = hosting.view.start_offset, hosting.view.end_offset
            while offset < end:
                piece = hosting.read(offset, LOAD_CHUNK_BYTES, end, blocking=True)
                if piece is None:
                    break
                data = piece.read()
                replay.feed(data)
                offset = next_offset(data)
            return replay

        def loaded(replay: Replay | None, error: HoldfastError | None) -> None:
            if replay is not None:
                self.coordinator.install(tp.partition, leader_epoch, replay, self._broker.now_ms())
            elif self._broker.replicas.leader_epoch(tp) == leader_epoch:
                log.error("groups of %s cannot be loaded, trying again: %s", tp, error)
                self._broker.loop.call_later(LOAD_RETRY_S, self._load, tp, leader_epoch)

        hosting.dir.queue.submit(read, loaded)


def next_offset(batches: bytes) -> int:
    """The offset after the last complete batch."""
    from holdfast.records.batch import iter_headers

    last = 0
    for _, header in iter_headers(batches):
        last = header.next_offset
    return last
