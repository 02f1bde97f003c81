"""How the texts of scenarios are read: comments, a command, ``----``, its output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def parse(text: str) -> Iterator[tuple[list[str], str | None, list[str]]]:
    """Comment lines before it, a command (None at the end of the file), its output."""
    comments: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            comments.append(line)
            continue
        output = []
        if next(lines, "") == "----":
            for produced in lines:
                if not produced:
                    break
                output.append(produced)
        yield comments, line, output
        comments = []
    yield comments, None, []


def check_file(path: Path, run: Callable[[str], Iterable[str]]) -> None:
    """Every command of the file says what stands below it. With HOLDFAST_REWRITE that is written there first."""
    actual: list[str] = []
    text = path.read_text()
    for comments, command, _ in parse(text):
        actual += comments
        if command is not None:
            actual += [command, "----", *run(command), ""]
    result = "\n".join(actual).rstrip("\n") + "\n"
    if os.environ.get("HOLDFAST_REWRITE"):
        path.write_text(result)
    assert result == text
