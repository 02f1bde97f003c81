"""Which host has which broker id, in ZooKeeper's nodes (KIP-426): what every broker and tool does with them itself.

Owns the nodes below /brokers/hosts and /holdfast/claimed_ids, and the version of /brokers/seqid. No controller is
asked, and none need be there. Who starts without an id reads all that is known, asks for the next step
(metadata/broker_ids.py), and writes what it takes in one multi: the number of a new id (/brokers/seqid at the version
that was read), the claim, and CLAIMED_IDS at the version from which all of it was read. So of two that start at the
same time one has its id, and the other one reads anew (K426-17); also a tool that edits the mapping comes before or
behind them. Once a broker's own node is there, its host is written and its claim goes (K426-09).

What is read is of several moments, in an order in which nothing gets lost: an id that was taken is first a claim, then
a node of a broker that lives, then no claim any more.

The id of a host may be in use, or its broker was killed and its session is not over yet. Its port tells: one that
refuses is dead, and the controller removes its node when the next one registers, which checks which node that is. Where
nothing answers nobody knows, and the session is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import BrokerUnreachable
from holdfast.client.outgoing import Outgoing
from holdfast.coordination.zookeeper_client import (
    AccessError,
    BadVersionError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    ZooKeeperClient,
    ZooKeeperError,
)
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, Link, settled
from holdfast.metadata import broker_ids, znode_hosts, znode_paths, znode_values
from holdfast.metadata.broker_ids import Applicant, HostEntry, KnownIds, Outcome, Taken, encode_host_node
from holdfast.metadata.znode_hosts import IdClaim
from holdfast.model.errors import (
    BrokerUnavailableError,
    FencedControllerError,
    HoldfastError,
    KafkaStorageError,
    MetadataError,
)
from holdfast.model.listeners import Endpoint
from holdfast.model.types import BrokerId
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.error_codes import code_of

log = logging.getLogger(__name__)

TRIES: Final = 200
"""Each of them failed because somebody else was quicker."""
NUMBERS_AT_ONCE: Final = 1000
"""By which /brokers/seqid goes on in one multi, where ids after it are somebody's already."""
PROBE_S: Final = 1.0
_CLIENT_ID: Final = "broker-without-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A node that says something, with what is needed to change it."""

    version: int
    mzxid: int
    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIds:
    """All that is kept, as it was read. ``version``: of CLAIMED_IDS; ``unreadable``: hosts whose nodes say nothing."""

    version: int
    sequence: int
    claims: Mapping[BrokerId, tuple[IdClaim, int]]
    """With the versions of their nodes."""
    mapped: Mapping[str, _Found]
    unreadable: Mapping[str, tuple[MetadataError, int]]
    registered: frozenset[BrokerId]
    live: frozenset[BrokerId]

    @property
    def hosts(self) -> dict[str, HostEntry]:
        """What is kept of each host."""
        mapped = {host: found.broker_id for host, found in self.mapped.items()}
        return znode_hosts.merged(mapped, {broker_id: claim for broker_id, (claim, _) in self.claims.items()})

    def known(self, live: Collection[BrokerId], used: Callable[[], Collection[BrokerId]]) -> KnownIds:
        """What a decision goes by."""
        had = {found.broker_id for found in self.mapped.values()}
        return KnownIds(
            hosts=self.hosts,
            live=live,
            used=used,
            is_known=lambda broker_id: (
                broker_id in had or broker_id in self.claims or broker_id in self.registered or broker_id in self.live
            ),
            sequence=self.sequence,
        )


def read_ids(client: ZooKeeperClient) -> StoredIds:
    """See the module's docstring for the order."""
    client.sync()
    guard, sequence = client.get_all([znode_paths.CLAIMED_IDS, znode_paths.BROKER_SEQUENCE])
    for path, node in ((znode_paths.CLAIMED_IDS, guard), (znode_paths.BROKER_SEQUENCE, sequence)):
        if node is None:
            raise KafkaStorageError(f"{path} is missing: expected a tree that a broker of this version has begun")
    assert guard is not None and sequence is not None
    claims = {}
    for path, node in _below(client, znode_paths.CLAIMED_IDS):
        broker_id = znode_paths.broker_of(path)
        if broker_id is not None:
            claims[broker_id] = (znode_hosts.read_claim_node(path, node.data, broker_id), node.stat.version)
    mapped, unreadable = read_hosts(client)
    registered = _numbers(client, znode_paths.OUR_BROKERS)
    return StoredIds(
        version=guard.stat.version,
        sequence=sequence.stat.version,
        claims=claims,
        mapped=mapped,
        unreadable=unreadable,
        registered=registered,
        live=_numbers(client, znode_paths.BROKER_IDS),
    )


def read_hosts(client: ZooKeeperClient) -> tuple[dict[str, _Found], dict[str, tuple[MetadataError, int]]]:
    """What the nodes of hosts say, and what is wrong with those that say nothing, with their versions. Tools write them
    too, so none of them keeps anybody but its own host from starting."""
    mapped: dict[str, _Found] = {}
    unreadable: dict[str, tuple[MetadataError, int]] = {}
    for path, node in _below(client, znode_paths.HOSTS):
        host = znode_paths.host_of(path)
        if host is None:
            log.warning("%s is no host's: expected its name with %%XX, as in addresses", path)
            continue
        try:
            broker_id = znode_hosts.read_host_node(path, node.data)
        except MetadataError as e:
            unreadable[host] = (e, node.stat.version)
            continue
        mapped[host] = _Found(version=node.stat.version, mzxid=node.stat.mzxid, broker_id=broker_id)
    return mapped, unreadable


def _below(client: ZooKeeperClient, parent: str) -> Iterator[tuple[str, Node]]:
    """The nodes below one, as far as they are there when they are read."""
    paths = [f"{parent}/{name}" for name in client.children(parent) or ()]
    for path, node in zip(paths, client.get_all(paths), strict=True):
        if node is not None:
            yield path, node


def _numbers(client: ZooKeeperClient, parent: str) -> frozenset[BrokerId]:
    found = (znode_paths.broker_of(name) for name in client.children(parent) or ())
    return frozenset(each for each in found if each is not None)


def used_ids(client: ZooKeeperClient) -> frozenset[BrokerId]:
    """Ids that have partitions: a read for each topic, many at a time (K426-11)."""
    return frozenset(
        replica
        for path, node in _below(client, znode_paths.TOPICS)
        for replicas in znode_values.read_topic_node(path, node.data).replicas
        for replica in replicas
    )


class ZooKeeperBrokerIds:
    """See the module's docstring (OwnMapping). Errors of the ensemble are KafkaStorageError."""

    def __init__(self, link: Link, errands: Errands, outgoing: Outgoing | None = None) -> None:
        self._link = link
        self._errands = errands
        self._outgoing = outgoing or Outgoing()
        self.refused: AccessError | None = None
        """Why the ensemble does not let this process in, if it does not."""

    def hosts(self) -> Mapping[str, HostEntry]:
        with self._told():
            return read_ids(self._link.client()).hosts

    def sequence(self) -> int:
        with self._told():
            return read_ids(self._link.client()).sequence

    def take(self, applicant: Applicant) -> Outcome | None:
        """None: its host's id is in use by a broker that does not answer, or others are quicker again and again.
        ConfigError: its host cannot be one."""
        broker_ids.check_host(applicant.host)
        with self._told():
            client = self._link.client()
            for _ in range(TRIES):
                kept = read_ids(client)
                broker_ids.check_room(kept.hosts, applicant.host)
                live = self._live(client, kept, applicant.host)
                if live is None:
                    return None
                outcome = broker_ids.take(kept.known(live, lambda: used_ids(client)), applicant)
                if not isinstance(outcome, Taken):
                    return outcome
                numbers = 0 if outcome.sequence is None else outcome.sequence - kept.sequence
                if numbers > NUMBERS_AT_ONCE:
                    self._write(client, kept, list(_numbered(kept, NUMBERS_AT_ONCE)))
                elif self._write(client, kept, [*_numbered(kept, numbers), *_claimed(kept, applicant, outcome)]):
                    return outcome
        return None

    def _live(self, client: ZooKeeperClient, kept: StoredIds, host: str) -> frozenset[BrokerId] | None:
        """The ids that brokers have which live; None: nobody knows of the host's own."""
        if host in kept.unreadable:
            raise kept.unreadable[host][0]
        own = kept.hosts.get(host)
        if own is None or own.broker_id not in kept.live:
            return kept.live
        path = znode_paths.broker_id(own.broker_id)
        node = client.get(path)
        if node is None:
            return kept.live - {own.broker_id}
        said = znode_values.read_broker_node(path, node.data)
        answers = asyncio.run(_answers(self._outgoing, said.endpoints.for_controller))
        if answers is None:
            return None
        return kept.live if answers else kept.live - {own.broker_id}

    def remember(self, host: str, broker_id: BrokerId) -> None:
        with self._told():
            self.keep(host, broker_id)

    def keep(self, host: str, broker_id: BrokerId) -> None:
        """As ``remember``; the ensemble's own errors are raised as they are. The host's node is written also where it
        says that already: what was written before is older than this registration (HostGarbage)."""

        def operations(kept: StoredIds) -> list[Operation]:
            entries = {name: HostEntry(broker_id=found.broker_id) for name, found in kept.mapped.items()}
            gone = broker_ids.garbage(entries, {broker_id: host})
            return [
                _mapped(kept, host, broker_id),
                *(Delete(path=znode_paths.host(name), version=kept.mapped[name].version) for name in gone),
                *_unclaimed(kept, lambda claim: claim.host == host or claim.entry.broker_id == broker_id),
            ]

        self._change(operations)

    def put(self, host: str, broker_id: BrokerId) -> None:
        broker_ids.check_host(host)
        broker_ids.check_id(broker_id)

        def operations(kept: StoredIds) -> list[Operation]:
            broker_ids.check_room(kept.hosts, host)
            return [_mapped(kept, host, broker_id), *_unclaimed(kept, lambda claim: claim.host == host)]

        with self._told():
            self._change(operations)

    def forget(self, host: str) -> bool:
        def operations(kept: StoredIds) -> list[Operation]:
            gone = list(_unclaimed(kept, lambda claim: claim.host == host))
            version = _version(kept, host)
            return gone if version is None else [*gone, Delete(path=znode_paths.host(host), version=version)]

        with self._told():
            return self._change(operations)

    def _change(self, operations_of: Callable[[StoredIds], list[Operation]]) -> bool:
        """Write what follows from what is kept; whether that was anything."""
        client = self._link.client()
        for _ in range(TRIES):
            kept = read_ids(client)
            operations = operations_of(kept)
            if not operations:
                return False
            if self._write(client, kept, operations):
                return True
        raise KafkaStorageError(f"{znode_paths.CLAIMED_IDS} was written by others each of {TRIES} times")

    def _write(self, client: ZooKeeperClient, kept: StoredIds, operations: Sequence[Operation]) -> bool:
        """Whether everything was still as it was read."""
        guard = Put(path=znode_paths.CLAIMED_IDS, data=b"", version=kept.version)
        try:
            settled(client.write([guard, *operations]), self._errands)
        except (BadVersionError, NodeExistsError, NoNodeError) as e:
            log.info("somebody else was quicker: %s", e)
            return False
        return True

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except AccessError as e:
            self.refused = e
            raise KafkaStorageError(f"ZooKeeper: {e}") from e
        except (ZooKeeperError, MetadataError, FencedControllerError) as e:
            raise KafkaStorageError(f"ZooKeeper: {e}") from e


def _numbered(kept: StoredIds, count: int) -> Iterator[Operation]:
    """So many new ids are given out: the version of the node counts them, as in Kafka."""
    for number in range(count):
        yield Put(path=znode_paths.BROKER_SEQUENCE, data=b"", version=kept.sequence + number)


def _claimed(kept: StoredIds, applicant: Applicant, outcome: Taken) -> Iterator[Operation]:
    """The id is this start's, and no other one that its host has taken."""
    entry = HostEntry(broker_id=outcome.broker_id, claimant=applicant.claimant, address=applicant.address)
    path, data = (
        znode_paths.claimed_id(entry.broker_id),
        znode_hosts.claim_node(IdClaim(host=applicant.host, entry=entry)),
    )
    before = kept.claims.get(entry.broker_id)
    yield Create(path=path, data=data) if before is None else Put(path=path, data=data, version=before[1])
    yield from _unclaimed(kept, lambda claim: claim.host == applicant.host and claim.entry.broker_id != entry.broker_id)


def _unclaimed(kept: StoredIds, is_over: Callable[[IdClaim], bool]) -> Iterator[Operation]:
    for broker_id, (claim, version) in sorted(kept.claims.items()):
        if is_over(claim):
            yield Delete(path=znode_paths.claimed_id(broker_id), version=version)


def _version(kept: StoredIds, host: str) -> int | None:
    """Of the host's node; None: there is none."""
    if host in kept.unreadable:
        return kept.unreadable[host][1]
    found = kept.mapped.get(host)
    return None if found is None else found.version


def _mapped(kept: StoredIds, host: str, broker_id: BrokerId) -> Operation:
    path, data, version = znode_paths.host(host), encode_host_node(broker_id), _version(kept, host)
    return Create(path=path, data=data) if version is None else Put(path=path, data=data, version=version)


async def _answers(outgoing: Outgoing, where: Endpoint) -> bool | None:
    """True: a broker lives there. False: nothing listens, or what does says that its broker was killed. None: nobody
    knows."""
    connection = outgoing.probe(where, _CLIENT_ID)
    try:
        await connection.open(PROBE_S)
        answer = await connection.request_raw(int(ApiKey.API_VERSIONS), 0, b"", timeout_s=PROBE_S)
        return int.from_bytes(answer[:2], "big") != code_of(BrokerUnavailableError)
    except BrokerUnreachable as e:
        return False if e.refused else None
    except HoldfastError:
        return None
    finally:
        connection.close()


class HostGarbage:
    """The controller's part: nodes of hosts that have the id of a broker which lives on another host go (K426-12).

    A broker takes away what there was when it registers, so this finds what was left by brokers and tools that do not.
    It looks when a reign begins and when the brokers that live are others. What was written after the broker's own
    host stays: a person says where that broker will be (K426-13)."""

    def __init__(self, link: Link, errands: Errands) -> None:
        self._link = link
        self._errands = errands
        self._won: Won | None = None

    def begin(self, won: Won) -> None:
        """A reign begins."""
        self._won = won
        self.look_soon()

    def end(self) -> None:
        """The reign is over."""
        self._won = None

    def look_soon(self) -> None:
        """Another broker may live. From any thread."""
        if self._won is not None:
            self._errands.post("hosts that brokers have left", self._look)

    def _look(self) -> None:
        won, client = self._won, self._link.client()
        if won is None or won.client is not client:
            return
        client.sync()  # a write before that had no answer is settled by it; until then no other is sent
        mapped, _ = read_hosts(client)
        for name in _garbage(mapped, _hosts_of_live(client)):
            path = znode_paths.host(name)
            log.info("%s goes: broker %d lives on another host", path, mapped[name].broker_id)
            try:
                settled(client.write([won.check, Delete(path=path, version=mapped[name].version)]), self._errands)
            except (NoNodeError, BadVersionError) as e:
                log.info("%s stays: %s", path, e)


def _hosts_of_live(client: ZooKeeperClient) -> dict[BrokerId, str]:
    found: dict[BrokerId, str] = {}
    for path, node in _below(client, znode_paths.BROKER_IDS):
        broker_id = znode_paths.broker_of(path)
        try:
            host = znode_values.read_broker_node(path, node.data).host
        except MetadataError:
            continue  # whoever looks at brokers says so
        if broker_id is not None and host is not None:
            found[broker_id] = host
    return found


def _garbage(mapped: Mapping[str, _Found], live: Mapping[BrokerId, str]) -> list[str]:
    """Of brokers whose own host is written; see HostGarbage for which is the later word."""
    entries = {name: HostEntry(broker_id=found.broker_id) for name, found in mapped.items()}
    since = {
        broker_id: mapped[host].mzxid
        for broker_id, host in live.items()
        if host in mapped and mapped[host].broker_id == broker_id
    }
    gone = broker_ids.garbage(entries, {broker_id: live[broker_id] for broker_id in since})
    return [name for name in gone if mapped[name].mzxid < since[mapped[name].broker_id]]
