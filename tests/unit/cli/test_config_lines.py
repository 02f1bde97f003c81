"""``holdfast configs``: which keys are shown, how, and what an operation comes to."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.config_lines import (
    change_line,
    chosen_values,
    described_json,
    described_lines,
    parse_change,
    parse_changes,
    parse_keys,
    unknown_key,
    value_after,
)
from holdfast.cli.failing import Failed
from holdfast.client.configs import AlterConfigOp, ConfigTarget, KeyChange
from holdfast.client.views import ConfigSynonym, ConfigValue
from holdfast.model.config import KEYS, TOPIC_KEYS

TOPIC = ConfigTarget(topic="t")
BROKER = ConfigTarget(broker=1)
EVERYBODY = ConfigTarget()


def value(name: str, *layers: tuple[str | None, str], sensitive: bool = False, read_only: bool = False) -> ConfigValue:
    """``layers``: (value, source), the one in force first."""
    text, source = layers[0]
    return ConfigValue(
        name=name,
        value=None if sensitive else text,
        source=source,
        read_only=read_only,
        sensitive=sensitive,
        type="LONG",
        synonyms=tuple(ConfigSynonym(name=name, value=t, source=s) for t, s in layers),
    )


RETENTION = value("retention.ms", ("1000", TOPIC.layer), ("604800000", "DEFAULT_CONFIG"))
SEGMENT = value("segment.ms", ("5", "DEFAULT_CONFIG"))
POLICY = value("cleanup.policy", ("delete", "DEFAULT_CONFIG"))


def change(operation: AlterConfigOp, text: str | None = None, key: str = "retention.ms") -> KeyChange:
    return KeyChange(key=key, operation=operation, value=text)


# -- describe --------------------------------------------------------------------------------------------------


def test_what_is_not_default_is_shown_or_all_or_what_is_named() -> None:
    every = [SEGMENT, RETENTION, POLICY]
    assert chosen_values(every, [], everything=False) == [RETENTION]
    assert chosen_values(every, [], everything=True) == [POLICY, RETENTION, SEGMENT]
    assert chosen_values(every, ["segment.ms", "cleanup.policy"], everything=False) == [POLICY, SEGMENT]
    with pytest.raises(Failed, match=r"^no key 'retention.mss': did you mean 'retention.ms'\?$"):
        chosen_values(every, ["segment.ms", "retention.mss"], everything=False)
    assert unknown_key("zzz", TOPIC_KEYS) == "no key 'zzz'"


def test_the_table_marks_what_cannot_be_changed_and_what_is_not_told() -> None:
    shown = [
        RETENTION,
        value("ssl.key.password", ("hunter2", "STATIC_BROKER_CONFIG"), sensitive=True, read_only=True),
        value("broker.rack", (None, "DEFAULT_CONFIG"), read_only=True),
        value("some.list", ("", "DYNAMIC_DEFAULT_BROKER_CONFIG")),
    ]
    assert described_lines(shown, None) == [
        "KEY               VALUE  SOURCE",
        "retention.ms      1000   DYNAMIC_TOPIC",
        "ssl.key.password  null   STATIC, read-only, sensitive",
        "broker.rack       null   DEFAULT, read-only",
        "some.list         ''     DYNAMIC_DEFAULT",
    ]


def test_the_whole_of_a_broker_fits_a_terminal_of_80_columns() -> None:
    """But for the lines of two keys that are longer than all others, and of secrets in the file."""
    shown = [
        value(
            name,
            ("9" * 19, ("DEFAULT_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")[at % 3]),
            read_only=at % 3 == 0,
        )
        for at, name in enumerate(KEYS)
    ]
    lines = described_lines(shown, 80)
    assert len(lines) > len(KEYS)
    assert {line.split()[0] for line in lines if len(line) > 80} <= {name for name in KEYS if len(name) > 47}
    assert all(len(line) <= 80 for line in described_lines(shown[:20], None) if "9" * 19 not in line)


def test_json_has_kafkas_names_and_every_layer() -> None:
    document = json.loads(described_json(TOPIC, [RETENTION]))
    assert document["entity"] == {"type": "topic", "name": "t"}
    assert document["configs"] == [
        {
            "name": "retention.ms",
            "value": "1000",
            "source": "DYNAMIC_TOPIC_CONFIG",
            "type": "LONG",
            "read_only": False,
            "sensitive": False,
            "synonyms": [
                {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"},
                {"name": "retention.ms", "value": "604800000", "source": "DEFAULT_CONFIG"},
            ],
        }
    ]
    assert json.loads(described_json(BROKER, []))["entity"] == {"type": "broker", "name": 1}
    assert json.loads(described_json(EVERYBODY, []))["entity"] == {"type": "broker", "name": None}


# -- what is asked for -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "operation", "wanted"),
    [
        ("retention.ms=5", "retention.ms", AlterConfigOp.SET, "5"),
        ("retention.ms=-1", "retention.ms", AlterConfigOp.SET, "-1"),
        ("a=b=c", "a", AlterConfigOp.SET, "b=c"),
        ("a=", "a", AlterConfigOp.SET, ""),
        ("cleanup.policy+=compact", "cleanup.policy", AlterConfigOp.APPEND, "compact"),
        ("cleanup.policy-=compact", "cleanup.policy", AlterConfigOp.SUBTRACT, "compact"),
        ("a+=+b", "a", AlterConfigOp.APPEND, "+b"),
    ],
)
def test_what_is_to_be_done_to_a_key(text: str, key: str, operation: AlterConfigOp, wanted: str) -> None:
    assert parse_change(text) == KeyChange(key=key, operation=operation, value=wanted)


@pytest.mark.parametrize("text", ["retention.ms", "=5", "+=5", " =5", ""])
def test_what_is_no_change_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="expected KEY=VALUE"):
        parse_change(text)


def test_a_key_comes_once() -> None:
    with pytest.raises(ValueError, match="a comes twice"):
        parse_changes(["a=1", "b=1", "a+=2"])
    assert [c.key for c in parse_keys(["a", "b", "a"])] == ["a", "b"]
    for text in ("a=1", ""):
        with pytest.raises(ValueError, match="expected a KEY alone"):
            parse_keys([text])


# -- what it comes to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "made", "present", "after"),
    [
        (TOPIC, change(AlterConfigOp.SET, "5"), RETENTION, "5"),
        (TOPIC, change(AlterConfigOp.SET, "5"), None, "5"),
        (TOPIC, change(AlterConfigOp.SET, "5"), value("p", ("x", TOPIC.layer), sensitive=True), "(sensitive)"),
        (TOPIC, change(AlterConfigOp.DELETE), RETENTION, "604800000"),
        (TOPIC, change(AlterConfigOp.DELETE), value("retention.ms", ("1", TOPIC.layer)), None),
        (TOPIC, change(AlterConfigOp.APPEND, "compact, delete"), POLICY, "delete,compact"),
        (TOPIC, change(AlterConfigOp.SUBTRACT, "delete"), POLICY, ""),
        (TOPIC, change(AlterConfigOp.APPEND, "x"), None, None),
        (BROKER, change(AlterConfigOp.APPEND, "x"), value("l", ("a", "STATIC_BROKER_CONFIG")), None),
        (BROKER, change(AlterConfigOp.SUBTRACT, "a"), value("l", ("a,b", BROKER.layer)), "b"),
        (BROKER, change(AlterConfigOp.DELETE), value("l", ("a", BROKER.layer), ("b", EVERYBODY.layer)), "b"),
        (
            EVERYBODY,
            change(AlterConfigOp.DELETE),
            value("l", ("a", EVERYBODY.layer), ("b", "DEFAULT_CONFIG")),
            "(not set)",
        ),
        (EVERYBODY, change(AlterConfigOp.DELETE), None, "(not set)"),
    ],
)
def test_what_a_key_has_afterwards(
    target: ConfigTarget, made: KeyChange, present: ConfigValue | None, after: str | None
) -> None:
    assert value_after(made, target, present) == after


@pytest.mark.parametrize(
    ("target", "made", "present", "after", "line"),
    [
        (TOPIC, change(AlterConfigOp.SET, "5"), RETENTION, "5", "topic t: retention.ms: 1000 -> 5"),
        (BROKER, change(AlterConfigOp.SET, ""), RETENTION, "", "broker 1: retention.ms: 1000 -> ''"),
        (EVERYBODY, change(AlterConfigOp.SET, "5"), None, "5", "default of brokers: retention.ms: (not set) -> 5"),
        (TOPIC, change(AlterConfigOp.DELETE), RETENTION, None, "topic t: retention.ms: 1000 -> its default"),
        (TOPIC, change(AlterConfigOp.DELETE), SEGMENT, "5", "topic t: retention.ms: was not set, it is 5"),
        (EVERYBODY, change(AlterConfigOp.DELETE), None, "", "default of brokers: retention.ms: was not set"),
        (TOPIC, change(AlterConfigOp.APPEND, "x"), POLICY, None, "topic t: retention.ms: delete -> with x"),
        (TOPIC, change(AlterConfigOp.SUBTRACT, "x"), POLICY, None, "topic t: retention.ms: delete -> without x"),
        (
            BROKER,
            change(AlterConfigOp.SET, "s"),
            value("p", ("x", BROKER.layer), sensitive=True),
            "(sensitive)",
            "broker 1: retention.ms: (sensitive) -> (sensitive)",
        ),
    ],
)
def test_a_line_for_each_key(
    target: ConfigTarget, made: KeyChange, present: ConfigValue | None, after: str | None, line: str
) -> None:
    assert change_line(target, made, present, after, dry_run=False) == line
    assert change_line(target, made, present, after, dry_run=True) == f"{line} (dry run)"
