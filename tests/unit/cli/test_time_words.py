"""Times and durations as they are given on a command line."""

import pytest

from holdfast.cli.time_words import (
    LATEST_MS,
    parse_datetime,
    parse_duration,
    parse_spec,
    parse_time,
    time_before,
)
from holdfast.client.views import OffsetSpec

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("2020-11-10T16:51:38.198", 1_605_027_098_198),
        ("2020-11-10T16:51:38.198Z", 1_605_027_098_198),
        ("2020-11-10T16:51:38.198+08:00", 1_605_027_098_198 - 8 * HOUR),
        ("2020-11-10T16:51:38.198+0800", 1_605_027_098_198 - 8 * HOUR),
        ("2020-11-10T16:51:38.198+08", 1_605_027_098_198 - 8 * HOUR),
        ("2020-11-10T16:51:38.198-01:30", 1_605_027_098_198 + 90 * MINUTE),
        ("2020-11-10T16:51:38", 1_605_027_098_000),
        ("2020-11-10T16:51:38.1", 1_605_027_098_100),
        ("1969-12-31T23:59:59.999", 0),  # -1 would be a name for the end
        ("0001-01-01T00:00:00.000+14:00", 0),
    ],
)
def test_a_date_and_time_is_utc_unless_it_says_otherwise(text: str, ms: int) -> None:
    assert parse_datetime(text) == ms


@pytest.mark.parametrize(
    "text",
    ["", "now", "2020-11-10", "2020-11-10 16:51:38", "2020-13-10T16:51:38", "2020-11-10T25:00:00", "2020-11-10T16"],
)
def test_what_is_no_date_and_time_is_named(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_datetime(text)
    assert str(refused.value).startswith(f"{text!r}: expected YYYY-MM-DDTHH:mm:SS.sss")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", DAY),
        ("PT0S", 0),
        ("P2DT3H4M5.678S", 2 * DAY + 3 * HOUR + 4 * MINUTE + 5678),
        ("PT90M", 90 * MINUTE),
        ("pt1h", HOUR),
        ("PT1.5S", 1500),
        ("PT-1.5S", -1500),
        ("-P1DT1H", -DAY - HOUR),
        ("P1DT-1H", DAY - HOUR),
    ],
)
def test_a_duration_is_days_and_less(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1Y", "P1M", "PT1", "PT1H30", "P1W", "P1H"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_duration(text)
    assert str(refused.value) == f"{text!r}: expected PnDTnHnMnS, as P1D or PT1H30M"


def test_a_time_before_now_stays_a_time() -> None:
    assert time_before(1000, 300) == 700
    assert time_before(1000, -300) == 1300
    assert time_before(1000, 5000) == 0
    assert time_before(1000, -(10**30)) == LATEST_MS


def test_names_and_numbers_of_kafkas_are_specs() -> None:
    assert [parse_spec(text) for text in ("latest", "-1")] == [OffsetSpec.LATEST] * 2
    assert [parse_spec(text) for text in ("earliest", "-2")] == [OffsetSpec.EARLIEST] * 2
    assert [parse_spec(text) for text in ("max-timestamp", "-3")] == [OffsetSpec.MAX_TIMESTAMP] * 2
    assert parse_spec("0") == 0
    assert parse_time("1605027098198") == parse_spec("2020-11-10T16:51:38.198") == 1_605_027_098_198
    for text in ("-4", "abc", str(2**63), ""):
        with pytest.raises(ValueError) as refused:
            parse_spec(text)
        assert str(refused.value).startswith(f"{text!r}: expected latest, earliest, max-timestamp, milliseconds")
    with pytest.raises(ValueError, match="'latest': expected milliseconds since 1970, or YYYY"):
        parse_time("latest")
