"""Where a commit may be cut: for a store that cannot write any number of records at once.

Records that make one thing as its users see it are an atom, and stay together: a topic with its configurations and
partitions, partitions that a topic gets more of, the configurations of one resource, the quotas of one entity. Between
atoms a commit may be cut: the controller orders the records of each decision so that a new controller can go on from
every prefix of whole atoms.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from holdfast.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ResourceType,
    TopicRecord,
)
from holdfast.model.types import TopicId
from holdfast.security.quota_entities import QuotaEntity

_Thing: TypeAlias = TopicId | tuple[int, str] | QuotaEntity
"""A topic's partitions, a resource's configurations, or an entity's quotas."""


def atoms(records: Sequence[MetadataRecord]) -> Iterator[Sequence[MetadataRecord]]:
    """The records, in their order, as what must not be cut."""
    begin = 0
    things: tuple[_Thing, ...] = ()
    for place, record in enumerate(records):
        thing = _thing(record)
        if thing is not None and thing in things:
            continue
        if place > begin:
            yield records[begin:place]
        begin = place
        if isinstance(record, TopicRecord):
            things = (record.topic_id, (int(ResourceType.TOPIC), record.name))
        else:
            things = () if thing is None else (thing,)
    if begin < len(records):
        yield records[begin:]


def _thing(record: MetadataRecord) -> _Thing | None:
    """What a record says something of that others may say more of."""
    if isinstance(record, PartitionRecord):
        return record.topic_id
    if isinstance(record, ConfigRecord):
        return int(record.resource_type), record.resource_name
    if isinstance(record, ClientQuotaRecord):
        return record.entity
    return None


def pieces(
    records: Sequence[MetadataRecord], limit: int, weight: Callable[[MetadataRecord], int] = lambda record: 1
) -> Iterator[list[MetadataRecord]]:
    """The records cut into pieces of at most ``limit``, by number or by another weight; an atom that is heavier is a
    piece by itself."""
    piece: list[MetadataRecord] = []
    total = 0
    for atom in atoms(records):
        more = sum(map(weight, atom))
        if piece and total + more > limit:
            yield piece
            piece, total = [], 0
        piece.extend(atom)
        total += more
    if piece:
        yield piece
