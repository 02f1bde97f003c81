"""Which host has which broker id, in ZooKeeper's nodes (KIP-426): what they say, and the same as records.

    /brokers/hosts/<host>       {"version":0,"broker.id":10}: of the broker that was there last
    /brokers/seqid              no data: its version is the number of the last new id
    /holdfast/claimed_ids/<id>  who has taken the id and has not registered since

The nodes belong to whoever starts and to tools, not to a controller: no commit writes them, and no load reads them.
The embedded store keeps the same as records (host_records.py). Only a migration has both: ``without_hosts`` and
``with_hosts`` take them out of an image and put them in.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.metadata import host_records, znode_paths
from holdfast.metadata.broker_ids import HostEntry, decode_host_node, encode_host_node
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import ConfigRecord, MetadataRecord, ResourceType
from holdfast.metadata.znode_json import Fields, encode, id_text, wrong
from holdfast.metadata.znode_writes import CreateNode, NodeWrite, SetNode
from holdfast.model.errors import MetadataError
from holdfast.model.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class IdClaim:
    """A start on ``host`` has taken an id."""

    host: str
    entry: HostEntry


def claim_node(claim: IdClaim) -> bytes:
    """The text of /holdfast/claimed_ids/<id>."""
    entry = claim.entry
    assert entry.claimant is not None, "what nobody has taken is no claim"
    values = {"version": 1, "host": claim.host, "claimant": id_text(entry.claimant)}
    return encode(values if entry.address is None else values | {"address": entry.address})


def read_claim_node(path: str, data: bytes, broker_id: BrokerId) -> IdClaim:
    """MetadataError names the node."""
    fields = Fields.of(path, data)
    entry = HostEntry(broker_id=broker_id, claimant=fields.uuid("claimant"), address=fields.optional_text("address"))
    return IdClaim(host=fields.text("host"), entry=entry)


def read_host_node(path: str, data: bytes) -> BrokerId:
    """The id in /brokers/hosts/<host>, which tools write too. MetadataError names the node."""
    try:
        return decode_host_node(data)
    except ValueError as e:
        raise wrong(path, f"{data[:80]!r}", 'JSON with "version" and "broker.id"') from e


def merged(mapped: Mapping[str, BrokerId], claims: Mapping[BrokerId, IdClaim]) -> dict[str, HostEntry]:
    """What is kept of each host: an id that was taken last goes before the one that it has had."""
    found = {host: HostEntry(broker_id=broker_id) for host, broker_id in mapped.items()}
    return found | {claim.host: claim.entry for _, claim in sorted(claims.items())}


# -- and records -------------------------------------------------------------------------------------------------------


def without_hosts(image: ClusterImage) -> ClusterImage:
    """The same cluster, of which no host is known."""
    records = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=None)
        for (kind, name), values in image.configs.items()
        if kind == ResourceType.HOST
        for key in values
    ]
    return _applied(image, records)


def with_hosts(image: ClusterImage, hosts: Mapping[str, HostEntry], sequence: int) -> ClusterImage:
    """The same cluster, of which these hosts are known and no others."""
    image = without_hosts(image)
    records = [record for name, entry in sorted(hosts.items()) for record in host_records.put(image, name, entry)]
    return _applied(image, [*records, *host_records.numbered(sequence)])


def _applied(image: ClusterImage, records: Sequence[MetadataRecord]) -> ClusterImage:
    made, _ = image.apply(records, image.next_offset)
    return replace(made, offset=image.offset)


def host_writes(image: ClusterImage) -> Iterator[NodeWrite]:
    """What makes the nodes of the hosts that an image knows, where there are none and nobody has got a new id yet.

    MetadataError when two hosts await one id: an insistent start has taken it, and it has one node."""
    awaited: dict[BrokerId, str] = {}
    for name, entry in sorted(host_records.hosts(image).items()):
        if entry.claimant is None:
            yield CreateNode(path=znode_paths.host(name), data=encode_host_node(entry.broker_id))
            continue
        other = awaited.setdefault(entry.broker_id, name)
        if other != name:
            raise MetadataError(
                f"Hosts {other} and {name} both await broker id {entry.broker_id}: expected one. Forget the other: "
                f"`holdfast brokers ids forget`"
            )
        path = znode_paths.claimed_id(entry.broker_id)
        yield CreateNode(path=path, data=claim_node(IdClaim(host=name, entry=entry)))
    for _ in range(host_records.sequence(image)):
        yield SetNode(path=znode_paths.BROKER_SEQUENCE, data=b"")
