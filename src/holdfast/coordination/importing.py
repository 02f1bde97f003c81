"""An exported cluster's metadata comes into an empty store.

    mark it as unfinished -> empty it -> fill it -> read it again, compare -> mark it as whole -> take the mark off

Owns what is made of the image (``anew``, ``with_logs``, which are pure) and the order of the steps; what a mark is to a
store is the side's (migration.py). A run that was killed leaves a store that every broker refuses and that another run
begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.coordination.migration import MigrationError, MigrationStep, Side, StoreStanding, Told
from holdfast.coordination.rebuild import EPOCH_MARGIN, PRODUCER_ID_MARGIN, FoundDir, FoundReplica
from holdfast.metadata.image import ClusterImage, PartitionImage, partition_record
from holdfast.metadata.listing import difference_lines, differences, listing
from holdfast.metadata.moved import FILE, Moved
from holdfast.metadata.records import (
    ControllerClaimRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RecoveryState,
    RegisterBrokerRecord,
)
from holdfast.model.types import BrokerId, ControllerEpoch, TopicPartition

_NAMED: Final = 3


def anew(image: ClusterImage, cluster_id: str) -> ClusterImage:
    """The same topics, with their ids, partitions, replicas and configurations, for a cluster that has no records yet.

    All replicas are in sync and nobody leads; a reassignment that was under way has come to its end. Brokers are not
    registered: each comes with its id. Levels of features, dynamic configurations of brokers and the ids of hosts stay.
    """
    records = list(_anew(image))
    made, _ = ClusterImage.empty(cluster_id).apply(records, 0)
    return made


def _anew(image: ClusterImage) -> Iterator[MetadataRecord]:
    for record in image.to_records():
        match record:
            case RegisterBrokerRecord() | ControllerClaimRecord():
                continue
            case PartitionRecord():
                replicas = tuple(r for r in record.replicas if r not in record.removing)
                yield PartitionRecord(
                    partition=record.partition, topic_id=record.topic_id, replicas=replicas, isr=replicas, leader=None
                )
            case _:
                yield record


def with_logs(image: ClusterImage, found: Sequence[FoundDir]) -> tuple[ClusterImage, tuple[str, ...]]:
    """The image for the log directories that the cluster has, and lines about what a person should know.

    In sync are those replicas whose log goes farthest, as after ``metadata recover``; epochs, offsets and producer ids
    go on above all that the directories know. MigrationError when the directories are of another cluster, or have
    topics that the image lacks: it is older than they are.
    """
    _refuse_others(image, found)
    logs: dict[TopicPartition, dict[BrokerId, FoundReplica]] = {}
    for replica in (replica for each in found for replica in each.replicas):
        of = logs.setdefault(replica.topic_partition, {})
        other = of.get(replica.broker_id)
        if other is None or replica.end.rank > other.end.rank:
            of[replica.broker_id] = replica
    doubts: list[str] = []
    records = list(_with_logs(image, logs, doubts))
    known = max([0, image.next_offset, *(each.broker_epoch for each in found)])
    made, _ = ClusterImage.empty(image.cluster_id).apply(records, known + EPOCH_MARGIN)
    return made, tuple(doubts)


def _refuse_others(image: ClusterImage, found: Iterable[FoundDir]) -> None:
    for each in found:
        if each.cluster_id not in (None, image.cluster_id):
            raise MigrationError(f"{each.path} is of cluster {each.cluster_id}, the file of {image.cluster_id}")
        if each.unreadable:
            path, why = next(iter(each.unreadable.items()))
            raise MigrationError(f"{path} cannot be read: {why}. Bring it back, or move it away, first")
        for replica in each.replicas:
            topic = image.topics.get(replica.topic_partition.topic)
            if topic is None or topic.topic_id != replica.topic_id:
                raise MigrationError(
                    f"{replica.path} is of a topic that the file has not (id {replica.topic_id}): the file is older. "
                    "`holdfast metadata recover` rebuilds from the log directories; what was deleted has to go first"
                )


def _with_logs(
    image: ClusterImage, logs: Mapping[TopicPartition, Mapping[BrokerId, FoundReplica]], doubts: list[str]
) -> Iterator[MetadataRecord]:
    highest = max((r.highest_producer_id for of in logs.values() for r in of.values()), default=-1)
    names = {topic.topic_id: topic.name for topic in image.topics.values()}
    nowhere: list[TopicPartition] = []
    for record in image.to_records():
        match record:
            case ControllerClaimRecord() | ProducerIdsRecord():
                continue
            case RegisterBrokerRecord():
                yield replace(record, fenced=True)
            case PartitionRecord():
                tp = TopicPartition(names[record.topic_id], record.partition)
                partition = image.topics[tp.topic].partitions[tp.partition]
                if tp not in logs:
                    nowhere.append(tp)
                made = _as_logs_are(partition, logs.get(tp, {}))
                yield partition_record(record.topic_id, tp.partition, made)
            case _:
                yield record
    producer_id = max(image.next_producer_id, highest + 1) + PRODUCER_ID_MARGIN
    yield ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=producer_id)
    if nowhere:
        more = f" and {len(nowhere) - _NAMED} more" if len(nowhere) > _NAMED else ""
        doubts.append(
            f"no log directory has a replica of {', '.join(map(str, nowhere[:_NAMED]))}{more}: without records, unless "
            "another machine has them"
        )


def _as_logs_are(partition: PartitionImage, logs: Mapping[BrokerId, FoundReplica]) -> PartitionImage:
    here = {broker: logs[broker] for broker in partition.replicas if broker in logs}
    best = max((replica.end.rank for replica in here.values()), default=None)
    isr = tuple(b for b in partition.replicas if b in here and here[b].end.rank == best) or partition.isr
    epoch = max([partition.leader_epoch, *(replica.highest_epoch for replica in here.values())])
    return replace(
        partition,
        isr=isr,
        leader=None,
        leader_epoch=epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        elr=(),
        last_known_elr=(),
        recovery_state=RecoveryState.RECOVERED,
    )


def refuse_used(standing: StoreStanding, cluster_id: str, name: str) -> None:
    """MigrationError unless the store is empty, or has what an import left that did not come to its end."""
    unfinished = standing.moved is not None and standing.moved.to.startswith(FILE)
    if not standing.is_empty and not unfinished:
        raise MigrationError(f"{name} holds metadata of cluster {standing.cluster_id}: expected an empty one")
    if standing.cluster_id not in (None, cluster_id) and not unfinished:
        raise MigrationError(f"{name} is of cluster {standing.cluster_id}: expected one of cluster {cluster_id}")


def bring(
    target: Side, image: ClusterImage, path: str, least_epoch: ControllerEpoch, import_id: str, told: Told
) -> None:
    """Fill the store, which ``refuse_used`` found to be empty. Can be killed and run again at any point.

    MigrationError when it reads back other than it was written; then no broker can use it."""
    source = f"{FILE}{path}"
    told(MigrationStep.MARK, 0, 1)
    target.begin(Moved(to=source, by=import_id, is_whole=False), image.cluster_id, least_epoch)
    told(MigrationStep.EMPTY, 0, 1)
    target.empty()
    target.fill(image, lambda done, of: told(MigrationStep.FILL, done, of))
    told(MigrationStep.COMPARE, 0, 1)
    different = differences(listing(image), listing(target.load()))
    if different:
        line = next(difference_lines(different[0]))
        raise MigrationError(
            f"{target.name} reads back other than it was written, in {len(different)} things, as {line}: no broker can "
            "use it"
        )
    told(MigrationStep.WHOLE, 0, 1)
    target.mark(Moved(to=source, by=import_id, is_whole=True))
    told(MigrationStep.OPEN, 0, 1)
    target.open()
    told(MigrationStep.DONE, 1, 1)
