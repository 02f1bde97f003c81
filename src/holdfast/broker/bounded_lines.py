"""Lines of the log that strangers can cause as fast as they connect: the first ones of a while are told, the others
counted."""

from __future__ import annotations

import logging

MOST = 10
"""Lines from one ``turn`` to the next."""


class BoundedLines:
    """Warnings of one kind. ``turn`` is called every now and then, and lets the next ones through."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        """What is counted, as in "3 more connections were refused"."""
        self._told = self._untold = 0

    def warning(self, message: str, *values: object) -> None:
        """Tell it, or count it."""
        if self._told < MOST:
            self._told += 1
            self._log.warning(message, *values)
        else:
            self._untold += 1

    def turn(self) -> None:
        """Say how many were not told since the last turn."""
        if self._untold:
            self._log.warning("%d more %s", self._untold, self._what)
        self._told = self._untold = 0
