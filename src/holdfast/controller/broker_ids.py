"""Which host has which broker id: what the controller decides of it where the store keeps it as records (KIP-426).

The steps are metadata/broker_ids.py, the records metadata/host_records.py. Everything is one queue here, so of two
brokers that ask at the same time the second one sees what the first one got (K426-17).
"""

from collections.abc import Mapping

from holdfast.controller.events import BrokerHost, BrokerHosts, ClaimBrokerId, Decision, ManageBrokerIds
from holdfast.controller.state import ControllerState
from holdfast.metadata import broker_ids, host_records
from holdfast.metadata.broker_ids import HostEntry, Taken
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import MetadataRecord
from holdfast.model.errors import ConfigError, InvalidRequestError, ResourceNotFoundError
from holdfast.model.types import TimestampMs


def claim(state: ControllerState, event: ClaimBrokerId, now_ms: TimestampMs) -> Decision:
    """A broker without an id starts. What it gets is kept for it before it hears of it."""
    image, applicant = state.image, event.applicant
    try:
        broker_ids.check_host(applicant.host)
        broker_ids.check_room(host_records.hosts(image), applicant.host)
    except ConfigError as e:
        return Decision(reply=InvalidRequestError(str(e)))
    live = frozenset(broker.id for broker in image.brokers.values() if not broker.fenced)
    outcome = broker_ids.take(host_records.known(image, live | event.answering), applicant)
    records: tuple[MetadataRecord, ...] = ()
    if isinstance(outcome, Taken):
        records = host_records.taken(image, applicant, outcome)
    return Decision(records=records, reply=outcome)


def manage(state: ControllerState, event: ManageBrokerIds, now_ms: TimestampMs) -> Decision:
    """A person looks at the mapping, or changes it (K426-13)."""
    image = state.image
    if event.host is None:
        return Decision(reply=_listing(image))
    if event.broker_id is None:
        records = tuple(host_records.forget(image, event.host))
        if not records:
            return Decision(reply=unknown_host(event.host, host_records.hosts(image)))
    else:
        try:
            entry = HostEntry(broker_id=broker_ids.check_id(event.broker_id))
            broker_ids.check_room(host_records.hosts(image), event.host)
            records = tuple(host_records.put(image, broker_ids.check_host(event.host), entry))
        except ConfigError as e:
            return Decision(reply=InvalidRequestError(str(e)))
    after, _ = image.apply(records, image.next_offset)
    return Decision(records=records, reply=_listing(after))


def unknown_host(host: str, hosts: Mapping[str, HostEntry]) -> ResourceNotFoundError:
    """One that is to be forgotten."""
    kept = ", ".join(sorted(hosts)) or "no host"
    return ResourceNotFoundError(f"host {host} has no broker id: expected one of {kept}")


def _listing(image: ClusterImage) -> BrokerHosts:
    return listing(image, host_records.hosts(image), host_records.sequence(image))


def listing(image: ClusterImage, hosts: Mapping[str, HostEntry], sequence: int) -> BrokerHosts:
    """What is kept, wherever that is, and how the brokers of these ids are."""
    return BrokerHosts(
        hosts=tuple(
            BrokerHost(
                host=name,
                broker_id=entry.broker_id,
                is_awaited=entry.claimant is not None,
                is_alive=_is_alive(image, entry.broker_id),
            )
            for name, entry in sorted(hosts.items())
        ),
        sequence=sequence,
    )


def _is_alive(image: ClusterImage, broker_id: int) -> bool | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else not broker.fenced
