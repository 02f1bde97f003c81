"""What is told of who was refused, in Kafka's form, and how much of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.audit import PER_SECOND, AuditLog
from holdfast.model.log_events import KEY
from holdfast.security.acls import ResourcePattern
from holdfast.security.authorizer import Authorizer
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, ResourceKind

ALICE = Principal.user("a")
ROOT = Authorizer(frozenset({"User:a"}))


class Loop:
    def __init__(self) -> None:
        self.now = 5.0
        self.later: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> None:
        self.later.append(callback)


def tell(audit: AuditLog, name: str = "t", authorizer: Authorizer | None = None) -> None:
    decision = (authorizer or Authorizer()).decide(ALICE, "127.0.0.1", Operation.READ, ResourceKind.TOPIC, name)
    audit.tell(ALICE, "127.0.0.1", Operation.READ, ResourcePattern(ResourceKind.TOPIC, name), 1, decision)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Any]]:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")

    def taken() -> list[Any]:
        found = [(r.levelname, r.getMessage(), getattr(r, KEY)) for r in caplog.records]
        caplog.clear()
        return found

    return taken


def test_a_refusal_has_kafkas_form(lines: Callable[[], list[Any]]) -> None:
    tell(AuditLog(Loop()))
    [(level, message, event)] = lines()
    assert (level, message) == (
        "INFO",
        "Principal = User:a is Denied operation = READ from host = 127.0.0.1 on resource = Topic:LITERAL:t for request "
        "= Fetch with resourceRefCount = 1 based on rule DefaultDeny",
    )
    assert event.event.value.name == "access.denied"
    assert event.fields == {
        "principal": "User:a", "operation": "READ", "host": "127.0.0.1", "resource": "Topic:LITERAL:t",
        "request": "Fetch", "rule": "DefaultDeny",
    }  # fmt: skip


def test_what_is_allowed_is_told_to_who_debugs(
    lines: Callable[[], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLog(Loop())
    tell(audit, authorizer=ROOT)
    assert not audit.tells_allowed
    assert lines() == []
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    assert audit.tells_allowed
    tell(audit, authorizer=ROOT)
    [(level, message, _)] = lines()
    assert level == "DEBUG"
    assert "is Allowed operation = READ" in message
    assert message.endswith("based on rule SuperUser")


def test_there_are_so_many_a_second_and_a_count(lines: Callable[[], list[Any]]) -> None:
    loop = Loop()
    audit = AuditLog(loop)
    for _ in range(10):
        tell(audit)
    assert len(lines()) == 1
    for number in range(2 * PER_SECOND):
        tell(audit, f"t{number}")
    assert len(lines()) == PER_SECOND - 1
    [tell_left_out] = loop.later
    tell_left_out()
    count = 9 + 2 * PER_SECOND - (PER_SECOND - 1)
    [(level, message, event)] = lines()
    assert (level, message) == (
        "INFO", f"{count} more are left out: denied the same, or more than {PER_SECOND} in a second",
    )  # fmt: skip
    assert event.fields == {"count": count}
    loop.now = 6.1
    tell(audit)
    tell(audit)
    assert len(lines()) == 1
    assert len(loop.later) == 2


def test_what_is_left_out_need_not_be_decided_again(lines: Callable[[], list[Any]]) -> None:
    """A request can name thousands of things; of those beyond the lines of a second only the number is told."""
    loop = Loop()
    audit = AuditLog(loop)
    for i in range(PER_SECOND):
        assert not audit.leaves_out()
        tell(audit, f"t{i}")
    assert all(audit.leaves_out() for _ in range(7))
    assert len(lines()) == PER_SECOND
    [later] = loop.later
    later()
    [(_, message, _)] = lines()
    assert message.startswith("7 more are left out")
    loop.now += 1
    assert not audit.leaves_out()


def test_where_what_is_allowed_is_told_all_is_decided(lines: Callable[[], list[Any]], caplog: Any) -> None:
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    audit = AuditLog(Loop())
    for i in range(PER_SECOND + 1):
        tell(audit, f"t{i}")
    assert not audit.leaves_out()


def test_names_do_not_make_lines_long(lines: Callable[[], list[Any]]) -> None:
    """A group may have a name of 32 KB, and of each name there is a line."""
    tell(AuditLog(Loop()), "g" * 30_000)
    [(_, message, event)] = lines()
    assert len(message) < 600 and "... (30014 characters)" in message
    assert len(event.fields["resource"]) < 350
