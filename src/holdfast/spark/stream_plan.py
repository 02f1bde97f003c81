"""How far the next batch of a stream goes, and from where: what is new, what is gone, what is another topic by now.

Owns the comparison of a checkpoint with the cluster. Keeps nothing: what must be remembered goes into the offset that
the batch ends at (stream_offsets.py). What is lost raises DataLossError, or is warned of and left out.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from holdfast.model.types import LeaderEpoch, TopicPartition
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import PartitionEnd, Positions
from holdfast.spark.stream_offsets import StreamOffset
from holdfast.spark.topics import DataLossError, Topics

log = logging.getLogger(__name__)


class Known(NamedTuple):
    """Where the next batch begins in exactly the partitions that there are."""

    positions: Positions
    begins: Positions
    """Those of ``positions`` that are not where the last batch ended."""


def known(
    options: ReadOptions, topics: Topics, before: StreamOffset, ends: Mapping[TopicPartition, PartitionEnd]
) -> Known:
    """What ``before`` comes to in the partitions of ``ends``.

    New partitions begin at their earliest record, topics that were made again too if the user said so. DataLossError if
    records between the last batch and the next are gone.
    """
    again = made_again(options, topics, before)
    positions = {tp: at for tp, at in before.positions.items() if tp.topic not in again}
    gone = sorted(set(positions) - set(ends))
    if gone:
        topics.data_loss(f"partition {gone[0]} was read up to {positions[gone[0]]} and is not there any more")
    new = topics.earliest([tp for tp in ends if tp not in positions])
    begins = {**_where_cut(topics, before, positions, ends), **new}
    found = {tp: begins.get(tp, positions.get(tp, 0)) for tp in ends}
    for tp in sorted(found):
        if found[tp] > ends[tp].offset:
            topics.data_loss(
                f"partition {tp}: was read up to {found[tp]} and the log ends at {ends[tp].offset} "
                "(was the topic deleted and made again?)"
            )
            found[tp] = begins[tp] = ends[tp].offset
    return Known(found, begins)


def made_again(options: ReadOptions, topics: Topics, before: StreamOffset) -> set[str]:
    """The topics that have another id than ``before``, where they are to be read from their start. DataLossError where
    that is to end the query."""
    ids = topics.topic_ids(before.topic_ids)
    found = {name for name, old in before.topic_ids.items() if ids.get(name, old) != old}
    for name in sorted(found):
        text = _made_again_text(name, before.topic_ids[name], ids[name], before.positions)
        if options.fail_on_recreated:
            raise DataLossError(f"{text}. Set onTopicRecreated=restart to read the new one from its start")
        log.warning("%s; reading the new one from its start", text)
    return found


def _made_again_text(name: str, old: UUID, new: UUID, positions: Positions) -> str:
    read = ", ".join(f"{tp.partition} up to {at}" for tp, at in sorted(positions.items()) if tp.topic == name)
    return f"topic {name} was deleted and made again: its id was {old} and is {new}; partitions were read: {read}"


def _where_cut(
    topics: Topics, before: StreamOffset, positions: Positions, ends: Mapping[TopicPartition, PartitionEnd]
) -> Positions:
    """Where the logs begin to be others than those that were read: an unclean leader does not have what was read last,
    and what it has there instead is not what was read (KIP-320). Asked only where the leader epoch has changed."""
    changed: dict[TopicPartition, LeaderEpoch] = {
        tp: epoch
        for tp, epoch in before.epochs.items()
        if tp in positions and tp in ends and ends[tp].epoch not in (None, epoch)
    }
    found: Positions = {}
    for tp, (_, end) in sorted(topics.epoch_ends(changed).items()):
        if end is not None and end < positions[tp]:
            topics.data_loss(
                f"partition {tp}: was read up to {positions[tp]}, and the log was cut to {end} since: leader epoch "
                f"{changed[tp]}, which the last batch was planned in, ends there (unclean leader election)"
            )
            found[tp] = end
    return found


def end_of(
    positions: Positions, topics: Topics, ends: Mapping[TopicPartition, PartitionEnd], begins: Positions
) -> StreamOffset:
    """The offset of a batch that ends at ``positions``."""
    ids = topics.topic_ids({})
    here = {tp.topic for tp in positions}
    return StreamOffset(
        positions=positions,
        topic_ids={name: each for name, each in ids.items() if name in here},
        epochs={tp: epoch for tp in positions if tp in ends for epoch in [ends[tp].epoch] if epoch is not None},
        begins=begins,
    )
