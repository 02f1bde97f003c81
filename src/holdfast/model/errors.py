"""Every error the system can answer with, by family. No wire codes: protocol/error_codes.py has the table.
The family of groups is in group_errors.py.

An error is a value as often as an exception: state machines return instances, shells raise them. The message
names the thing, the value and what was expected; the class decides what the client does.
"""


class HoldfastError(Exception):
    """Root of all errors that have a Kafka error code. ``retriable`` tells a client that trying again may work."""

    retriable = False
    context = ""
    """What was asked, where ``message`` begins with it and a colon (client/refused.py)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    @property
    def words(self) -> str:
        """The message without its context, for who has said what was asked."""
        return self.message.removeprefix(f"{self.context}: ") if self.context else self.message

    def __str__(self) -> str:
        return self.message or type(self).__name__


class RetriableError(HoldfastError):
    """A later attempt, perhaps at another broker, may succeed."""

    retriable = True


class UnknownServerError(HoldfastError):
    """A bug or an error without a code of its own."""


class ConfigError(HoldfastError):
    """A configuration key has a value that cannot be used (INVALID_CONFIG)."""


class MetadataMovedError(ConfigError):
    """The metadata of this cluster is in another store than the one that the configuration names."""


# -- requests --------------------------------------------------------------------------------------------------


class RequestError(HoldfastError):
    """What the client asked for cannot be asked."""


class InvalidRequestError(RequestError):
    """The request contradicts itself or has a field out of range."""


class UnsupportedVersionError(RequestError):
    """The API or a field is not spoken at this version."""


class UnsupportedForMessageFormatError(RequestError):
    """The message format of the topic does not support the request."""


class InvalidRequiredAcksError(RequestError):
    """acks is not one of -1, 0, 1."""


class InvalidTimestampError(RequestError):
    """A record's timestamp is outside what the topic allows."""


class InvalidTopicError(RequestError):
    """The topic's name is not legal."""


class InvalidPartitionsError(RequestError):
    """The number of partitions is not usable."""


class InvalidReplicationFactorError(RequestError):
    """The replication factor is not positive or larger than the number of usable brokers."""


class InvalidReplicaAssignmentError(RequestError):
    """The assignment names unknown or repeated brokers, or lists of different sizes."""


class ListenerNotFoundError(RetriableError):
    """The leader has no listener of the name by which the client came."""


class MismatchedEndpointTypeError(RequestError):
    """The request belongs to the other kind of endpoint, brokers' or controllers'."""


class UnsupportedEndpointTypeError(RequestError):
    """There is no such kind of endpoint."""


class PolicyViolationError(RequestError):
    """The request breaks a limit that the operator set."""


class ResourceNotFoundError(RequestError):
    """There is nothing of that name to describe."""


class DuplicateResourceError(RequestError):
    """The request names one thing twice."""


class UnacceptableCredentialError(RequestError):
    """What somebody shall log in with is too weak, or is none."""


class UnsupportedSaslMechanismError(RequestError):
    """There is no such SASL mechanism, or it is not enabled."""


class SecurityDisabledError(RequestError):
    """Security features are disabled."""


class InvalidSessionTimeoutError(RequestError):
    """A session timeout is outside group.min/max.session.timeout.ms."""


class InvalidCommitOffsetSizeError(RequestError):
    """Committed metadata is larger than offset.metadata.max.bytes."""


class RequestTimedOutError(RetriableError):
    """The request's own timeout passed first."""


class ThrottlingQuotaExceededError(RetriableError):
    """The client is over its quota."""


class BrokerUnavailableError(HoldfastError):
    """The broker that was asked for is not available."""


class NetworkError(RetriableError):
    """The connection went away before the answer."""


# -- records ---------------------------------------------------------------------------------------------------


class RecordError(HoldfastError):
    """Bytes that should be record batches are not acceptable."""


class CorruptRecordError(RecordError):
    """A batch fails its CRC, has an unknown magic or an impossible length (CORRUPT_MESSAGE)."""

    retriable = True


class MessageTooLargeError(RecordError):
    """A batch is larger than max.message.bytes."""


class RecordListTooLargeError(RecordError):
    """The record set is larger than a segment."""


class InvalidRecordError(RecordError):
    """Records that no log may hold: wrong counts, wrong magic, a missing key in a compacted topic."""


class UnsupportedCompressionTypeError(RecordError):
    """The codec is unknown or not allowed at this version."""


class OutOfOrderSequenceError(RecordError):
    """A producer's sequence number does not follow the last one."""


class DuplicateSequenceError(RecordError):
    """A producer's sequence was written before and is no longer remembered."""


class InvalidProducerEpochError(RecordError):
    """A newer producer with the same id has been seen."""


class UnknownProducerIdError(RecordError):
    """Nothing is known of this producer id."""


class InvalidProducerIdMappingError(RecordError):
    """The producer id is not the transactional id's."""


class ProducerFencedError(RecordError):
    """A newer instance with the same transactional id took over."""


class InvalidTxnStateError(RecordError):
    """The transaction is not in a state that allows this."""


class TransactionalIdAuthorizationFailedError(RecordError):
    """Not authorised for the transactional id, or the request has none for records of a transaction."""


class InvalidTransactionTimeoutError(RequestError):
    """transaction timeout is outside the allowed range."""


class ConcurrentTransactionsError(RetriableError):
    """The transactional id's previous transaction is still being completed."""


class TransactionCoordinatorFencedError(RecordError):
    """A stale transaction coordinator."""


class TransactionalIdNotFoundError(RequestError):
    """Nothing is known of the transactional id."""


class TransactionAbortableError(RecordError):
    """The transaction must be aborted; the producer can then go on (KIP-890)."""


class InvalidRegularExpressionError(RequestError):
    """A pattern that is none, or none that is taken here."""


# -- storage ---------------------------------------------------------------------------------------------------


class StorageError(RetriableError):
    """A disk or a log on it could not do what was asked."""


class KafkaStorageError(StorageError):
    """The log directory that holds the replica is offline (KIP-112, KAFKA_STORAGE_ERROR)."""


class LogAppendError(KafkaStorageError):
    """I/O failed while appending (KIP-18)."""


class LogReadError(KafkaStorageError):
    """I/O failed while reading (KIP-18)."""


class CheckpointError(KafkaStorageError):
    """I/O failed on a checkpoint file (KIP-18's HighWatermarkIOException)."""


class DiskQueueFullError(KafkaStorageError):
    """The queue of the log directory's thread is at its limit: the disk does not keep up."""


class LogDirNotFoundError(StorageError):
    """The path is not one of log.dirs."""

    retriable = False


class DuplicateReplicaError(StorageError):
    """The same replica stands in two log directories and nothing tells which is right."""

    retriable = False


class GenerateBrokerIdError(HoldfastError):
    """A broker without an id gets none: a person must say which one it is (Kafka's name)."""

    retriable = False


class InconsistentMetaPropertiesError(StorageError):
    """meta.properties of a log directory contradicts the configuration or another directory."""

    retriable = False


class OffsetsOutOfOrderError(StorageError):
    """Batches to append do not follow the end of the log."""

    retriable = False


class OffsetOutOfRangeError(HoldfastError):
    """The offset is before the start or beyond the end of the log."""


# -- replication -----------------------------------------------------------------------------------------------


class ReplicationError(HoldfastError):
    """The replica cannot serve in the role that was asked of it."""


class UnknownTopicOrPartitionError(ReplicationError):
    """This broker knows of no such partition."""

    retriable = True


class UnknownTopicIdError(ReplicationError):
    """No topic has this id."""

    retriable = True


class InconsistentTopicIdError(ReplicationError):
    """The topic has another id here: it was deleted and made again."""

    retriable = True


class LeaderNotAvailableError(ReplicationError):
    """The partition has no leader now."""

    retriable = True


class NotLeaderOrFollowerError(ReplicationError):
    """This broker does not lead (or hold) the partition."""

    retriable = True


class ReplicaNotAvailableError(ReplicationError):
    """This broker holds no such replica."""

    retriable = True


class NotEnoughReplicasError(ReplicationError):
    """Fewer in-sync replicas than min.insync.replicas: nothing was written."""

    retriable = True


class NotEnoughReplicasAfterAppendError(ReplicationError):
    """The ISR shrank below min.insync.replicas after the append."""

    retriable = True


class FencedLeaderEpochError(ReplicationError):
    """The request's leader epoch is older than the broker's."""

    retriable = True


class UnknownLeaderEpochError(ReplicationError):
    """The request's leader epoch is newer than the broker's."""

    retriable = True


class OffsetNotAvailableError(ReplicationError):
    """The new leader's high watermark has not yet reached the start of its epoch (KIP-207)."""

    retriable = True


class StaleControllerEpochError(ReplicationError):
    """The sender is no longer the controller."""


class StaleBrokerEpochError(ReplicationError):
    """The request is for an earlier incarnation of the broker."""


class FetchSessionIdNotFoundError(ReplicationError):
    """No such fetch session."""

    retriable = True


class InvalidFetchSessionEpochError(ReplicationError):
    """The fetch session's epoch is not the next one."""

    retriable = True


class FetchSessionTopicIdError(ReplicationError):
    """The fetch session began with topic names and goes on with topic ids, or the other way round."""

    retriable = True


# -- metadata --------------------------------------------------------------------------------------------------


class MetadataError(HoldfastError):
    """The controller refuses a change of the cluster's metadata."""


class NotControllerError(MetadataError):
    """This broker is not the active controller."""

    retriable = True


class FencedControllerError(MetadataError):
    """The controller lost its claim: another one was elected."""


class TopicAlreadyExistsError(MetadataError):
    """A topic of that name exists."""


class TopicDeletionDisabledError(MetadataError):
    """delete.topic.enable is false."""


class InvalidUpdateVersionError(MetadataError):
    """The partition epoch of an AlterPartition is not the current one."""


class IneligibleReplicaError(MetadataError):
    """A replica that may not be in the ISR: fenced, shutting down, or of an earlier incarnation (KIP-841)."""


class NewLeaderElectedError(MetadataError):
    """The change made this partition elect another leader."""


class OperationNotAttemptedError(MetadataError):
    """Not tried, since another part of the request failed."""


class DuplicateBrokerRegistrationError(MetadataError):
    """The broker id is registered by a live broker."""


class BrokerIdNotRegisteredError(MetadataError):
    """No broker of that id is registered."""


class InconsistentClusterIdError(MetadataError):
    """The sender belongs to another cluster."""


class PreferredLeaderNotAvailableError(MetadataError):
    """The preferred leader is offline or not in sync."""

    retriable = True


class EligibleLeadersNotAvailableError(MetadataError):
    """No replica may lead the partition."""

    retriable = True


class ElectionNotNeededError(MetadataError):
    """The partition is led as asked already."""


class ReassignmentInProgressError(MetadataError):
    """The partition is being reassigned."""


class NoReassignmentInProgressError(MetadataError):
    """The partition is not being reassigned."""


class UnstableOffsetCommitError(RetriableError):
    """A transaction that commits offsets for the group is open."""


# -- security --------------------------------------------------------------------------------------------------


class IllegalSaslStateError(HoldfastError):
    """A login where there is none, or at another time."""


class TopicAuthorizationFailedError(HoldfastError):
    """Not authorised for the topic."""


class GroupAuthorizationFailedError(HoldfastError):
    """Not authorised for the group."""


class ClusterAuthorizationFailedError(HoldfastError):
    """Not authorised for the cluster."""
