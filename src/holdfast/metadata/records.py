"""The records of the metadata log, under Kafka's names.

A record is a value: what was decided, in the form in which it is kept. The classes here say what each one means;
record_codec.py turns them into bytes. Nothing here applies a record: image.py does.

Absence is ``None`` inside. ``NO_CHANGE`` is a state of its own where "no leader" and "the leader stays" differ.
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, TypeAlias
from uuid import UUID

from holdfast.model.listeners import Endpoint
from holdfast.model.types import BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, LeaderEpoch, Offset, TopicId
from holdfast.security.acls import AclBinding
from holdfast.security.quota_entities import QuotaEntity
from holdfast.security.scram_credential import ScramCredential, ScramMechanism

UNASSIGNED_DIRECTORY: Final = UUID(int=1)
"""The directory of a replica that its broker has not placed yet. Which dir it takes is the broker's business
(K112-101), so every replica that we write has this one."""


class NoChange(Enum):
    """The field stays as it is."""

    NO_CHANGE = "no change"


NO_CHANGE: Final = NoChange.NO_CHANGE


class ResourceType(IntEnum):
    """What a configuration belongs to; the numbers are Kafka's, but for HOST: which broker id a host has
    (host_records.py)."""

    TOPIC = 2
    BROKER = 4
    HOST = 100


class RecoveryState(IntEnum):
    """Whether the leader was elected from the ISR, or may lack acknowledged records (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker, or a new incarnation of one, is known. ``broker_epoch`` is this record's own offset.

    ``inter_broker`` and ``control_plane`` name the endpoints that brokers and the controller use; None: the first one,
    and that of the brokers.
    """

    broker_id: BrokerId
    incarnation_id: UUID
    broker_epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[DirectoryId, ...] = ()
    cordoned: tuple[DirectoryId, ...] = ()
    inter_broker: str | None = None
    control_plane: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """The broker is gone for good."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """Something about a registered broker changed; ``None`` is "as it was"."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[DirectoryId, ...] | None = None
    cordoned: tuple[DirectoryId, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic exists; its partitions follow."""

    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic, its partitions and its configuration are gone."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The whole state of one partition."""

    partition: int
    topic_id: TopicId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch = 0
    partition_epoch: int = 0
    removing: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    directories: tuple[DirectoryId, ...] = ()
    recovery_state: RecoveryState = RecoveryState.RECOVERED
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    created: Offset = -1
    """Where the metadata log ended when the partition was made: brokers with a smaller epoch have been here since
    before. Holdfast's own; -1 in a record of another's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """What changed of one partition; ``None`` is "as it was".

    The partition epoch grows by one with each of these, the leader epoch when ``leader`` is given, be it the same.
    """

    partition: int
    topic_id: TopicId
    isr: tuple[BrokerId, ...] | None = None
    leader: BrokerId | NoChange | None = NO_CHANGE
    replicas: tuple[BrokerId, ...] | None = None
    removing: tuple[BrokerId, ...] | None = None
    adding: tuple[BrokerId, ...] | None = None
    recovery_state: RecoveryState | None = None
    directories: tuple[DirectoryId, ...] | None = None
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """One configuration key of a topic or a broker; ``value`` None removes it. A broker's name is its id, the
    empty name is the default of all brokers."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """All producer ids below ``next_producer_id`` have been given out."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """A feature is in force at a level."""

    name: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """Somebody may, or may not, do something; ``id`` is that of the entry."""

    id: UUID
    acl: AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    """An access control entry is gone."""

    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """A user can log in with this mechanism, and by this credential alone."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    """A user can log in with this mechanism no more."""

    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramSecretRecord:
    """Ours: what the salts of users that there are not are made of (controller/users.py)."""

    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """A quota of an entity; ``value`` None: it has none any more."""

    entity: QuotaEntity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """Changes nothing; shows that the log can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    """Brackets Kafka's bootstrap records; read, never written."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    """Closes a bracket; read, never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerClaimRecord:
    """Ours: a broker became the controller. The first record of every reign, written before anything else."""

    controller_epoch: ControllerEpoch
    broker_id: BrokerId
    host: str
    port: int


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ScramSecretRecord
    | ClientQuotaRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | ControllerClaimRecord
)
