"""``holdfast features`` against what kafka-features.sh of 4.3.0 printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.features import describe_lines, outcome_lines, parse_levels
from holdfast.cli.kafka_errors import DeclinedUse
from holdfast.client.features import FeatureView
from holdfast.model.errors import InvalidUpdateVersionError

GOLDEN = Path(__file__).parents[2] / "golden/cli/4.3.0/kafka-features.json"


def recorded(*words: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [c for c in json.loads(GOLDEN.read_text()) if set(words) <= set(c["command"])]
    [case] = found
    return case


def test_describe() -> None:
    case = recorded("describe")
    lines = case["stdout"].splitlines()
    numbers = [[int(word) for word in line.split() if word.isdigit()] for line in lines if "metadata" not in line]
    names = [line.split()[1] for line in lines if "metadata" not in line]
    found = [FeatureView(n, low, high, level) for n, (low, high, level, _) in zip(names, numbers, strict=True)]
    assert describe_lines(found, 257) == [line for line in lines if "metadata" not in line]


def test_what_cannot_be_done() -> None:
    for what, words, level, dry_run in (
        ("upgrade", "metadata.version=99", 99, False),
        ("upgrade", "no.such=1", 1, True),
    ):
        case = recorded(words)
        text = case["stdout"].split(". ", 1)[1].rstrip("\n")
        levels = parse_levels([words])
        assert list(levels.values()) == [level]
        lines = outcome_lines(what, levels, InvalidUpdateVersionError(text), dry_run=dry_run)
        assert lines == case["stdout"].splitlines()


def test_what_was_done() -> None:
    levels = {"b": 2, "a": 1}
    assert outcome_lines("upgrade", levels, None, dry_run=False) == ["a was upgraded to 1.", "b was upgraded to 2."]
    assert outcome_lines("downgrade", {"a": 1}, None, dry_run=True) == ["a can be downgraded to 1."]
    assert outcome_lines("disable", {"a": 0}, None, dry_run=False) == ["a was disabled."]
    error = InvalidUpdateVersionError("why")
    assert outcome_lines("disable", {"a": 0}, error, dry_run=False) == ["Could not disable a. why"]


@pytest.mark.parametrize(
    ("wanted", "said", "kafkas"),
    [
        (["a"], "--feature a: expected NAME=LEVEL", "Can't parse feature=level string a: equals sign not found."),
        (["=1"], "--feature =1: expected NAME=LEVEL", "Can't parse feature=level string =1: equals sign not found."),
        (
            ["a=x"],
            "--feature a=x: level 'x': expected a whole number up to 32767",
            "Can't parse feature=level string a=x: unable to parse x as a short.",
        ),
        (
            ["a=40000"],
            "--feature a=40000: level '40000': expected a whole number up to 32767",
            "Can't parse feature=level string a=40000: unable to parse 40000 as a short.",
        ),
        (
            ["a=1", "a=2"],
            "--feature a=2: a comes twice: expected each feature once",
            "Feature a was specified more than once.",
        ),
    ],
)
def test_what_is_no_level_is_refused(wanted: list[str], said: str, kafkas: str) -> None:
    with pytest.raises(DeclinedUse) as refused:
        parse_levels(wanted)
    assert (str(refused.value), refused.value.kafkas) == (said, kafkas)
