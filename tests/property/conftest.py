"""What every property test has around it."""

from collections.abc import Iterator

import pytest

from tests.left_open import closed_at_the_end


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield from closed_at_the_end()
