"""How Kafka's tools name an error: people search for these names, scripts match them.

Owns the table of them and nothing else; what is said when a broker gives no message is in protocol/error_words.py.
"""

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from holdfast.model import errors as e
from holdfast.model import group_errors as g
from holdfast.protocol.error_codes import code_of
from holdfast.protocol.error_words import words_of

PACKAGE: Final = "org.apache.kafka.common.errors"

# Kafka's class names do not follow its error codes everywhere; what is not here does.
_CLASSES: Final[Mapping[type, str]] = {
    e.TopicAlreadyExistsError: "TopicExistsException",
    e.InvalidTopicError: "InvalidTopicException",
    e.ConfigError: "InvalidConfigurationException",
    e.InvalidReplicaAssignmentError: "InvalidReplicaAssignmentException",
    g.NonEmptyGroupError: "GroupNotEmptyException",
    g.GroupIdNotFoundError: "GroupIdNotFoundException",
    e.RequestTimedOutError: "TimeoutException",
    e.NetworkError: "DisconnectException",
    e.NotLeaderOrFollowerError: "NotLeaderOrFollowerException",
    e.MessageTooLargeError: "RecordTooLargeException",
    e.CorruptRecordError: "CorruptRecordException",
    e.KafkaStorageError: "KafkaStorageException",
    e.UnknownServerError: "UnknownServerException",
    e.TopicAuthorizationFailedError: "TopicAuthorizationException",
    e.GroupAuthorizationFailedError: "GroupAuthorizationException",
    e.ClusterAuthorizationFailedError: "ClusterAuthorizationException",
}


def exception_name(error: e.HoldfastError) -> str:
    """``TopicExistsException``."""
    for kind in type(error).__mro__:
        name = _CLASSES.get(kind)
        if name is not None:
            return name
    words = ErrorCode(code_of(error)).name.split("_")
    return "".join(word.capitalize() for word in words) + "Exception"


def qualified(error: e.HoldfastError, message: str | None = None) -> str:
    """``org.apache.kafka.common.errors.TopicExistsException: message``."""
    return f"{PACKAGE}.{exception_name(error)}: {message or error}"


def said(error: e.HoldfastError) -> str:
    """The broker's message, or what Kafka's tools say of an error that comes without one."""
    return error.words or words_of(code_of(error))
