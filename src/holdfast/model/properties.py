"""A Java properties file as text: comments, continued lines, and what stands on each side of ``=`` or ``:``."""

from collections.abc import Iterator


def read_properties(text: str) -> dict[str, str]:
    """A Java properties file, as configuration files use it: comments, continued lines, ``=`` or ``:``."""
    return {key: value or "" for _, key, value in property_lines(text)}


def property_lines(text: str) -> Iterator[tuple[int, str, str | None]]:
    """(number of its last line, key, value) of each entry in order; None where there is neither ``=`` nor ``:``."""
    pending, number = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = pending + raw.lstrip() if pending else raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending = line[:-1]
            continue
        yield number, *_split_property(line)
    if pending:
        yield number, *_split_property(pending)


def _split_property(line: str) -> tuple[str, str | None]:
    for i, char in enumerate(line):
        if char in "=:":
            return line[:i].strip(), line[i + 1 :].strip().replace("\\\\", "\\")
    return line.strip(), None
