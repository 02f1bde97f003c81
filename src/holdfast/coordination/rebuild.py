"""Makes the metadata anew out of the log directories, when every copy of it is gone.

Owns what is read of a log directory (``survey``), what follows from it (``plan``, which is pure), and the making of the
new copies (``execute``). All brokers must be stopped.

    topics             names of directories, ids of partition.metadata, configurations of holdfast.topics
    replicas           who has a copy; the ISR are those whose log goes as far as the one that goes farthest
    leader epochs      one above all that were found
    offsets            begin above every broker epoch that a directory has noted, so that no epoch comes twice
    producer ids       begin above every id in logs and snapshots, by a margin for those that were given and not used

What no directory tells is lost: which brokers were meant to have a copy and have none, partitions without any replica,
dynamic configurations of brokers.
"""

import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from holdfast.coordination import notes
from holdfast.coordination.metadata_copy import MetadataCopy
from holdfast.coordination.metadata_log import Contents, encode_snapshot
from holdfast.coordination.notes import Note
from holdfast.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    ResourceType,
    TopicRecord,
)
from holdfast.model.errors import CorruptRecordError, HoldfastError, KafkaStorageError
from holdfast.model.fates import LogEnd
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.records.batch import HEADER_SIZE, BatchHeader, crc_ok, parse_header
from holdfast.storage import checkpoints, incarnation, partition_metadata, topic_configs
from holdfast.storage.dir_scan import NameKind, classify
from holdfast.storage.files import FileSystem
from holdfast.storage.leader_epochs import LeaderEpochs
from holdfast.storage.log_dir import read_meta_properties
from holdfast.storage.producer_state import ProducerStates
from holdfast.storage.topic_configs import TopicConfigs

log = logging.getLogger(__name__)

EPOCH_MARGIN: Final = 1_000
"""Between what was found and what is new: a directory that cannot be read may know a little more."""
PRODUCER_ID_MARGIN: Final = 1_000_000
"""A thousand blocks of ids that may have been given to brokers and never used in a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReplica:
    """One copy of a partition. ``end``: how far its log goes, by its last batch that is whole and has its CRC."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    broker_id: BrokerId
    path: str
    end: LogEnd
    highest_epoch: int
    highest_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDir:
    """One log directory that could be read."""

    path: str
    broker_id: BrokerId
    cluster_id: str | None
    broker_epoch: int = -1
    replicas: tuple[FoundReplica, ...] = ()
    configs: TopicConfigs | None = None
    note: Note | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Directories of replicas in it that could not be read, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """What would be written. ``doubts``: lines for a person to read before."""

    cluster_id: str
    epoch: int
    offset: Offset
    partitions: Mapping[TopicPartition, tuple[PartitionRecord, LogEnd]]
    records: tuple[MetadataRecord, ...]
    doubts: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Directories that it was made without: there may be more in them than in what was read."""


# -- reading -----------------------------------------------------------------------------------------------------------


def survey(files: FileSystem, broker_id: BrokerId, path: str) -> FoundDir:
    """What one log directory tells. OSError or HoldfastError when it cannot be read."""
    meta = read_meta_properties(files, f"{path}/meta.properties") or {}
    directory_id = meta.get("directory.id")
    noted = None
    if directory_id is not None:
        noted = incarnation.read(files, path, partition_metadata.decode_uuid(directory_id))
    clean_epoch = checkpoints.read_clean_shutdown(files, f"{path}/{checkpoints.CLEAN_SHUTDOWN}")[1]
    replicas, unreadable = [], {}
    for name in sorted(files.listdir(path)):
        _, kind, tp = classify(name)
        if kind is NameKind.REPLICA and tp is not None and files.is_dir(f"{path}/{name}"):
            try:
                replicas.append(_replica(files, broker_id, f"{path}/{name}", tp))
            except (OSError, HoldfastError, ValueError) as e:
                unreadable[f"{path}/{name}"] = str(e)
    return FoundDir(
        path=path,
        broker_id=broker_id,
        cluster_id=meta.get("cluster.id"),
        broker_epoch=max(noted.broker_epoch if noted is not None else -1, -1 if clean_epoch is None else clean_epoch),
        replicas=tuple(replicas),
        configs=topic_configs.read(files, path),
        note=notes.newest(files, path),
        unreadable=unreadable,
    )


def _replica(files: FileSystem, broker_id: BrokerId, path: str, tp: TopicPartition) -> FoundReplica:
    names = files.listdir(path)
    epochs = [epoch for epoch, _ in LeaderEpochs.load(files, f"{path}/leader-epoch-checkpoint").entries()]
    producers = -1
    for name in names:
        if name.endswith(".snapshot"):
            try:
                found = ProducerStates.decode(files.read_bytes(f"{path}/{name}"), 0)
            except (HoldfastError, ValueError):
                continue
            producers = max(producers, -1, *(found.entries if found is not None else ()))
    end, last_epoch = 0, None
    for name in sorted((n for n in names if n.endswith(".log") and n[:-4].isdigit()), reverse=True):
        end = max(end, int(name[:-4]))
        for header in _headers(files, f"{path}/{name}"):
            end, last_epoch = max(end, header.next_offset), header.partition_leader_epoch
            producers = max(producers, header.producer_id)
            epochs.append(header.partition_leader_epoch)
        if last_epoch is not None:
            break
    return FoundReplica(
        topic_partition=tp,
        topic_id=partition_metadata.read(files, f"{path}/{partition_metadata.FILE_NAME}"),
        broker_id=broker_id,
        path=path,
        end=LogEnd(last_epoch, end),
        highest_epoch=max(epochs, default=-1),
        highest_producer_id=producers,
    )


def _headers(files: FileSystem, path: str) -> Iterator[BatchHeader]:
    """Of the batches up to the first that is not whole, has not its CRC, or goes back: there a broker cuts the log too
    when it recovers it. Reads the whole segment, one batch at a time. Only asked for the last segment that has a batch:
    those before it would be every byte of every log, and damage there is found by the broker."""
    handle = files.open(path, readonly=True)
    try:
        position, size, offset = 0, handle.size(), 0
        while position + HEADER_SIZE <= size:
            try:
                header = parse_header(handle.pread(HEADER_SIZE, position))
            except CorruptRecordError:
                return
            if position + header.size > size or header.base_offset < offset or header.next_offset <= header.base_offset:
                return
            if not crc_ok(handle.pread(header.size, position), 0, header):
                return
            position, offset = position + header.size, header.next_offset
            yield header
    finally:
        handle.close()


# -- deciding ----------------------------------------------------------------------------------------------------------


def plan(found: Sequence[FoundDir], unreadable: Mapping[str, str], noted_epoch: int = 0) -> RebuildPlan:
    """The metadata that these directories add up to. ``noted_epoch``: the highest of a note elsewhere.
    KafkaStorageError when they are not of one cluster."""
    unreadable = {**unreadable, **{path: why for each in found for path, why in each.unreadable.items()}}
    doubts = [f"{path} cannot be read: what only it holds is not rebuilt ({why})" for path, why in unreadable.items()]
    clusters = sorted({each.cluster_id for each in found if each.cluster_id is not None})
    if len(clusters) != 1:
        raise KafkaStorageError(f"The log directories are of {len(clusters)} clusters {clusters}: expected one")
    replicas = [replica for each in found for replica in each.replicas]
    ids, more = _topic_ids(replicas)
    doubts += more
    known_ids = [r for r in replicas if r.topic_id is not None]
    partitions = _partitions([r for r in known_ids if r.topic_id == ids[r.topic_partition.topic]], ids)
    for topic in sorted(ids):
        numbers = sorted(tp.partition for tp in partitions if tp.topic == topic)
        missing = sorted(set(range(numbers[-1] + 1)) - set(numbers))
        if missing:
            doubts.append(f"{topic} has no replica of partitions {missing}: they are made empty, without a leader")
            partitions |= {TopicPartition(topic, n): _empty(ids[topic], n, numbers, partitions, topic) for n in missing}
    configs = max((e.configs for e in found if e.configs is not None), key=lambda c: c.told, default=TopicConfigs())
    known = max([-1, *(each.broker_epoch for each in found)])
    epoch = 1 + max([noted_epoch, *(each.note.epoch for each in found if each.note is not None)])
    producer_id = max([-1, *(replica.highest_producer_id for replica in replicas)]) + 1 + PRODUCER_ID_MARGIN
    records = tuple(_records(ids, partitions, configs, producer_id))
    offset = max(known, 0) + EPOCH_MARGIN + len(records)
    return RebuildPlan(
        cluster_id=clusters[0], epoch=epoch + EPOCH_MARGIN, offset=offset, partitions=partitions, records=records,
        doubts=tuple(doubts), unreadable=tuple(unreadable),
    )  # fmt: skip


def _topic_ids(replicas: Iterable[FoundReplica]) -> tuple[dict[str, UUID], list[str]]:
    """The id of each topic: of several under one name the one with the highest leader epochs, then most replicas."""
    counts: dict[str, dict[UUID, tuple[int, int]]] = {}
    doubts = []
    for replica in replicas:
        if replica.topic_id is None:
            doubts.append(f"{replica.path} does not say of which topic it is: left alone")
            continue
        of = counts.setdefault(replica.topic_partition.topic, {})
        epoch, count = of.get(replica.topic_id, (-1, 0))
        of[replica.topic_id] = (max(epoch, replica.highest_epoch), count + 1)
    ids = {}
    for topic, of in counts.items():
        ids[topic] = max(of, key=lambda each: (of[each], each))
        if len(of) > 1:
            others = ", ".join(str(each) for each in of if each != ids[topic])
            doubts.append(f"{topic} has replicas of {len(of)} topics of that name: {ids[topic]} is used, not {others}")
    return ids, doubts


_Partitions = dict[TopicPartition, tuple[PartitionRecord, LogEnd]]


def _partitions(replicas: Iterable[FoundReplica], ids: Mapping[str, UUID]) -> _Partitions:
    by_partition: dict[TopicPartition, dict[BrokerId, FoundReplica]] = {}
    for replica in replicas:
        of = by_partition.setdefault(replica.topic_partition, {})
        other = of.get(replica.broker_id)
        if other is None or replica.end.rank > other.end.rank:
            of[replica.broker_id] = replica
    found: _Partitions = {}
    for tp, of in by_partition.items():
        best = max((replica.end for replica in of.values()), key=lambda end: end.rank)
        whole = sorted(broker for broker, replica in of.items() if replica.end.rank == best.rank)
        rest = sorted(set(of) - set(whole))
        found[tp] = (
            PartitionRecord(
                partition=tp.partition,
                topic_id=ids[tp.topic],
                replicas=(*_turned(whole, tp.partition), *rest),
                isr=tuple(whole),
                leader=None,
                leader_epoch=1 + max(replica.highest_epoch for replica in of.values()),
            ),
            best,
        )
    return found


def _turned(brokers: list[BrokerId], by: int) -> list[BrokerId]:
    """So that not one broker leads everything."""
    at = by % len(brokers)
    return brokers[at:] + brokers[:at]


def _empty(
    topic_id: UUID, number: int, numbers: Sequence[int], partitions: _Partitions, topic: str
) -> tuple[PartitionRecord, LogEnd]:
    like = partitions[TopicPartition(topic, numbers[0])][0]
    record = PartitionRecord(
        partition=number, topic_id=topic_id, replicas=like.replicas, isr=like.replicas, leader=None, leader_epoch=0
    )
    return record, LogEnd(None, 0)


def _records(
    ids: Mapping[str, UUID], partitions: _Partitions, configs: TopicConfigs, producer_id: int
) -> Iterator[MetadataRecord]:
    for topic in sorted(ids):
        yield TopicRecord(name=topic, topic_id=ids[topic])
        for tp in sorted(tp for tp in partitions if tp.topic == topic):
            yield partitions[tp][0]
        for key, value in sorted(configs.topics.get(topic, {}).items()):
            yield ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=key, value=value)
    yield ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=producer_id)


# -- doing -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class RebuiltAt:
    """Where it was written."""

    copies: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def execute(
    files: FileSystem,
    wanted: RebuildPlan,
    copies: Sequence[MetadataCopy],
    directories: Sequence[str],
    witnesses: Sequence[str],
    now_ms: int,
) -> RebuiltAt:
    """Write the plan into every metadata directory that works, say in all that keep notes that these copies are good,
    and keep retention from deleting anything until somebody confirms. ``directories``: of logs; what is not formatted
    gets nothing. KafkaStorageError when no copy could be made."""
    directories = [path for path in directories if notes.is_place(files, path)]
    contents = Contents(
        base=wanted.offset, snapshot_epoch=wanted.epoch, snapshot=encode_snapshot(wanted.records, wanted.epoch, now_ms)
    )
    for directory in directories:
        files.write_atomic(f"{directory}/{topic_configs.RECOVERED}", b"")
    made, ids = RebuiltAt(), {}
    for copy in copies:
        try:
            copy.prepare()
            files.rmtree(posixpath.join(copy.path, notes.DIRECTORY))
            ids[copy.fill(contents, wanted.cluster_id, {}, wanted.epoch)] = copy.path
            copy.log.close()
            made.copies.append(copy.path)
        except (OSError, HoldfastError) as e:
            made.failed[copy.path] = str(e)
    if not made.copies:
        raise KafkaStorageError("; ".join(f"{path}: {why}" for path, why in made.failed.items()))
    note = Note(
        cluster_id=wanted.cluster_id, epoch=wanted.epoch, number=0, broker_id=-1, good=tuple(sorted(ids)), copies=ids
    )
    for path in made.copies:
        _tell(files, path, note)
    for path in dict.fromkeys((*directories, *witnesses)):
        try:
            if notes.is_place(files, path):
                _tell(files, path, note)
        except OSError as e:
            made.failed[path] = str(e)
    return made


def _tell(files: FileSystem, path: str, note: Note) -> None:
    notes.write(files, path, note)
    notes.remove_older(files, path, note.epoch)
