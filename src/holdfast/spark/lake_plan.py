"""Where a query of the lake begins, and what a batch of it lands: Spark's checkpoint held against the table.

Owns the reading of Spark's offset log and what the cluster is asked about it. The checkpoint says how far a batch goes;
where it begins says the table (holdfast.lake.planning).
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.lake.data_files import FileRange
from holdfast.lake.errors import HoleError
from holdfast.lake.planning import Joined, joined
from holdfast.lake.position import Position, place
from holdfast.model.types import LeaderEpoch, Offset, TopicPartition
from holdfast.spark.options import Named, ReadOptions
from holdfast.spark.ranges import OffsetJson, Positions, to_json
from holdfast.spark.stream_offsets import StreamOffset
from holdfast.spark.stream_plan import known
from holdfast.spark.topics import Topics


class LakeCheckpointError(RuntimeError):
    """Spark's checkpoint does not say what a batch is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch as Spark noted it before it began."""

    ranges: tuple[FileRange, ...]
    """Of all its partitions, also those that it brings nothing of."""
    epochs: Mapping[TopicPartition, LeaderEpoch]
    """Leader epoch of each log when the batch was planned."""
    begun: frozenset[TopicPartition]
    """Partitions that begin with this batch; others were read before."""


def plan_of(checkpoint: Path, batch: int) -> BatchPlan:
    """From Spark's offset log. LakeCheckpointError, naming the file, where it says too little."""
    after = _noted(checkpoint, batch)
    if after is None:
        raise LakeCheckpointError(f"{_file(checkpoint, batch)} is not there: Spark writes it before it begins a batch")
    before = _noted(checkpoint, batch - 1) if batch else None
    starts = {**(before.positions if before is not None else {}), **after.begins}
    ranges = []
    for tp, end in sorted(after.positions.items()):
        # Where it is not known any more, the table says it; a partition that neither knows is read from its start.
        start = min(starts.get(tp, 0), end)
        ranges.append(
            FileRange(
                topic=tp.topic, topic_id=after.topic_ids.get(tp.topic), partition=tp.partition, start=start, end=end
            )
        )
    return BatchPlan(ranges=tuple(ranges), epochs=after.epochs, begun=frozenset(after.begins))


def has_begun(checkpoint: Path) -> bool:
    """Whether a query has noted a batch there: then Spark goes on from it and starting offsets count for nothing."""
    return any(each.name.isdecimal() for each in _folder(checkpoint).glob("*"))


def forget_commits(checkpoint: Path) -> None:
    """For a checkpoint that has lost all batches noted in it, as by a power cut: Spark refuses one in which there still
    is something of a commit, be it a half made file, and where to go on is the table's to say."""
    shutil.rmtree(checkpoint / "commits", ignore_errors=True)


def check_newest(checkpoint: Path) -> None:
    """LakeCheckpointError if the newest batch Spark has noted cannot be read: Spark's words for that name no file."""
    numbers = [int(each.name) for each in _folder(checkpoint).glob("*") if each.name.isdecimal()]
    if numbers:
        _noted(checkpoint, max(numbers))


def _folder(checkpoint: Path) -> Path:
    return checkpoint / "offsets"


def _file(checkpoint: Path, batch: int) -> Path:
    return _folder(checkpoint) / str(batch)


def _noted(checkpoint: Path, batch: int) -> StreamOffset | None:
    file = _file(checkpoint, batch)
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    try:
        found: OffsetJson = json.loads(lines[-1])
        return StreamOffset.from_json(found)
    except (ValueError, IndexError, AttributeError, TypeError):
        raise LakeCheckpointError(
            f"{file} is damaged: {lines[-1][:80] if lines else ''!r}, expected the offsets of a batch. The table knows "
            "where it ends: delete the checkpoint to go on from there"
        ) from None


# -- what the cluster is asked -----------------------------------------------------------------------------------


def starting_offsets(position: Position, topics: Topics, options: ReadOptions) -> str:
    """For a query without a checkpoint: where the table ends, and for what it has nothing of what the options say.

    DataLossError, HoleError where the log is not the one that was landed, unless ``options`` let that pass.
    """
    tps = topics.partitions()
    ends = topics.ends(tps)
    before = _as_offset(position)
    before_here = StreamOffset(
        positions={tp: at for tp, at in before.positions.items() if tp.topic in {each.topic for each in tps}},
        topic_ids={name: each for name, each in before.topic_ids.items() if name in {tp.topic for tp in tps}},
        epochs=before.epochs,
    )
    starts: Positions = {}
    if before_here.positions:
        again = topics.topic_ids(before_here.topic_ids)
        found = known(options, topics, before_here, ends)
        starts = {
            tp: at
            for tp, at in found.positions.items()
            if tp in before_here.positions
            and again.get(tp.topic) == before_here.topic_ids.get(tp.topic, again.get(tp.topic))
        }
    fresh = [tp for tp in tps if tp not in starts]
    made_again = [tp for tp in fresh if tp.topic in before_here.topic_ids]
    given = topics.at(options.start, tps, starting=True) if set(fresh) - set(made_again) else {}
    starts |= {tp: given[tp] for tp in fresh if tp not in set(made_again)} | topics.earliest(made_again)
    return json.dumps(to_json(starts))


def joined_plan(position: Position, plan: BatchPlan, topics: Topics, options: ReadOptions, *, lose: bool) -> Joined:
    """The plan as the table goes on. HoleError where it cannot, unless ``lose``."""
    ids = topics.topic_ids({})
    wanted = []
    for each in plan.ranges:
        now = ids.get(each.topic)
        if None not in (now, each.topic_id) and now != each.topic_id:
            if not lose:
                where = place(each.topic, each.topic_id, each.partition)
                raise HoleError(
                    f"{where}: the topic was made again, with id {now}, before {each.start} to {each.end} was landed"
                )
            continue
        wanted.append(each)
    wanted = _from_the_start(position, wanted, plan, topics, options)
    return joined(position, wanted, cut=_cuts(position, plan, topics), lose=lose)


def _from_the_start(
    position: Position, ranges: Sequence[FileRange], plan: BatchPlan, topics: Topics, options: ReadOptions
) -> list[FileRange]:
    """A table that has nothing of a partition that was read before is another one than the checkpoint has filled: it
    gets all that the starting offsets name. With ``latest`` they name nothing of before, so the checkpoint says it."""
    known = _as_offset(position).positions
    strange = [tp for each in ranges if (tp := _tp(each)) not in known and tp not in plan.begun]
    if not strange or options.start is Named.LATEST:
        return list(ranges)
    starts = topics.at(options.start, topics.partitions(), starting=True)
    return [
        replace(each, start=min(each.start, starts[tp])) if (tp := _tp(each)) in strange and tp in starts else each
        for each in ranges
    ]


def _cuts(position: Position, plan: BatchPlan, topics: Topics) -> dict[tuple[str, int], Offset]:
    """Where logs were cut since the table landed them: asked where the leader epoch has grown since (KIP-320)."""
    landed = _as_offset(position)
    ids = topics.topic_ids({})
    asked = {
        tp: epoch
        for tp, epoch in landed.epochs.items()
        if plan.epochs.get(tp, epoch) > epoch and landed.topic_ids.get(tp.topic, ids.get(tp.topic)) == ids.get(tp.topic)
    }
    return {
        (tp.topic, tp.partition): end
        for tp, (_, end) in topics.epoch_ends(asked).items()
        if end is not None and end < landed.positions[tp]
    }


def _tp(each: FileRange) -> TopicPartition:
    return TopicPartition(each.topic, each.partition)


def _as_offset(position: Position) -> StreamOffset:
    """The table's end as a stream has it."""
    ends: dict[TopicPartition, Any] = {
        TopicPartition(topic, number): end
        for topic, each in position.topics.items()
        for number, end in each.partitions.items()
    }
    return StreamOffset(
        positions={tp: end.offset for tp, end in ends.items()},
        topic_ids={topic: each.topic_id for topic, each in position.topics.items() if each.topic_id is not None},
        epochs={tp: end.epoch for tp, end in ends.items() if end.epoch is not None},
    )
