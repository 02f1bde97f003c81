"""One exhaustive table: error type <-> Kafka's number on the wire.

Every class of model/errors.py and group_errors.py has exactly one row (a family that is only a base has its nearest
meaning), and a test holds it to that. Several of our types may share a number; ``_SHARED`` says which one an answer
becomes.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.model import errors as e
from holdfast.model import group_errors as g

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1

CODES: Final[Mapping[type[e.HoldfastError], int]] = {
    e.HoldfastError: -1,
    e.UnknownServerError: -1,
    e.OffsetOutOfRangeError: 1,
    e.CorruptRecordError: 2,
    e.UnknownTopicOrPartitionError: 3,
    e.LeaderNotAvailableError: 5,
    e.NotLeaderOrFollowerError: 6,
    e.RequestTimedOutError: 7,
    e.BrokerUnavailableError: 8,
    e.ReplicaNotAvailableError: 9,
    e.MessageTooLargeError: 10,
    e.StaleControllerEpochError: 11,
    g.OffsetMetadataTooLargeError: 12,
    e.NetworkError: 13,
    g.CoordinatorLoadInProgressError: 14,
    g.CoordinatorNotAvailableError: 15,
    g.NotCoordinatorError: 16,
    e.InvalidTopicError: 17,
    e.RecordListTooLargeError: 18,
    e.NotEnoughReplicasError: 19,
    e.NotEnoughReplicasAfterAppendError: 20,
    e.InvalidRequiredAcksError: 21,
    g.IllegalGenerationError: 22,
    g.InconsistentGroupProtocolError: 23,
    g.InvalidGroupIdError: 24,
    g.UnknownMemberIdError: 25,
    e.InvalidSessionTimeoutError: 26,
    g.RebalanceInProgressError: 27,
    e.InvalidCommitOffsetSizeError: 28,
    e.TopicAuthorizationFailedError: 29,
    e.GroupAuthorizationFailedError: 30,
    e.ClusterAuthorizationFailedError: 31,
    e.InvalidTimestampError: 32,
    e.UnsupportedSaslMechanismError: 33,
    e.IllegalSaslStateError: 34,
    e.UnsupportedVersionError: 35,
    e.TopicAlreadyExistsError: 36,
    e.InvalidPartitionsError: 37,
    e.InvalidReplicationFactorError: 38,
    e.InvalidReplicaAssignmentError: 39,
    e.ConfigError: 40,
    e.MetadataMovedError: 40,
    e.NotControllerError: 41,
    e.FencedControllerError: 41,
    e.InvalidRequestError: 42,
    e.RequestError: 42,
    e.UnsupportedForMessageFormatError: 43,
    e.PolicyViolationError: 44,
    e.OutOfOrderSequenceError: 45,
    e.DuplicateSequenceError: 46,
    e.InvalidProducerEpochError: 47,
    e.InvalidTxnStateError: 48,
    e.InvalidProducerIdMappingError: 49,
    e.InvalidTransactionTimeoutError: 50,
    e.ConcurrentTransactionsError: 51,
    e.TransactionCoordinatorFencedError: 52,
    e.TransactionalIdAuthorizationFailedError: 53,
    e.SecurityDisabledError: 54,
    e.OperationNotAttemptedError: 55,
    e.KafkaStorageError: 56,
    e.StorageError: 56,
    e.LogAppendError: 56,
    e.LogReadError: 56,
    e.CheckpointError: 56,
    e.DiskQueueFullError: 56,
    e.DuplicateReplicaError: 56,
    e.GenerateBrokerIdError: -1,
    e.InconsistentMetaPropertiesError: 56,
    e.LogDirNotFoundError: 57,
    e.UnknownProducerIdError: 59,
    e.ReassignmentInProgressError: 60,
    g.NonEmptyGroupError: 68,
    g.GroupIdNotFoundError: 69,
    e.FetchSessionIdNotFoundError: 70,
    e.InvalidFetchSessionEpochError: 71,
    e.ListenerNotFoundError: 72,
    e.TopicDeletionDisabledError: 73,
    e.FencedLeaderEpochError: 74,
    e.UnknownLeaderEpochError: 75,
    e.UnsupportedCompressionTypeError: 76,
    e.StaleBrokerEpochError: 77,
    e.OffsetNotAvailableError: 78,
    g.MemberIdRequiredError: 79,
    e.PreferredLeaderNotAvailableError: 80,
    g.GroupMaxSizeReachedError: 81,
    g.FencedInstanceIdError: 82,
    e.EligibleLeadersNotAvailableError: 83,
    e.ElectionNotNeededError: 84,
    e.NoReassignmentInProgressError: 85,
    g.GroupSubscribedToTopicError: 86,
    e.InvalidRecordError: 87,
    e.RecordError: 87,
    e.UnstableOffsetCommitError: 88,
    e.ThrottlingQuotaExceededError: 89,
    e.ProducerFencedError: 90,
    e.ResourceNotFoundError: 91,
    e.DuplicateResourceError: 92,
    e.UnacceptableCredentialError: 93,
    e.InvalidUpdateVersionError: 95,
    e.OffsetsOutOfOrderError: -1,
    e.UnknownTopicIdError: 100,
    e.DuplicateBrokerRegistrationError: 101,
    e.BrokerIdNotRegisteredError: 102,
    e.InconsistentTopicIdError: 103,
    e.InconsistentClusterIdError: 104,
    e.TransactionalIdNotFoundError: 105,
    e.FetchSessionTopicIdError: 106,
    e.IneligibleReplicaError: 107,
    e.NewLeaderElectedError: 108,
    e.MismatchedEndpointTypeError: 114,
    e.UnsupportedEndpointTypeError: 115,
    e.TransactionAbortableError: 120,
    e.InvalidRegularExpressionError: 128,
    # Families: raised only as one of their members; a bare one is a bug.
    e.RetriableError: -1,
    e.ReplicationError: -1,
    e.MetadataError: -1,
    g.GroupError: -1,
}

_SHARED: Final[Mapping[int, type[e.HoldfastError]]] = {
    -1: e.UnknownServerError,
    41: e.NotControllerError,
    42: e.InvalidRequestError,
    56: e.KafkaStorageError,
    87: e.InvalidRecordError,
}
"""Which type a number becomes where several types have it."""

_TYPE_OF: Final[Mapping[int, type[e.HoldfastError]]] = {
    **{code: kind for kind, code in CODES.items()},
    **_SHARED,
}


def code_of(error: e.HoldfastError | type[e.HoldfastError] | None) -> int:
    """The number of an error or of its type; 0 for None. A subclass made elsewhere has its nearest base's."""
    if error is None:
        return NONE
    kind = error if isinstance(error, type) else type(error)
    for base in kind.__mro__:
        code = CODES.get(base)
        if code is not None:
            return code
    return UNKNOWN_SERVER_ERROR


def error_of(code: int, message: str | None = None) -> e.HoldfastError | None:
    """The error that a number of an answer stands for; None for 0. A number without a type of ours becomes
    UnknownServerError and its message names the number."""
    if code == NONE:
        return None
    kind = _TYPE_OF.get(code)
    if kind is None:
        return e.UnknownServerError(message or f"Kafka error {code}")
    return kind(message or "")
