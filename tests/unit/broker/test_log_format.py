"""A line of the log: text that ends with the fields, or one JSON object; times are UTC."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from holdfast.broker.log_format import FORMATS, MOST_MESSAGE, make_formatter
from holdfast.broker.log_lines import LEVEL_VARIABLE, LEVELS, configure_logging, level_asked_for, without_log_file
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError
from holdfast.model.log_events import LogEvent, told

MOMENT_S = 1795639707.25  # 2026-11-25 20:48:27.25 UTC


def record(message: str, *args: object, extra: dict[str, Any] | None = None, exc: Any = None) -> logging.LogRecord:
    made = logging.getLogger("holdfast.x").makeRecord(
        "holdfast.x", logging.INFO, "f", 1, message, args, exc, extra=extra
    )
    made.created = MOMENT_S
    return made


def fields() -> dict[str, Any]:
    return told(LogEvent.LEADER_LOST, topic="a b", partition=0, broker=None, isr=(1, 2))


def test_a_line_of_text() -> None:
    text = make_formatter("text", 1)
    assert text.format(record("broker %d serves", 1)) == (
        "[2026-11-25T20:48:27.250Z] INFO [broker-1] broker 1 serves (holdfast.x)"
    )
    assert text.format(record("no\nleader", extra=fields())) == (
        "[2026-11-25T20:48:27.250Z] INFO [broker-1] no leader "
        '(event=leader.lost topic="a b" partition=0 broker=none isr=1,2)'
    )
    assert "[broker] " in make_formatter("text", None).format(record("x"))


@pytest.mark.parametrize("kind", FORMATS)
def test_no_line_grows_with_what_somebody_chose(kind: str) -> None:
    lines = make_formatter(kind, 1)
    long = "a" * 60_000
    plain = lines.format(record("of %s", long))
    assert "... (60003 characters)" in plain and len(plain) < MOST_MESSAGE + 300
    assert len(lines.format(record("of %s", long, extra=told(LogEvent.LEADER_LOST, topic=long)))) < 7000


def test_an_object() -> None:
    lines = make_formatter("json", 1)
    found = json.loads(lines.format(record("no leader", extra=fields())))
    assert found == {
        "ts": "2026-11-25T20:48:27.250Z", "level": "INFO", "broker": 1, "event": "leader.lost",
        "fields": {"topic": "a b", "partition": 0, "broker": None, "isr": [1, 2]},
        "message": "no leader", "logger": "holdfast.x",
    }  # fmt: skip
    plain = json.loads(lines.format(record("x")))
    assert (plain["event"], plain["fields"], set(plain)) == (None, {}, set(found))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_trace_goes_with_its_line(kind: str) -> None:
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError:
        line = make_formatter(kind, 1).format(record("it failed\nbadly \udcff", exc=sys.exc_info()))
    assert "ZeroDivisionError: oh" in line
    if kind == "json":
        assert "\n" not in line and json.loads(line)["message"] == "it failed\nbadly \udcff"


def test_every_event_has_a_name_of_its_own_and_says_what_to_do() -> None:
    names = [event.value.name for event in LogEvent]
    assert len(set(names)) == len(names) == len(LogEvent.__members__)
    for event in LogEvent:
        kind = event.value
        assert kind.name.replace("_", ".").upper() == event.name.replace("_", "."), "the constant is named like it"
        assert kind.fields and kind.says.endswith(".") and kind.then.endswith(".")


def test_a_level_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, found in ((None, "INFO"), ("", "INFO"), ("debug", "DEBUG"), ("ERROR", "ERROR")):
        if given is None:
            monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(LEVEL_VARIABLE, given)
        assert level_asked_for() == found
    for wrong in ("foo", "NOTSET", "10"):
        monkeypatch.setenv(LEVEL_VARIABLE, wrong)
        with pytest.raises(ConfigError, match=f"{LEVEL_VARIABLE}={wrong}: expected one of {', '.join(LEVELS)}"):
            level_asked_for()


def test_a_format_that_is_none_and_a_file_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"xml for configuration log\.format: .* one of: text, json"):
        BrokerConfig.parse({"node.id": "1", "log.format": "xml"})
    config = BrokerConfig.parse({"node.id": "1", "log.file": "/proc/nope/broker.log"})
    with pytest.raises(ConfigError, match=r"log\.file=/proc/nope/broker\.log: No such file or directory"):
        configure_logging(config)


def test_keys_of_a_file_that_is_not_there_are_told() -> None:
    config = BrokerConfig.parse({"node.id": "1", "log.file.backups": "3"})
    assert without_log_file(config, None) == ["log.file.backups=3 has no effect: log.file is not given"]
    assert without_log_file(config, "/x/broker-1.log") == []
    both = BrokerConfig.parse({"node.id": "1", "log.file": "/y"})
    assert without_log_file(both, "/x") == ["log.file=/y has no effect: the log is in /x"]
    assert without_log_file(both, None) == []
