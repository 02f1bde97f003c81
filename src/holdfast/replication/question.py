"""A leader's log is put to the question when others cannot take what it sends (K18-03).

Owns when to ask. A follower that asks again for what it was sent, a consumer that asks for it a third time in a row,
and a read that finds no batch where one should be are signs that the file may be damaged; or the bytes were damaged on
their way, or a disk elsewhere is full. So the leader reads them again itself, on the thread of its disk, once for each
offset. If they are bad there, the shell is told (``outbox.log_is_corrupt``): what follows is its business, and the
controller's.
"""

from __future__ import annotations

from functools import partial

from holdfast.model.errors import CorruptRecordError, HoldfastError
from holdfast.model.types import Offset
from holdfast.replication.partition import Partition
from holdfast.storage.examine import examine
from holdfast.storage.log import Log

OFTEN = 3
"""So many reads of the same offset by consumers, with none of another one between, are a sign of trouble."""


def consumer_read(partition: Partition, offset: Offset, max_bytes: int) -> None:
    """A consumer is sent what is at ``offset``."""
    if offset != partition.last_read:
        partition.last_read, partition.reads = offset, 1
        return
    partition.reads += 1
    if partition.reads == OFTEN:
        ask(partition, offset, max_bytes)


def ask(partition: Partition, offset: Offset, max_bytes: int) -> None:
    """Read again what is at ``offset``, if that was not the last that was read so."""
    log = partition.log
    if log is None or partition.questioned == offset:
        return
    partition.questioned = offset
    log.dir.queue.submit(partial(examine, log, offset, max_bytes), partial(_answered, partition, log, offset))


def _answered(
    partition: Partition,
    log: Log,
    offset: Offset,
    found: CorruptRecordError | None,
    failed: HoldfastError | None,
) -> None:
    if failed is not None and partition.questioned == offset:
        partition.questioned = None  # nobody has looked
    if found is not None and partition.log is log and log.is_online:
        partition.around.outbox.log_is_corrupt(partition.topic_partition, found)
