"""The leader epochs of a log after a start: what its file says, as far as its batches do not say otherwise.

The file is not synced with every change: after a loss of power it may be an older one, or empty, so batches count.
But a cleaning may have taken all that an epoch wrote, or what it wrote first. There the file alone knows where the
epoch began, and a follower that asks where the one before it ended has to be told just that: by a later offset it
would keep what it alone has.
"""

from collections.abc import Iterable, Sequence

from holdfast.model.types import LeaderEpoch, Offset
from holdfast.records.batch import BatchHeader
from holdfast.storage.leader_epochs import LeaderEpochs
from holdfast.storage.producer_replay import batches_from
from holdfast.storage.segment import Segment


def fit_epochs(
    epochs: LeaderEpochs,
    segments: list[Segment],
    seen: Sequence[BatchHeader],
    first_base: Offset,
    start_offset: Offset,
    end_offset: Offset,
    *,
    clean: bool,
) -> None:
    """Make the epochs agree with the log from ``start_offset`` to ``end_offset``, all of whose batches from
    ``first_base`` on were ``seen``."""
    written = epochs.entries()
    epochs.forget_from(first_base)
    _assign(epochs, written, seen, first_base)
    entries = epochs.entries()
    if end_offset > start_offset and (not entries or (not clean and entries[0][1] > start_offset)):
        epochs.forget_from(0)
        _assign(epochs, written, (header for _, _, header in batches_from(segments, start_offset)), start_offset)
    epochs.forget_from(end_offset)
    epochs.forget_before(start_offset)
    if epochs.entries() != written:
        epochs.rewrite()


def _assign(
    epochs: LeaderEpochs,
    written: Sequence[tuple[LeaderEpoch, Offset]],
    headers: Iterable[BatchHeader],
    first_offset: Offset,
) -> None:
    """Note what batches say, all those from ``first_offset`` on, and what was written of the holes between them."""
    waiting = [each for each in written if each[1] >= first_offset]
    at, after = 0, first_offset
    for header in headers:
        epoch = header.partition_leader_epoch
        latest = epochs.latest
        if epoch >= 0 and (latest is None or epoch > latest):
            while at < len(waiting) and waiting[at][0] <= epoch:
                if after <= waiting[at][1] <= header.base_offset:
                    epochs.assign_in_memory(*waiting[at])
                at += 1
            epochs.assign_in_memory(epoch, header.base_offset)
        after = header.next_offset
