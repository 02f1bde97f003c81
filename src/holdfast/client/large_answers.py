"""The answers of a large cluster, read over and over: Metadata 12, ManageLogDirs 0 and ListOffsets 7, by hand. Pure.

For who looks at a whole cluster every few seconds. What has not changed since the last answer is not made again: a
topic, a replica or a partition whose bytes are the same is the same object, so that two looks at 39,000 partitions
share them. Everything else of the client goes through kio, and tests hold these readers against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.client.refused import raise_for, refusal
from holdfast.client.translate import none_if_negative
from holdfast.client.views import (
    BrokerNode,
    ClusterMetadata,
    DisksView,
    DiskView,
    MoveView,
    OffsetSpec,
    PartitionMetadata,
    ReplicaOnDisk,
    TopicView,
)
from holdfast.model.errors import InvalidRequestError
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.protocol.wire import compact_string, skip_tags, uvarint, varint

MOST_TUPLES: Final = 10_000
"""Of broker ids that are kept, so that equal ones are one."""
T = TypeVar("T")

_SHORT, _INT = Struct(">h"), Struct(">i")
_PARTITION = Struct(">hiii")
_LISTED = Struct(">ihqqi")
_REPLICA = Struct(">iqq?B")
_DIR = Struct(">qqqq?")
_MOVED = Struct(">qq")
_WANTED = Struct(">iiqB")
_LIST_HEAD: Final = Struct(">ib")
_NO_EPOCH, _ANY_REPLICA, _READ_UNCOMMITTED = -1, -1, 0


class KnownTopic(NamedTuple):
    """A topic and the bytes that told it; ``tps``: its partitions, in order."""

    raw: bytes
    view: TopicView
    tps: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class KnownDir:
    """The replicas of a directory and the bytes that told them."""

    raw: bytes
    replicas: tuple[ReplicaOnDisk, ...]


class MadeRequests(NamedTuple):
    """Bodies by leader, and the view that they are of."""

    view: ClusterMetadata
    bodies: Mapping[BrokerId, bytes]


class LargeAnswers:
    """What one cluster has told. InvalidRequestError from all that read: bytes that are no such answer."""

    def __init__(self) -> None:
        self._topics: dict[bytes, KnownTopic] = {}
        self._brokers: dict[tuple[int, ...], tuple[BrokerId, ...]] = {}
        self._dirs: dict[tuple[BrokerId, str], KnownDir] = {}
        self._requests: dict[OffsetSpec, MadeRequests] = {}

    # -- Metadata ----------------------------------------------------------------------------------------------

    def metadata(self, body: memoryview | bytes) -> ClusterMetadata:
        """Of a request for all topics."""
        return _read(self._metadata, bytes(body), "Metadata")

    def _metadata(self, body: bytes) -> ClusterMetadata:
        count, at = _count(body, 4)
        brokers: dict[BrokerId, BrokerNode] = {}
        for _ in range(count):
            (broker_id,) = _INT.unpack_from(body, at)
            host, at = _string(body, at + 4)
            (port,) = _INT.unpack_from(body, at)
            rack, at = _nullable(body, at + 4)
            at = skip_tags(body, at)
            brokers[broker_id] = BrokerNode(broker_id=broker_id, host=host, port=port, rack=rack)
        cluster_id, at = _nullable(body, at)
        (controller,) = _INT.unpack_from(body, at)
        count, at = _count(body, at + 4)
        known, self._topics = self._topics, {}
        for _ in range(count):
            size, begin = varint(body, at + 2)
            name = body[begin : begin + size - 1]
            before = known.get(name)
            if before is not None and body.startswith(before.raw, at):
                self._topics[name] = before
                at += len(before.raw)
            else:
                view, end = self._topic(body, at)
                tps = tuple(TopicPartition(view.name, p.partition) for p in view.partitions)
                if before is not None and before.tps == tps:
                    tps = before.tps
                self._topics[name] = KnownTopic(body[at:end], view, tps)
                at = end
        skip_tags(body, at)
        return ClusterMetadata(
            cluster_id=cluster_id,
            controller_id=none_if_negative(controller),
            brokers=brokers,
            topics={topic.view.name: topic.view for topic in self._topics.values()},
        )

    def _topic(self, body: bytes, at: int) -> tuple[TopicView, int]:
        (code,) = _SHORT.unpack_from(body, at)
        name, at = _nullable(body, at + 2)
        topic_id = body[at : at + 16]
        internal = bool(body[at + 16])
        count, at = _count(body, at + 17)
        partitions = []
        for _ in range(count):
            error, index, leader, epoch = _PARTITION.unpack_from(body, at)
            replicas, at = self._ids(body, at + _PARTITION.size)
            isr, at = self._ids(body, at)
            offline, at = self._ids(body, at)
            at = skip_tags(body, at) if body[at] else at + 1
            partitions.append(
                PartitionMetadata(
                    partition=index,
                    leader=None if leader < 0 else leader,
                    leader_epoch=None if epoch < 0 else epoch,
                    replicas=replicas,
                    isr=isr,
                    offline=offline,
                    error=refusal(error, None, f"partition {name}-{index}") if error else None,
                )
            )
        partitions.sort(key=lambda p: p.partition)
        view = TopicView(
            name=str(name),
            topic_id=UUID(bytes=topic_id) if any(topic_id) else None,
            internal=internal,
            partitions=tuple(partitions),
            error=refusal(code, None, f"topic {name!r}") if code else None,
        )
        return view, skip_tags(body, at + 4)

    def _ids(self, body: bytes, at: int) -> tuple[tuple[BrokerId, ...], int]:
        """An array of broker ids; the same ones are one tuple."""
        count, at = _count(body, at)
        end = at + 4 * count
        if end > len(body):
            raise ValueError(f"{count} broker ids at byte {at} of {len(body)}")
        found = tuple(n for (n,) in _INT.iter_unpack(body[at:end]))
        if len(self._brokers) > MOST_TUPLES:
            self._brokers.clear()
        return self._brokers.setdefault(found, found), end

    # -- ListOffsets -------------------------------------------------------------------------------------------

    def offset_requests(self, view: ClusterMetadata, spec: OffsetSpec) -> Mapping[BrokerId, bytes]:
        """The body of a request to each broker, for all that it leads; the same as before where nothing has changed."""
        made = self._requests.get(spec)
        if made is None or made.view.brokers != view.brokers or made.view.topics != view.topics:
            made = self._requests[spec] = MadeRequests(view, _offset_requests(view, spec))
        return made.bodies

    def offsets(self, body: memoryview | bytes) -> dict[TopicPartition, Offset]:
        """Of partitions that the last metadata has; one with an error or without an offset is left out."""
        return _read(self._offsets, bytes(body), "ListOffsets")

    def _offsets(self, body: bytes) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        count, at = _count(body, 4)
        for _ in range(count):
            size, begin = varint(body, at)
            at = begin + size - 1
            topic = self._topics.get(body[begin:at])
            parts, at = _count(body, at)
            for _ in range(parts):
                index, error, _, offset, _ = _LISTED.unpack_from(body, at)
                at += _LISTED.size
                at = skip_tags(body, at) if body[at] else at + 1
                if topic is None or error or offset < 0:
                    continue
                if index < len(topic.tps) and topic.tps[index].partition == index:  # as good as always
                    found[topic.tps[index]] = offset
                else:
                    found |= {tp: offset for tp in topic.tps if tp.partition == index}
            at = skip_tags(body, at)
        return found

    # -- ManageLogDirs -----------------------------------------------------------------------------------------

    def disks(self, broker: BrokerId, body: memoryview | bytes) -> DisksView:
        """The directories of a broker; raises the error that it answers."""
        return _read(lambda raw: self._disks(broker, raw), bytes(body), "ManageLogDirs")

    def _disks(self, broker: BrokerId, body: bytes) -> DisksView:
        (code,) = _SHORT.unpack_from(body, 0)
        message, at = _nullable(body, 2)
        raise_for(code, message, f"log directories of broker {broker}")
        known = {key: self._dirs.pop(key) for key in list(self._dirs) if key[0] == broker}
        disks = []
        count, at = _count(body, at)
        for _ in range(count):
            disk, at = self._disk(broker, body, at, known)
            disks.append(disk)
        moves, at = _many(body, at, _move)
        skip_tags(body, at)
        return DisksView(disks=tuple(disks), moves=tuple(moves))

    def _disk(
        self, broker: BrokerId, body: bytes, at: int, known: Mapping[tuple[BrokerId, str], KnownDir]
    ) -> tuple[DiskView, int]:
        path, at = _string(body, at)
        directory_id = body[at : at + 16]
        state, at = _string(body, at + 16)
        reason, at = _nullable(body, at)
        since_ms, total, usable, probe_us, cordoned = _DIR.unpack_from(body, at)
        begin = at + _DIR.size
        before = known.get((broker, path))
        if before is not None and body.startswith(before.raw, begin):
            found, at = before, begin + len(before.raw)
        else:
            replicas, at = _replicas(body, begin, before)
            found = KnownDir(body[begin:at], replicas)
        self._dirs[broker, path] = found
        device = int.from_bytes(body[at : at + 8], "big", signed=True)
        view = DiskView(
            path=path,
            directory_id=UUID(bytes=directory_id) if any(directory_id) else None,
            state=state,
            reason=reason,
            since_ms=since_ms or None,
            total_bytes=none_if_negative(total),
            usable_bytes=none_if_negative(usable),
            probe_ms=None if probe_us < 0 else probe_us / 1000,
            cordoned=cordoned,
            device=none_if_negative(device),
            replicas=found.replicas,
        )
        return view, skip_tags(body, at + 8)


def _offset_requests(view: ClusterMetadata, spec: OffsetSpec) -> dict[BrokerId, bytes]:
    topics: dict[BrokerId, list[bytes]] = {broker: [] for broker in view.brokers}
    for name, topic in view.topics.items():
        wanted: dict[BrokerId, list[bytes]] = {}
        for p in topic.partitions:
            if p.leader in topics:
                wanted.setdefault(p.leader, []).append(_WANTED.pack(p.partition, _NO_EPOCH, spec.value, 0))
        for leader, parts in wanted.items():
            topics[leader].append(b"".join((compact_string(name), uvarint(len(parts) + 1), *parts, b"\0")))
    head = _LIST_HEAD.pack(_ANY_REPLICA, _READ_UNCOMMITTED)
    return {
        leader: b"".join((head, uvarint(len(found) + 1), *found, b"\0")) for leader, found in topics.items() if found
    }


def _replicas(body: bytes, at: int, before: KnownDir | None) -> tuple[tuple[ReplicaOnDisk, ...], int]:
    """Those that are told by the same bytes at the same place as before are the same objects."""
    count, begin = _count(body, at)
    old, olds = (b"", ()) if before is None else (before.raw, before.replicas)
    shift = at
    found: list[ReplicaOnDisk] = []
    at = begin
    for number in range(count):
        size, start = varint(body, at)
        end = start + size - 1
        index, bytes_, lag, future, tags = _REPLICA.unpack_from(body, end)
        after = end + _REPLICA.size if not tags else skip_tags(body, end + _REPLICA.size - 1)
        earlier = olds[number] if number < len(olds) and old.startswith(body[at : end + 4], at - shift) else None
        if earlier is not None and (earlier.size_bytes, earlier.offset_lag, earlier.future) == (bytes_, lag, future):
            found.append(earlier)
        else:
            tp = TopicPartition(str(body[start:end], "utf-8"), index) if earlier is None else earlier.tp
            found.append(ReplicaOnDisk(tp=tp, size_bytes=bytes_, offset_lag=lag, future=future))
        at = after
    return tuple(found), at


def _move(body: bytes, at: int) -> tuple[MoveView, int]:
    topic, at = _string(body, at)
    (index,) = _INT.unpack_from(body, at)
    source, at = _string(body, at + 4)
    target, at = _string(body, at)
    lag, rate = _MOVED.unpack_from(body, at)
    tp = TopicPartition(topic, index)
    move = MoveView(tp=tp, source=source, target=target, lag=lag, bytes_per_s=rate)
    return move, skip_tags(body, at + _MOVED.size)


# -- primitives ----------------------------------------------------------------------------------------------------


def _read(reader: Callable[[bytes], T], body: bytes, what: str) -> T:
    try:
        return reader(body)
    except (StructError, IndexError, ValueError) as e:
        raise InvalidRequestError(f"an answer to {what} of {len(body)} bytes cannot be read: {e}") from None


def _count(body: bytes, at: int) -> tuple[int, int]:
    count, at = varint(body, at)
    if count - 1 > len(body) - at:
        raise ValueError(f"an array of {count - 1} elements in {len(body) - at} bytes")
    return max(0, count - 1), at


def _nullable(body: bytes, at: int) -> tuple[str | None, int]:
    size, at = varint(body, at)
    if not size:
        return None, at
    end = at + size - 1
    if end > len(body):
        raise ValueError(f"a string of {size - 1} bytes at byte {at} of {len(body)}")
    return str(body[at:end], "utf-8"), end


def _string(body: bytes, at: int) -> tuple[str, int]:
    text, at = _nullable(body, at)
    return text or "", at


def _many(body: bytes, at: int, one: Callable[[bytes, int], tuple[T, int]]) -> tuple[list[T], int]:
    count, at = _count(body, at)
    found = []
    for _ in range(count):
        each, at = one(body, at)
        found.append(each)
    return found, at
