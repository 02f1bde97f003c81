"""The table of rights: every API has a row, and what is told of who lacks one."""

import pytest

from holdfast.protocol.apis import BETWEEN_BROKERS, INTERNAL, SPOKEN, ApiKey
from holdfast.security.operations import MISSING, RIGHTS, SUPPORTED, Asked, Right, bits, check_complete, refusal
from holdfast.security.resources import Operation, ResourceKind


def test_every_api_has_a_row_and_one_without_is_named() -> None:
    check_complete(key.name for key in ApiKey)
    with pytest.raises(RuntimeError, match="no right is said for DRAW_THE_LINE"):
        check_complete(("FETCH", "DRAW_THE_LINE"))


def test_what_is_asked_before_is_of_the_cluster_and_has_a_right() -> None:
    for name, row in RIGHTS.items():
        if row.asked is Asked.BEFORE:
            assert {right.kind for right in row.rights} == {ResourceKind.CLUSTER}, name
        assert bool(row.rights) is (row.asked is not Asked.NOBODY), name


def test_what_brokers_say_to_each_other_needs_cluster_action() -> None:
    for key in BETWEEN_BROKERS:
        assert RIGHTS[ApiKey(key).name].rights == (Right(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),)


def test_only_who_asks_for_versions_or_logs_in_needs_nothing() -> None:
    free = {key.name for key in SPOKEN.keys() | INTERNAL.keys() if RIGHTS[key.name].asked is Asked.NOBODY}
    assert free - {"SASL_HANDSHAKE", "SASL_AUTHENTICATE"} == {"API_VERSIONS"}


def test_every_kind_of_right_has_an_error_with_kafkas_words() -> None:
    kinds = {right.kind for row in RIGHTS.values() for right in row.rights}
    assert kinds == MISSING.keys()
    assert {refusal(kind).message for kind in kinds} == {
        "Topic authorization failed.", "Group authorization failed.", "Cluster authorization failed.",
        "Transactional Id authorization failed.",
    }  # fmt: skip


def test_operations_are_bits_of_kafkas_numbers() -> None:
    assert bits(()) == 0
    assert bits(SUPPORTED[ResourceKind.TOPIC]) == 0b1101_1111_1000 & ~(1 << 9)
    assert bits(SUPPORTED[ResourceKind.GROUP]) == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert bits(SUPPORTED[ResourceKind.CLUSTER]) == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def test_a_right_is_written_as_in_kafkas_commands() -> None:
    assert str(Right(Operation.DESCRIBE_CONFIGS, ResourceKind.TRANSACTIONAL_ID)) == "DescribeConfigs TransactionalId"
