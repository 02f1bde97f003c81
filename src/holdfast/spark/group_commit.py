"""A consumer group that is told where a stream stands, so that Kafka's tools show its lag.

The group is a notice board and nothing more: no stream starts from it, unless startingOffsets=group:NAME says so. So a
commit that a coordinator does not take in time is warned of, and made up for by the next one; a group that has members
is another application's, and ends the query.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

from holdfast.client.views import CommittedOffset
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import UnknownMemberIdError
from holdfast.model.types import LeaderEpoch, TopicPartition
from holdfast.spark.options import OptionError, ReadOptions
from holdfast.spark.ranges import Positions
from holdfast.spark.stream_offsets import StreamOffset
from holdfast.spark.topics import Topics

log = logging.getLogger(__name__)

WAIT_S: Final = 5.0
"""A stream is not held up longer by a coordinator that does not answer."""
RENEW_S: Final = 3600.0
"""Brokers forget a group without members some days after its last commit (offsets.retention.minutes)."""


def commit_group(
    options: ReadOptions,
    positions: Positions,
    epochs: Mapping[TopicPartition, LeaderEpoch] | None = None,
    *,
    topics: Topics | None = None,
) -> None:
    """Commits the offset of the next record of each partition to the group of ``options``; does nothing without one.

    ``epochs``: the leader epochs in which the positions were seen, where they are known. OptionError if the group has
    members, HoldfastError for what else the coordinator refuses.
    """
    if options.commit_group is None or not positions:
        return
    offsets = {
        tp: CommittedOffset(offset=offset, leader_epoch=(epochs or {}).get(tp)) for tp, offset in positions.items()
    }
    try:
        (topics or Topics(options)).commit_offsets(options.commit_group, offsets, timeout_s=WAIT_S)
    except UnknownMemberIdError:
        raise OptionError(
            f"option commitOffsetsToGroup={options.commit_group!r}: the group has members, which commit its offsets "
            "themselves; name a group that no consumer joins"
        ) from None


class GroupNotice:
    """What a stream has told its group in this run; each position once, and again before the group is forgotten."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._told: Positions | None = None
        self._told_s = 0.0

    def tell(self, finished: StreamOffset, topics: Topics) -> None:
        """``finished``: where a batch ended that is in Spark's log of commits, or where the stream begins. OptionError
        if the group has members; other errors are warned of."""
        if self._options.commit_group is None:
            return
        now_s = time.monotonic()
        if finished.positions == self._told and now_s - self._told_s < RENEW_S:
            return
        try:
            commit_group(self._options, finished.positions, finished.epochs, topics=topics)
        except HoldfastError as e:
            log.warning("group %s is not told where the stream stands: %s", self._options.commit_group, e)
        else:
            self._told, self._told_s = dict(finished.positions), now_s
