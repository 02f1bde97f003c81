"""Locks that a test leaves open, as a kill -9 of its broker does. Other files are closed when nobody has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.storage.file_locks import OsLock, OsLockFile


def closed_at_the_end() -> Iterator[None]:
    """For a fixture: closes what of these kinds is made while it lasts."""
    made: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in (OsLock, OsLockFile):
            patch.setattr(kind, "__init__", noted(kind.__init__, made))
        yield
    for each in made:
        each.release() if isinstance(each, OsLock) else each.close()


def noted(begin: Any, made: list[Any]) -> Any:
    def init(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    return init
