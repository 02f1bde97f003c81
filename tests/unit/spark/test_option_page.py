"""docs/spark-options.md says of each option of Spark's connector what it comes to here; each row is tried.

That no option is missing is compared with the connector's own classes in tests/spark/test_connector.py.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.spark.option_names import (
    FORBIDDEN_READ,
    FORBIDDEN_WRITE,
    KAFKA_READ,
    KAFKA_WRITE,
    NO_EFFECT_READ,
    NO_EFFECT_WRITE,
    READ_OPTIONS,
    REFUSED,
    WRITE_OPTIONS,
)
from holdfast.spark.options import OptionError, parse_read, parse_write
from tests.unit.spark.test_sasl import ALLOWED, BEARER, ENDPOINT, UNSECURED, jaas, with_password
from tests.unit.spark.test_security import AUTHORITY, CERTIFICATES, CHAIN, KEY, LOCKED_KEY

DOCS = Path(__file__).parents[3] / "docs"
SERVERS = {"kafka.bootstrap.servers": "a:1"}
SAMPLES = {
    "assign": '{"t":[0]}',
    "subscribe": "other",
    "subscribePattern": "t.*",
    "startingOffsets": '{"t":{"0":5}}',
    "startingOffsetsByTimestamp": '{"t":{"0":5}}',
    "startingTimestamp": "5",
    "startingOffsetsByTimestampStrategy": "latest",
    "endingOffsets": '{"t":{"0":5}}',
    "endingOffsetsByTimestamp": '{"t":{"0":5}}',
    "endingTimestamp": "5",
    "failOnDataLoss": "false",
    "includeHeaders": "true",
    "maxTriggerDelay": "1m",
    "groupIdPrefix": "g",
    "topic": "t",
    "kafka.bootstrap.servers": "b:2",
    "kafka.client.id": "me",
    "kafka.client.rack": "r",
    "kafka.isolation.level": "read_committed",
    "kafka.check.crcs": "false",
    "kafka.acks": "1",
    "kafka.compression.type": "zstd",
    "kafka.enable.idempotence": "false",
    "kafka.security.protocol": "SSL",
    "kafka.sasl.jaas.config": with_password("PLAIN", password="other")["sasl.jaas.config"],
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.oauthbearer.allowed.urls": "http://a/",
    "kafka.sasl.oauthbearer.token.endpoint.url": "http://a/",
    "kafka.ssl.enabled.protocols": "TLSv1.3",
    "kafka.ssl.endpoint.identification.algorithm": "",
    "kafka.ssl.key.password": "hush",
    "kafka.ssl.keystore.certificate.chain": CHAIN,
    "kafka.ssl.keystore.key": KEY,
    "kafka.ssl.keystore.location": str(CERTIFICATES / "client.pem"),
    "kafka.ssl.truststore.certificates": AUTHORITY,
    "kafka.ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
}
"""Values that are not the default; a number where there is none."""
BESIDE = {
    "kafka.ssl.key.password": {"kafka.ssl.keystore.certificate.chain": CHAIN, "kafka.ssl.keystore.key": LOCKED_KEY},
    "kafka.ssl.keystore.certificate.chain": {"kafka.ssl.keystore.key": KEY},
    "kafka.ssl.keystore.key": {"kafka.ssl.keystore.certificate.chain": CHAIN},
    "kafka.sasl.mechanism": {"kafka.sasl.jaas.config": with_password("SCRAM-SHA-512")["sasl.jaas.config"]},
    "kafka.sasl.oauthbearer.token.endpoint.url": {
        "kafka.sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", clientId="a", clientSecret="b"),
        "kafka.sasl.oauthbearer.allowed.urls": "http://a/",
    },
}
"""What an option is not taken without."""
BY_CLIENT = {"sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", clientId="a", clientSecret="b")}
BASES = {
    "kafka.ssl.": {"security.protocol": "SSL"},
    "kafka.sasl.jaas": with_password("PLAIN"),
    "kafka.sasl.mechanism": with_password("PLAIN"),
    "kafka.sasl.oauthbearer.token": UNSECURED,
    "kafka.sasl.login.callback": BEARER | BY_CLIENT | {ENDPOINT: "http://a/", ALLOWED: "http://a/"},
}
"""The settings that those of TLS and SASL go with, by how their names begin."""


class Row(NamedTuple):
    name: str
    place: str
    state: str
    how: str


def rows() -> list[Row]:
    page = (DOCS / "spark-options.md").read_text()
    found = re.findall(r"^\| `([^`]+)` \| (\w+) \| ([\w ]+) \| ?(.*?) ?\|$", page, re.MULTILINE)
    assert len(found) == len(re.findall(r"^\| `", page, re.MULTILINE)), "every row is one of four columns"
    return [Row(*each) for each in found]


ROWS = rows()


def places(row: Row) -> list[str]:
    return ["read", "write"] if row.place == "both" else [row.place]


def parsed(place: str, given: dict[str, str]) -> Any:
    if place == "write":
        return parse_write(SERVERS | given)
    topics = {} if {"assign", "subscribePattern"} & set(given) else {"subscribe": "t"}
    streaming = not any(name.startswith("ending") for name in given)
    return parse_read(SERVERS | topics | given, streaming=streaming)


CASES = [
    pytest.param(place, row, id=f"{place}-{row.name}")
    for row in ROWS
    for place in places(row)
    if place in ("read", "write")
]


@pytest.mark.parametrize(("place", "row"), CASES)
def test_each_option_is_what_the_page_says(place: str, row: Row, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    name = row.name
    bases = [settings for beginning, settings in BASES.items() if name.startswith(beginning)]
    base = {f"kafka.{setting}": text for settings in bases for setting, text in settings.items()}
    given = base | {name: SAMPLES.get(name, "7")} | BESIDE.get(name, {})
    match row.state:
        case "in force" | "differs":
            plain = parsed(place, {"endingOffsets": "latest"} if name.startswith("ending") else base)
            assert parsed(place, given) != plain
            assert not caplog.records
            assert row.how or row.state == "in force"
        case "one value":
            assert parsed(place, given | {name: row.how.strip("`")}) == parsed(place, base)
            with pytest.raises(OptionError, match=re.escape(f"option {name}='7': expected {row.how.strip('`')}")):
                parsed(place, given)
        case "no effect":
            assert parsed(place, given) == parsed(place, {})
            assert [each.getMessage().partition(": ")[2] for each in caplog.records] == [row.how]
        case "refused" if name.endswith(".*"):
            for setting in ("mechanism", "location", "protocol"):
                with pytest.raises(OptionError, match=re.escape(name[:-1] + setting)):
                    parsed(place, {name[:-1] + setting: "SSL"})
        case "refused":
            with pytest.raises(OptionError) as raised:
                parsed(place, given)
            assert str(raised.value) == f"option {name.lower()} is not allowed: {row.how}"
        case other:
            raise AssertionError(f"{name}: state {other!r}")


def test_every_name_that_is_known_here_is_on_a_page() -> None:
    page = (DOCS / "spark.md").read_text()
    for place, options, settings in (
        ("read", READ_OPTIONS, (*KAFKA_READ, *FORBIDDEN_READ, *NO_EFFECT_READ)),
        ("write", WRITE_OPTIONS, (*KAFKA_WRITE, *FORBIDDEN_WRITE, *NO_EFFECT_WRITE)),
    ):
        listed = {row.name for row in ROWS if place in places(row)}
        assert {f"kafka.{name}" for name in settings} <= listed
        assert set(REFUSED) <= listed
        only_here = [name for name in options if name not in listed]
        assert all(f"`{name.replace('key.', 'value.', 1)}`" in page for name in only_here if name != "key.format")
    assert len({(row.name, place) for row in ROWS for place in places(row)}) == sum(len(places(row)) for row in ROWS)
