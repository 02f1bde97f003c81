"""What the controller is asked or told (events), and what it answers (replies). Values only.

Every event goes to ``Controller.handle``; its Decision has a reply of the type that the event's docstring names, or
a HoldfastError that refuses all of it. Errors of single topics or partitions stand in the reply. Wire codes and
wire classes are the shell's.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from holdfast.controller.acl_events import CreateAcls, DeleteAcls
from holdfast.controller.feature_events import UpdateFeatures
from holdfast.controller.user_events import AlterQuotas, AlterScramUsers
from holdfast.metadata.broker_ids import Applicant
from holdfast.metadata.records import MetadataRecord
from holdfast.model.errors import HoldfastError
from holdfast.model.fates import ALL_KEPT, LogEnd, ReplicaFates, ReplicaTurn
from holdfast.model.features import REGISTERED
from holdfast.model.listeners import Endpoints
from holdfast.model.types import (
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to commit and replay, in this order, and the reply to give once they are durable.

    ``resend_to`` are brokers that shall get their full state again, whatever the records change: one that lost a
    log dir, so that its answer tells which replicas are gone (K112-24).
    """

    records: tuple[MetadataRecord, ...] = ()
    reply: Any = None
    resend_to: tuple[BrokerId, ...] = ()


# -- brokers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegister:
    """A broker started. ``fates``: what became of its replicas while it was away. ``cordoned``: by its properties file;
    ``host``: on which it runs (KIP-426). None: nothing is said of that.

    ``features``: name, lowest and highest level that it knows.

    Reply: Registered; DuplicateBrokerRegistrationError, InconsistentClusterIdError, UnsupportedVersionError.
    """

    broker_id: BrokerId
    incarnation_id: UUID
    endpoints: Endpoints
    cluster_id: str | None = None
    rack: str | None = None
    log_dirs: tuple[DirectoryId, ...] = ()
    cordoned: tuple[DirectoryId, ...] | None = None
    fates: ReplicaFates = ALL_KEPT
    host: str | None = None
    features: tuple[tuple[str, int, int], ...] = REGISTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat:
    """A broker lives. ``cordoned`` and ``log_dirs`` (all that it has) None: nothing is said of them.

    Reply: HeartbeatReply; StaleBrokerEpochError, BrokerIdNotRegisteredError: register again.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    want_fence: bool = False
    want_shutdown: bool = False
    offline_dirs: tuple[DirectoryId, ...] = ()
    cordoned: tuple[DirectoryId, ...] | None = None
    log_dirs: tuple[DirectoryId, ...] | None = None
    current_metadata_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTurns:
    """What happened to replicas of a broker that lives. ``number``: of the heartbeat that tells it; they may come late,
    over a connection that was cut for a while, and then say what is no longer so. -1: it has none.

    Reply: None; StaleBrokerEpochError, BrokerIdNotRegisteredError.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    turns: tuple[tuple[TopicPartition, ReplicaTurn], ...]
    number: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConnectionLost:
    """The connection over which a broker heartbeats has ended. ``refused``: its port refuses too, it is dead."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOffline:
    """A live broker answered LeaderAndIsr with KAFKA_STORAGE_ERROR for these of its replicas (K112-05)."""

    broker_id: BrokerId
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOnline:
    """A live broker answered LeaderAndIsr without an error for these, after KAFKA_STORAGE_ERROR before."""

    broker_id: BrokerId
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnds:
    """A broker told, in its answer to LeaderAndIsr, how far its logs go of partitions of which nobody has everything.

    Each with the leader epoch of the order that it answers: what was told before another order is old.
    """

    broker_id: BrokerId
    ends: tuple[tuple[TopicPartition, LeaderEpoch, LogEnd], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """Forget a broker that was stopped. Reply None; BrokerIdNotRegisteredError; InvalidRequestError: it is alive."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBrokerId:
    """A broker starts and does not know its id. ``answering``: ids whose registered ports were found to be served,
    though their brokers may not count as alive yet.

    Reply: a broker_ids.Outcome; InvalidRequestError: its host cannot be one.
    """

    applicant: Applicant
    answering: frozenset[BrokerId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManageBrokerIds:
    """Which host has which broker id. ``host`` None: only tell. ``broker_id``: what the host has from now on; None:
    what is kept of it is forgotten.

    Reply: BrokerHosts, as they are then; InvalidRequestError; ResourceNotFoundError: nothing is kept of the host.
    """

    host: str | None = None
    broker_id: BrokerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHost:
    """``is_awaited``: a broker has taken the id and was not alive since. ``is_alive``: whether the broker of that id
    is; None: none is registered."""

    host: str
    broker_id: BrokerId
    is_awaited: bool
    is_alive: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHosts:
    """In the order of their names. ``sequence``: the number of the last new id."""

    hosts: tuple[BrokerHost, ...]
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: ``Controller.due`` says when one is needed."""


# -- the ISR ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionState:
    """One leader's proposal for one partition.

    ``isr`` are the members with their broker epochs; None: the leader does not say which incarnation (H-06).
    """

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[tuple[BrokerId, BrokerEpoch | None], ...]
    recovered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """A leader wants other ISRs. Reply: AlterPartitionReply; StaleBrokerEpochError for all of it."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[AlterPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResult:
    """The partition as it is after the decision, or why the proposal was refused."""

    topic_id: TopicId
    partition: int
    error: HoldfastError | None = None
    leader: BrokerId | None = None
    leader_epoch: LeaderEpoch = 0
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: PartitionEpoch = 0
    eligible: tuple[BrokerId, ...] = ()
    recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReply:
    partitions: tuple[AlterPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Make the preferred replica the leader, or (``unclean``) any live one where there is none.

    ``partitions`` None: all that need it. Reply: ElectLeadersReply.
    """

    unclean: bool = False
    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    topic: str
    partition: int
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersReply:
    partitions: tuple[ElectionResult, ...]


# -- topics ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToCreate:
    """A topic to create: by counts (None: the cluster's default), or by explicit ``assignments``."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics:
    """Reply: CreateTopicsReply, one result per name asked for."""

    topics: tuple[TopicToCreate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """``configs`` are the overrides. With validate_only nothing has the ``topic_id``."""

    name: str
    error: HoldfastError | None = None
    topic_id: TopicId | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsReply:
    topics: tuple[CreatedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    """Topics by (name, None) or (None, id). Reply: DeleteTopicsReply, in order."""

    topics: tuple[tuple[str | None, TopicId | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    name: str | None
    topic_id: TopicId | None
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsReply:
    topics: tuple[DeletedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """A topic shall have ``count`` partitions; ``assignments`` of the new ones, or None: placed."""

    name: str
    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions:
    """Reply: CreatePartitionsReply."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    name: str
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsReply:
    topics: tuple[TopicResult, ...]


# -- reassignment ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition shall have these replicas; None: those that it had before it was reassigned."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignments:
    """Reply: AlterReassignmentsReply, one result per partition, in their order; PolicyViolationError: too many."""

    partitions: tuple[Reassignment, ...]
    may_change_factor: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentResult:
    topic: str
    partition: int
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignmentsReply:
    partitions: tuple[ReassignmentResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReassignments:
    """``topics``: (name, partitions); None: all. Reply: ListReassignmentsReply."""

    topics: tuple[tuple[str, tuple[int, ...]], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """A partition that is being reassigned. ``replicas`` has those that come and those that go, too."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReassignmentsReply:
    partitions: tuple[Ongoing, ...]


# -- configurations and producer ids ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """New overrides of one resource: ``values`` maps keys to a value, or None to remove the override.

    ``replace_all`` removes every override that is not named (the old AlterConfigs).
    """

    resource_type: int
    resource_name: str
    values: tuple[tuple[str, str | None], ...]
    replace_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Reply: AlterConfigsReply. The operations of lists (APPEND, SUBTRACT) are resolved by the shell."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult:
    resource_type: int
    resource_name: str
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsReply:
    resources: tuple[ConfigResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """A broker needs ids for producers. Reply: AllocatedProducerIds; StaleBrokerEpochError."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedProducerIds:
    first: int
    size: int


Event: TypeAlias = (
    BrokerRegister
    | BrokerHeartbeat
    | BrokerConnectionLost
    | ReplicasOffline
    | ReplicaTurns
    | ReplicaEnds
    | UnregisterBroker
    | ClaimBrokerId
    | ManageBrokerIds
    | Tick
    | AlterPartition
    | ElectLeaders
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterReassignments
    | ListReassignments
    | AlterConfigs
    | AllocateProducerIds
    | UpdateFeatures
    | CreateAcls
    | DeleteAcls
    | AlterScramUsers
    | AlterQuotas
)
