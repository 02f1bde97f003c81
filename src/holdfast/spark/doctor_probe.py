"""What ``holdfast spark doctor`` runs on an executor, where Holdfast may be missing: the standard library alone.

Shipped by value (doctor.py), so nothing here may be imported from another module of ours.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def probe(
    packages: Sequence[str], modules: Sequence[str], brokers: Sequence[tuple[str, int]], seen_at: str | None
) -> dict[str, Any]:
    """What this Python has: ``packages`` by version, ``modules`` that can be imported, ``brokers`` that can be reached,
    and whether the file ``seen_at`` is there. A missing thing is the text of its error; one that is there is ''."""
    return {
        "host": socket.gethostname(),
        "python": sys.executable,
        "python_version": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "modules": {name: _imported(name) for name in modules},
        "brokers": {f"{host}:{port}": _reached(host, port) for host, port in brokers},
        "path": None if seen_at is None else _seen(seen_at),
    }


def of_tasks(arguments: tuple[Any, ...]) -> Any:
    """The function of a task: one answer, with the folder of its executor."""

    def run(_: Iterable[int]) -> Iterator[dict[str, Any]]:
        yield {**probe(*arguments), "folder": os.getcwd()}

    return run


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _imported(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as e:  # whatever a broken installation raises
        return f"{type(e).__name__}: {e}"
    return ""


def _reached(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as e:
        return str(e)
    return ""


def _seen(path: str) -> str:
    try:
        os.stat(path)
    except OSError as e:
        return str(e)
    return ""
