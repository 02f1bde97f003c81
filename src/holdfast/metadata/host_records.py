"""Which host has which broker id, as records of the metadata.

They are ConfigRecords of a resource type of our own, one resource a host: a controller of a version that knows nothing
of hosts keeps them, also in its snapshots, and tells nobody of them (docs/decisions/0019). The nameless resource has
the number of the last new id, as the version of Kafka's znode /brokers/seqid.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from holdfast.metadata import broker_ids
from holdfast.metadata.broker_ids import Applicant, HostEntry, KnownIds, Taken
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import ConfigRecord, MetadataRecord, ResourceType
from holdfast.model.errors import MetadataError
from holdfast.model.types import BrokerId

_BROKER_ID: Final = "broker.id"
_CLAIMANT: Final = "claimant"
_ADDRESS: Final = "address"
_SEQUENCE: Final = "sequence"
_NO_HOST: Final = ""


def hosts(image: ClusterImage) -> dict[str, HostEntry]:
    """Everything that is kept."""
    return {
        name: _entry(name, values)
        for (kind, name), values in image.configs.items()
        if kind == ResourceType.HOST and name != _NO_HOST
    }


def host(image: ClusterImage, name: str) -> HostEntry | None:
    """What is kept of one."""
    values = image.configs.get((ResourceType.HOST, name)) if name != _NO_HOST else None
    return None if values is None else _entry(name, values)


def sequence(image: ClusterImage) -> int:
    """The number of the last new id; 0 before the first."""
    values = image.configs.get((ResourceType.HOST, _NO_HOST))
    return 0 if values is None else int(values.get(_SEQUENCE, "0"))


def known(image: ClusterImage, live: frozenset[BrokerId]) -> KnownIds:
    """What ``broker_ids.take`` goes by."""
    kept = hosts(image)
    mapped = {entry.broker_id for entry in kept.values()}

    def used() -> set[BrokerId]:
        """In time linear in partitions (K426-11)."""
        return {
            replica
            for topic in image.topics.values()
            for partition in topic.partitions.values()
            for replica in partition.replicas
        }

    def is_known(broker_id: BrokerId) -> bool:
        return broker_id in image.brokers or broker_id in mapped or broker_id in used()

    return KnownIds(hosts=kept, live=live, used=used, is_known=is_known, sequence=sequence(image))


def taken(image: ClusterImage, applicant: Applicant, outcome: Taken) -> tuple[MetadataRecord, ...]:
    """The records that keep an id for who takes it."""
    entry = HostEntry(broker_id=outcome.broker_id, claimant=applicant.claimant, address=applicant.address)
    records = list(put(image, applicant.host, entry))
    if outcome.sequence is not None:
        records = [*numbered(outcome.sequence), *records]
    return tuple(records)


def numbered(last: int) -> Iterator[MetadataRecord]:
    """The record after which this is the number of the last new id; none of 0, with which a cluster begins."""
    if last:
        yield _record(_NO_HOST, _SEQUENCE, str(last))


def put(image: ClusterImage, name: str, entry: HostEntry) -> Iterator[MetadataRecord]:
    """The records after which the entry is what is kept of the host; none if it is that already."""
    before = _kept(image, name)
    wanted = {
        _BROKER_ID: str(entry.broker_id),
        _CLAIMANT: None if entry.claimant is None else str(entry.claimant),
        _ADDRESS: entry.address,
    }
    for key, value in wanted.items():
        if before.get(key) != value:
            yield _record(name, key, value)


def forget(image: ClusterImage, name: str) -> Iterator[MetadataRecord]:
    """The records after which nothing is kept of the host."""
    for key in sorted(_kept(image, name)):
        yield _record(name, key, None)


def registered(image: ClusterImage, name: str, broker_id: BrokerId) -> Iterator[MetadataRecord]:
    """A broker on this host has registered (K426-09)."""
    entry, going = broker_ids.remember(hosts(image), name, broker_id)
    if entry is not None:
        yield from put(image, name, entry)
    for each in going:
        yield from forget(image, each)


def seen_alive(image: ClusterImage, broker_id: BrokerId) -> Iterator[MetadataRecord]:
    """A broker counts as alive: its id is no more that of somebody who may come."""
    for name, entry in sorted(hosts(image).items()):
        if entry.broker_id == broker_id and entry.claimant is not None:
            yield from put(image, name, HostEntry(broker_id=broker_id))


def _kept(image: ClusterImage, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] | None = image.configs.get((ResourceType.HOST, name))
    return found or {}


def _record(name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.HOST, resource_name=name, name=key, value=value)


def _entry(name: str, values: Mapping[str, str]) -> HostEntry:
    try:
        claimant = values.get(_CLAIMANT)
        return HostEntry(
            broker_id=int(values[_BROKER_ID]),
            claimant=None if claimant is None else UUID(claimant),
            address=values.get(_ADDRESS),
        )
    except (KeyError, ValueError) as e:
        raise MetadataError(f"Host {name} has {dict(values)}: expected the number of a broker") from e
