"""Users' passwords and quotas in the lines of kafka-configs.sh of Apache Kafka 4.3.0, as it was recorded."""

import json
import pathlib
from typing import Any

import pytest

from holdfast.cli.quota_lines import (
    completed_line,
    credential_line,
    entity_of,
    javas_number,
    parse_quota_keys,
    parse_quotas,
    quota_lines,
    quotas_document,
    users_document,
)

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0/kafka-configs-authorizer.json"
RECORDED: list[dict[str, Any]] = json.loads(GOLDEN.read_text())


def said(*arguments: str) -> str:
    """What the first command with these arguments printed."""
    return str(next(r["stdout"] for r in RECORDED if tuple(r["command"][3:]) == arguments))


def completed(entity: dict[str, str | None]) -> str:
    return f"{completed_line(entity)}\n"


BOB, C1 = entity_of(user="bob"), entity_of(client="c1")


def test_described_quotas_are_kafkas_lines() -> None:
    assert "\n".join([*quota_lines([(entity_of(client_default=True), {"producer_byte_rate": 1e6}),
                                    (C1, {"producer_byte_rate": 1024, "controller_mutation_rate": 5})]), ""]) == said(
        "--describe", "--entity-type", "clients"
    )  # fmt: skip
    both = [(entity_of(user="bob", client_default=True), {"producer_byte_rate": 20.0}),
            (entity_of(user="bob", client="c1"), {"producer_byte_rate": 10.0})]  # fmt: skip
    expected = said("--describe", "--entity-type", "users", "--entity-type", "clients")
    assert set(quota_lines(both)) == set(expected.splitlines())
    ips = [(entity_of(ip="127.0.0.1"), {"connection_creation_rate": 7.0}),
           (entity_of(ip_default=True), {"connection_creation_rate": 70.0})]  # fmt: skip
    assert "\n".join([*quota_lines(ips), ""]) == said("--describe", "--entity-type", "ips")


def test_credentials_are_kafkas_line() -> None:
    told = said("--describe", "--entity-type", "users", "--entity-name", "bob").splitlines()
    assert told == [
        *quota_lines([(BOB, {"producer_byte_rate": 1024.0})]),
        credential_line("bob", {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}),
    ]


def test_what_was_completed_is_kafkas_line() -> None:
    alter = ("--alter", "--entity-type")
    scram = "SCRAM-SHA-512=[password=secret]"
    assert completed(BOB) == said(*alter, "users", "--entity-name", "bob", "--add-config", scram)
    more = ("--entity-type", "clients", "--entity-name", "c1", "--add-config", "producer_byte_rate=10")
    assert completed(entity_of(user="bob", client="c1")) == said(*alter, "users", "--entity-name", "bob", *more)
    rate = "producer_byte_rate=1000000"
    assert completed(entity_of(client_default=True)) == said(
        *alter, "clients", "--entity-default", "--add-config", rate
    )
    rate = "connection_creation_rate=70"
    assert completed(entity_of(ip_default=True)) == said(*alter, "ips", "--entity-default", "--add-config", rate)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1024, "1024.0"), (0.5, "0.5"), (9_999_999, "9999999.0"), (1e7, "1.0E7"), (12_345_678, "1.2345678E7"),
     (0.001, "0.001"), (0.00012, "1.2E-4"), (1e23, "1.0E23"), (0, "0.0")],
)  # fmt: skip
def test_numbers_are_as_java_prints_them(value: float, text: str) -> None:
    assert javas_number(value) == text


def test_values_are_numbers_above_nothing() -> None:
    assert parse_quotas(BOB, ["producer_byte_rate = 1e6", "request_percentage=12.5"]) == {
        "producer_byte_rate": 1e6,
        "request_percentage": 12.5,
    }
    for text in ("producer_byte_rate=abc", "producer_byte_rate=-1", "producer_byte_rate=0", "producer_byte_rate=nan",
                 "producer_byte_rate=inf", "producer_byte_rate"):  # fmt: skip
        with pytest.raises(ValueError, match="expected"):
            parse_quotas(BOB, [text])
    with pytest.raises(ValueError, match="twice"):
        parse_quotas(BOB, ["producer_byte_rate=1", "producer_byte_rate=2"])
    with pytest.raises(ValueError, match="did you mean producer_byte_rate"):
        parse_quotas(BOB, ["producer_byte_rates=1"])
    with pytest.raises(ValueError, match="of an ip"):
        parse_quota_keys(entity_of(ip_default=True), ["producer_byte_rate"])
    assert parse_quota_keys(BOB, ["request_percentage"] * 2) == ["request_percentage"]


@pytest.mark.parametrize(
    "given",
    [{"user": ""}, {"user": "a", "user_default": True}, {"ip": "here"}, {"ip": "::1", "user": "a"}],
)
def test_entities_that_cannot_be(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        entity_of(**given)


def test_documents() -> None:
    found = [(C1, {"producer_byte_rate": 1.0}), (entity_of(user_default=True), {"consumer_byte_rate": 2.0})]
    assert json.loads(quotas_document(found))["quotas"] == [
        {"entity": {"user": None}, "quotas": {"consumer_byte_rate": 2.0}},
        {"entity": {"client-id": "c1"}, "quotas": {"producer_byte_rate": 1.0}},
    ]
    assert json.loads(users_document({"b": {"SCRAM-SHA-512": 8192}}))["users"] == [
        {"name": "b", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]}
    ]
