"""Which id a broker without a configured one has (KIP-426): the procedure, and what a store keeps for it.

Owns the order of the steps, and nothing that happens:

    node.id -> meta.properties -> the id that its host has had -> the one missing id (optional) -> a new id

The first two are the broker's own business (``own_id``). For the others a store keeps which host has which id. A host
is a text, its key (broker.id.host.key). A broker takes an id from the store (``take``), once it is registered the store
remembers it for its host (``remember``), and what other hosts have of that id is garbage then (``garbage``). Who has
taken an id and is not alive yet has it for itself; a broker that is started again at the same address is the same one.

Two stores keep the mapping: as records of the metadata (host_records.py), or in znodes /brokers/hosts/<host>, whose
text is here too (``encode_host_node``). What they promise is BrokerIdMapping.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from holdfast.model.errors import ConfigError, InconsistentMetaPropertiesError
from holdfast.model.types import BrokerId

NODE_VERSION: Final = 0
MAX_HOSTS: Final = 10_000
"""That are kept: who asks under another name again and again must not fill the metadata."""
MAX_HOST_BYTES: Final = 1024
"""Of a host's key: it is a name, and goes into every registration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """What is kept of one host. ``claimant``: the start of a broker that has taken the id and was not seen alive since;
    ``address``: where it will listen, if that is known before it does."""

    broker_id: BrokerId
    claimant: UUID | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A broker that starts without an id.

    ``claimant``: of this start, drawn at random. ``adopts``: takes the only missing id where its host has none
    (broker.id.adopt.missing). ``may_be_new``: nothing hides from it who it was; else no id will do but its host's.
    ``insists``: it has waited long enough for those who have taken an id and do not come. ``reserved_max``: new ids are
    above it (reserved.broker.max.id).
    """

    host: str
    claimant: UUID
    address: str | None = None
    adopts: bool = False
    may_be_new: bool = True
    insists: bool = False
    reserved_max: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIds:
    """What a store knows when an id is asked for.

    ``live``: ids that registered brokers have. ``used``: those that have partitions, which may take long to find out:
    asked only where a missing one is looked for. ``is_known``: whether an id is, or was, anybody's. ``sequence``: the
    number of the last new id, 0 before the first.
    """

    hosts: Mapping[str, HostEntry]
    live: Collection[BrokerId]
    used: Callable[[], Collection[BrokerId]]
    is_known: Callable[[BrokerId], bool]
    sequence: int


class Step(Enum):
    """Where an id comes from."""

    HOST = "its host has had it"
    MISSING = "it was the only one missing"
    NEW = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The id, to be kept for the host and this start. ``sequence``: what the store's becomes, if the id is new."""

    broker_id: BrokerId
    step: Step
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """Another start has taken the id and is not alive yet: ask again soon."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralMissing:
    """More than one id is missing: none can be chosen, and no new one is made (K426-07)."""

    missing: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nameless:
    """The host has no id, or one that is alive elsewhere, and another one will not do."""


Outcome: TypeAlias = Taken | Awaited | SeveralMissing | Nameless


def own_id(configured: BrokerId | None, stored: Mapping[str, BrokerId | None]) -> BrokerId | None:
    """What the configuration and meta.properties say, by path (K426-01, K426-02, K426-18); None: nothing.

    InconsistentMetaPropertiesError when they do not agree.
    """
    found = {path: broker_id for path, broker_id in stored.items() if broker_id is not None}
    if configured is not None:
        for path, broker_id in found.items():
            if broker_id != configured:
                raise InconsistentMetaPropertiesError(
                    f"{path} is of node {broker_id}, the configured node.id is {configured}: expected the same"
                )
        return configured
    if len(set(found.values())) > 1:
        several = ", ".join(f"{path} is of node {broker_id}" for path, broker_id in found.items())
        raise InconsistentMetaPropertiesError(f"{several}: expected all log directories of one broker")
    return next(iter(found.values()), None)


def take(known: KnownIds, applicant: Applicant) -> Outcome:
    """Which id it is, by the steps of the KIP: (a) its host's, (b) the only missing one, else a new one."""
    pending = _pending(known.hosts, applicant)
    own = known.hosts.get(applicant.host)
    if own is not None and own.broker_id not in known.live:
        if own.broker_id in pending:
            return Awaited(broker_id=own.broker_id)
        return Taken(broker_id=own.broker_id, step=Step.HOST)
    if not applicant.may_be_new:
        return Nameless()
    if applicant.adopts:
        missing = sorted(set(known.used()).difference(known.live))
        if len(missing) > 1:
            return SeveralMissing(missing=tuple(missing))
        for broker_id in missing:
            return (
                Awaited(broker_id=broker_id) if broker_id in pending else Taken(broker_id=broker_id, step=Step.MISSING)
            )
    sequence = known.sequence + 1
    while known.is_known(applicant.reserved_max + sequence):
        sequence += 1
    return Taken(broker_id=applicant.reserved_max + sequence, step=Step.NEW, sequence=sequence)


def _pending(hosts: Mapping[str, HostEntry], applicant: Applicant) -> set[BrokerId]:
    """Ids that another start has taken, which may still come."""
    if applicant.insists:
        return set()

    def is_his(host: str, entry: HostEntry) -> bool:
        same_address = entry.address is not None and entry.address == applicant.address
        return entry.claimant == applicant.claimant or (host == applicant.host and same_address)

    return {e.broker_id for host, e in hosts.items() if e.claimant is not None and not is_his(host, e)}


def remember(
    hosts: Mapping[str, HostEntry], host: str, broker_id: BrokerId
) -> tuple[HostEntry | None, tuple[str, ...]]:
    """A broker on ``host`` has registered: what to keep of the host, None if that is kept already, and which hosts to
    forget (K426-09, K426-12)."""
    before = hosts.get(host)
    entry = None if before is not None and before.broker_id == broker_id else HostEntry(broker_id=broker_id)
    return entry, garbage(hosts, {broker_id: host})


def garbage(hosts: Mapping[str, HostEntry], live: Mapping[BrokerId, str]) -> tuple[str, ...]:
    """Hosts to forget: they have the id of a broker that is alive on another host (K426-12). ``live``: the host of each
    registered broker that says one. What has the id of a broker that is not alive is kept."""
    return tuple(sorted(host for host, entry in hosts.items() if live.get(entry.broker_id, host) != host))


def check_host(host: str) -> str:
    """``host``, if it can be one's key; ConfigError if not."""
    if not host or len(host.encode()) > MAX_HOST_BYTES or not host.isprintable() or host != host.strip():
        raise ConfigError(
            f"host {host[:80]!r}: expected a name of 1 to {MAX_HOST_BYTES} bytes, printable, without blanks around it"
        )
    return host


def check_room(hosts: Mapping[str, HostEntry], host: str) -> None:
    """ConfigError when one more cannot be kept."""
    if host not in hosts and len(hosts) >= MAX_HOSTS:
        raise ConfigError(f"host {host}: {len(hosts)} hosts have broker ids already: expected {MAX_HOSTS} at most")


def check_id(broker_id: int) -> BrokerId:
    """``broker_id``, if a broker can have it; ConfigError if not."""
    if not 0 <= broker_id < 2**31:
        raise ConfigError(f"broker id {broker_id}: expected 0 to {2**31 - 1}")
    return broker_id


# -- the znode ---------------------------------------------------------------------------------------------------------


def encode_host_node(broker_id: BrokerId) -> bytes:
    """The text of /brokers/hosts/<host> (K426-09)."""
    return json.dumps({"version": NODE_VERSION, "broker.id": broker_id}, separators=(",", ":")).encode()


def decode_host_node(data: bytes) -> BrokerId:
    """The broker id in the text of a host's znode, also in that of a later version with more in it (K426-10).
    ValueError for what is none."""
    try:
        found = json.loads(data)
        version, broker_id = found["version"], found["broker.id"]
    except (KeyError, TypeError, RecursionError) as e:
        raise ValueError(f"no host of a broker: {data[:200]!r}: expected version and broker.id") from e
    if type(version) is not int or version < NODE_VERSION or type(broker_id) is not int or not 0 <= broker_id < 2**31:
        raise ValueError(f"no host of a broker: {data[:200]!r}: expected numbers as version and broker.id")
    return broker_id


# -- what a store promises ---------------------------------------------------------------------------------------------


class BrokerIdMapping(Protocol):
    """Which host has which broker id, in a store. Calls may block: never on an event loop."""

    def hosts(self) -> Mapping[str, HostEntry]:
        """Everything that is kept."""
        ...

    def take(self, applicant: Applicant) -> Outcome | None:
        """An id for a broker that starts. Of two that ask at the same time no two get the same one: what ``take`` of
        this module says of what is known is kept before it is answered, or the question is put again (K426-17).
        None: it cannot be decided now, ask again soon."""
        ...

    def remember(self, host: str, broker_id: BrokerId) -> None:
        """A broker has registered: keep its id for its host, and forget other hosts of that id. Nothing happens in a
        store where the registration itself says it."""
        ...

    def put(self, host: str, broker_id: BrokerId) -> None:
        """A person says so, also before there is such a broker (K426-13)."""
        ...

    def forget(self, host: str) -> bool:
        """Whether something was kept of the host."""
        ...


class OwnMapping(BrokerIdMapping, Protocol):
    """Of a store that keeps the mapping apart from the records."""

    def sequence(self) -> int:
        """The number of the last new id, 0 before the first."""
        ...
