"""How the texts of scenarios are read: comments, a command, ``----``, its output."""

from __future__ import annotations

from collections.abc import Iterator


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
