"""Imports without what only tests need.

kio offers its types to hypothesis wherever that is installed, which costs every process of a development checkout a
tenth of a second and ten megabytes. A running broker has no use for it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lean_imports() -> Iterator[None]:
    """Inside, hypothesis is as if not installed; a process that has it already keeps it."""
    if "hypothesis" in sys.modules:
        yield
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # the documented way to block an import
    try:
        yield
    finally:
        sys.modules.pop("hypothesis", None)
