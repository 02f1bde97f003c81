"""Every error has one number, and the numbers are Kafka's."""

import pytest
from kio.schema.errors import ErrorCode

from holdfast.model import errors, group_errors
from holdfast.protocol.error_codes import CODES, code_of, error_of

ALL = [
    kind
    for module in (errors, group_errors)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, errors.HoldfastError) and kind.__module__ == module.__name__
]
RENAMED = {
    errors.CorruptRecordError: "corrupt_message",
    errors.BrokerUnavailableError: "broker_not_available",
    errors.NetworkError: "network_exception",
    errors.InvalidTopicError: "invalid_topic_exception",
    errors.ConfigError: "invalid_config",
    errors.MetadataMovedError: "invalid_config",
    errors.FencedControllerError: "not_controller",
    errors.OutOfOrderSequenceError: "out_of_order_sequence_number",
    errors.DuplicateSequenceError: "duplicate_sequence_number",
}
OF_A_FAMILY = {"invalid_request", "kafka_storage_error", "invalid_record", "unknown_server_error"}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_a_number_of_its_name(kind: type[errors.HoldfastError]) -> None:
    name = ErrorCode(CODES[kind]).name
    ours = kind.__name__.removesuffix("Error").lower()
    assert name == RENAMED.get(kind) or name.replace("_", "") in (ours, ours + "error") or name in OF_A_FAMILY


@pytest.mark.parametrize("code", sorted(set(CODES.values())))
def test_numbers_go_there_and_back(code: int) -> None:
    error = error_of(code, "because")
    assert error is not None
    assert code_of(error) == code
    assert error.message == "because"


def test_clients_retry_what_we_call_retriable() -> None:
    # Ours differ where a retry cannot help although Kafka's clients make one.
    differ = {errors.ElectionNotNeededError, errors.DuplicateReplicaError, errors.FencedControllerError}
    differ |= {errors.InconsistentMetaPropertiesError, errors.RetriableError}
    for kind in ALL:
        if kind not in differ:
            assert ErrorCode(CODES[kind]).retriable == kind.retriable, kind.__name__


def test_no_error_is_0() -> None:
    assert code_of(None) == 0
    assert error_of(0) is None


def test_a_subclass_has_its_bases_number() -> None:
    class Unreachable(errors.NetworkError):
        pass

    assert code_of(Unreachable) == 13
    assert code_of(Unreachable("x")) == 13


def test_an_unknown_number_is_named() -> None:
    error = error_of(999)
    assert isinstance(error, errors.UnknownServerError)
    assert "999" in str(error)
    assert str(error_of(999, "said so")) == "said so"


def test_a_foreign_class_is_an_unknown_server_error() -> None:
    assert code_of(ValueError) == -1  # type: ignore[arg-type]
