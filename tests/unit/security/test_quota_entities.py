"""security/quota_entities.py: whom quotas are for, and what is refused, in Kafka's words."""

from __future__ import annotations

import pytest

from holdfast.model.errors import InvalidRequestError, UnsupportedVersionError
from holdfast.security.quota_entities import (
    CLIENT_ID,
    IP,
    USER,
    EntityFilter,
    QuotaEntity,
    check_value,
    entity_of,
    entity_order,
    entity_text,
)

ALICE: QuotaEntity = ((USER, "alice"),)
BOTH: QuotaEntity = ((USER, "alice"), (CLIENT_ID, None))
HOST: QuotaEntity = ((IP, "10.0.0.1"),)
ALL: tuple[QuotaEntity, ...] = (ALICE, ((USER, None),), BOTH, ((CLIENT_ID, "c"),), HOST, ((IP, None),))


def test_an_entity_is_the_same_in_any_order() -> None:
    assert entity_of([(CLIENT_ID, None), (USER, "alice")]) == BOTH
    assert entity_text(BOTH) == "user=alice,client-id=<default>"
    assert sorted([((USER, None),), BOTH, ALICE], key=entity_order) == [ALICE, BOTH, ((USER, None),)]


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ([], "Invalid empty client quota entity"),
        ([("planet", "x")], "Unhandled client quota entity type: planet"),
        ([(USER, "a"), (USER, "b")], "Invalid client quota entity, duplicate entity entry user"),
        ([(USER, "")], "Empty user not supported"),
        ([(IP, "::1"), (USER, "a")], "Invalid quota entity combination, IP entity shouldnot be combined with User"),
    ],
)
def test_what_is_no_entity_is_refused(named: list[tuple[str, str | None]], text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        entity_of(named)


@pytest.mark.parametrize(
    ("entity", "key", "value", "text"),
    [
        (ALICE, "nope", 1.0, "Invalid configuration key nope"),
        (ALICE, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (HOST, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (ALICE, "producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, "request_percentage", 0.0, "Quota request_percentage must be greater than 0"),
        (ALICE, "request_percentage", float("nan"), "Quota request_percentage must be greater than 0"),
        (ALICE, "request_percentage", float("inf"), "Quota request_percentage must be a finite number"),
        (ALICE, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        (ALICE, "consumer_byte_rate", 1e19, "Proposed value for consumer_byte_rate is too large for a LONG."),
        (
            HOST,
            "connection_creation_rate",
            2.0**31,
            "Proposed value for connection_creation_rate is too large for an I",
        ),
    ],
)
def test_a_quota_that_cannot_be_is_refused(entity: QuotaEntity, key: str, value: float, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        check_value(entity, key, value)


def test_a_quota_that_can_be_is_not() -> None:
    check_value(ALICE, "request_percentage", 0.5)
    check_value(BOTH, "producer_byte_rate", 1024.0)
    check_value(HOST, "connection_creation_rate", 3.0)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ALL),
        ([], True, ()),
        ([(USER, EntityFilter.EXACT, "alice")], False, (ALICE, BOTH)),
        ([(USER, EntityFilter.EXACT, "alice")], True, (ALICE,)),
        ([(USER, EntityFilter.DEFAULT, None)], True, (((USER, None),),)),
        ([(USER, EntityFilter.SPECIFIED, None)], True, (ALICE, ((USER, None),))),
        ([(USER, EntityFilter.SPECIFIED, None), (CLIENT_ID, EntityFilter.DEFAULT, None)], True, (BOTH,)),
        ([(IP, EntityFilter.SPECIFIED, None)], False, (HOST, ((IP, None),))),
    ],
)
def test_a_filter_finds(
    components: list[tuple[str, int, str | None]], strict: bool, found: tuple[QuotaEntity, ...]
) -> None:
    wanted = EntityFilter(components, strict=strict)
    assert tuple(filter(wanted.matches, ALL)) == found


@pytest.mark.parametrize(
    ("components", "text"),
    [
        ([("", 0, "x")], "Invalid empty entity type."),
        ([(USER, 0, "a"), (USER, 2, None)], "Entity type user cannot appear more than once in the filter."),
        ([(USER, 0, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([(USER, 1, "x")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([(USER, 2, "x")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([(USER, 7, None)], "Unknown match type 7"),
        ([(IP, 2, None), (USER, 2, None)], "Invalid entity filter component combination."),
    ],
)
def test_a_filter_that_contradicts_itself_is_refused(components: list[tuple[str, int, str | None]], text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        EntityFilter(components, strict=False)


def test_a_filter_for_a_kind_that_nobody_knows_is_not_supported() -> None:
    with pytest.raises(UnsupportedVersionError, match="Unsupported entity type planet"):
        EntityFilter([("planet", 0, "x")], strict=False)
