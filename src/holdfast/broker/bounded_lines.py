"""Lines of the log that strangers can cause as fast as they connect: the first ones of a while are told, the others
counted."""

from __future__ import annotations

import logging

from holdfast.model.shown import cut

MOST = 10
"""Lines from one ``turn`` to the next."""
MOST_CHARACTERS = 1000
"""Of a value; names in it are cut where it is made (model/shown.py)."""


class BoundedLines:
    """Warnings of one kind. ``turn`` is called every now and then, and lets the next ones through."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        """What is counted, as in "3 more connections were refused"."""
        self._told = self._untold = 0

    def warning(self, message: str, *values: object) -> None:
        """Tell it on one line, or count it."""
        if self._told < MOST:
            self._told += 1
            self._log.warning(message, *(_bounded(value) if isinstance(value, str) else value for value in values))
        else:
            self._untold += 1

    def turn(self) -> None:
        """Say how many were not told since the last turn."""
        if self._untold:
            self._log.warning("%d more %s", self._untold, self._what)
        self._told = self._untold = 0


def _bounded(value: str) -> str:
    return " ".join(cut(value, MOST_CHARACTERS).splitlines())
