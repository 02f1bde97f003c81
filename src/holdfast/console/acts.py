"""What an act is: something that changes the cluster, shown before it is done, and kept in mind afterwards.

An act has a form, a plan made of it, and the doing. A plan says what would happen, which command does the same, what
has to be typed for it, and why it cannot be. The plan is made again before the doing: what was shown may not be so any
more.
"""

import json
import os
import re
import shlex
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.client.admin import AdminClient
from holdfast.client.wire import error_name
from holdfast.console.snapshot import Snapshot
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TimestampMs

MOST_KEPT: Final = 200
MOST_LINES: Final = 200
"""Of a plan or an outcome that are shown."""
LOG_NAME: Final = "console-acts.log"

Form = Mapping[str, str]


class ActRefused(Exception):
    """What was typed cannot be meant; the message names it, and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActField:
    """One thing to fill in. ``kind``: text, number, area, choice or fixed; ``choices``: (value, words)."""

    name: str
    label: str
    kind: str = "text"
    choices: tuple[tuple[str, str], ...] = ()
    value: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActPlan:
    """What would happen. ``confirm``: what has to be typed, as it is destroyed; ``refused``: why it cannot be done."""

    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    commands: tuple[str, ...] = ()
    confirm: str | None = None
    refused: str | None = None


class Act(Protocol):
    """``name`` is in its address; ``verb`` on its button. ``ours``: no broker but Holdfast's does it."""

    name: str
    title: str
    verb: str
    ours: bool

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        """What has to be filled in, filled in as far as it is."""
        ...

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        """ActRefused, HoldfastError."""
        ...

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        """What became of it, a line each. ActRefused, HoldfastError: nothing was done, or it is not known."""
        ...


def command(bootstrap: str, *words: str, names: Sequence[str] = ()) -> str:
    """A line for a shell that does the same; ``names`` are arguments that may look like options."""
    marked = ["--", *names] if any(name.startswith("-") for name in names) else list(names)
    return shlex.join(["holdfast", *words, "--bootstrap-server", bootstrap, *marked])


def needed(form: Form, name: str, what: str) -> str:
    """ActRefused where it was left empty."""
    value = form.get(name, "").strip()
    if not value:
        raise ActRefused(f"{what}: expected one")
    return value


def number(form: Form, name: str, what: str, *, low: int = 0, high: int = 2**31 - 1) -> int:
    """A whole number of a form."""
    text = needed(form, name, what)
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not low <= int(text) <= high:
        raise ActRefused(f"{what} {text!r}: expected a number from {low} to {high}")
    return int(text)


def said(error: HoldfastError) -> str:
    """What the broker said, or Kafka's name of an error that comes without a word."""
    return str(error) or error_name(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActOutcome:
    """An act that was done, or could not be."""

    number: int
    once: str
    at_ms: TimestampMs
    name: str
    title: str
    commands: tuple[str, ...]
    lines: tuple[str, ...]
    error: str | None = None


@dataclass(slots=True)
class ActLog:
    """The acts of this console: the last ones in memory, and every one a line of JSON in a file of the user's.

    ``once`` is made with each form that is shown: sent twice, it is done once.
    """

    path: Path | None
    _kept: "OrderedDict[str, ActOutcome]" = field(default_factory=OrderedDict)
    _running: set[str] = field(default_factory=set)
    _count: int = 0

    def outcomes(self) -> list[ActOutcome]:
        """The newest first."""
        return list(reversed(self._kept.values()))

    def numbered(self, number: int) -> ActOutcome | None:
        return next((each for each in self._kept.values() if each.number == number), None)

    def begin(self, once: str) -> ActOutcome | None:
        """What became of it, if it was done already. ActRefused while it is being done."""
        if once in self._running:
            raise ActRefused("this act was sent twice: it is being done")
        done = self._kept.get(once)
        if done is None:
            self._running.add(once)
        return done

    def give_up(self, once: str) -> None:
        """It was not done after all."""
        self._running.discard(once)

    def end(
        self,
        once: str,
        act: Act,
        form: Form,
        at_ms: TimestampMs,
        commands: Sequence[str],
        lines: Sequence[str],
        error: str | None,
        who: str,
    ) -> ActOutcome:
        """Writes the line. OSError where it cannot be written; the outcome is kept all the same."""
        self._running.discard(once)
        self._count += 1
        outcome = ActOutcome(
            number=self._count,
            once=once,
            at_ms=at_ms,
            name=act.name,
            title=act.title,
            commands=tuple(commands),
            lines=tuple(lines[:MOST_LINES]),
            error=error,
        )
        self._kept[once] = outcome
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        if self.path is not None:
            append_line(self.path, audit_line(outcome, form, who))
        return outcome


def audit_line(outcome: ActOutcome, form: Form, who: str) -> dict[str, Any]:
    """What the file says of an act."""
    return {
        "at_ms": outcome.at_ms,
        "act": outcome.name,
        "from": who,
        "asked": {name: value for name, value in form.items() if name not in ("once", "confirm")},
        "commands": list(outcome.commands),
        "done": list(outcome.lines),
        "error": outcome.error,
    }


def append_line(path: Path, entry: Mapping[str, Any]) -> None:
    """One line, whole, readable by the user alone."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(entry, ensure_ascii=False).encode(errors="replace") + b"\n")
    finally:
        os.close(fd)
