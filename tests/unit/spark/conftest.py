"""What tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.spark import topics


@pytest.fixture(autouse=True, scope="module")
def clients_are_closed() -> Iterator[None]:
    """Those that a process keeps for later readers."""
    yield
    while topics._clients:
        topics._clients.popitem()[1].close()
