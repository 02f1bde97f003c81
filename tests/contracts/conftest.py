"""What the contracts of the metadata's copies share."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.test_metadata_copies import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Two directories for copies, and what is found wrong with them is not for a person here."""
    made = Machine(tmp_path)
    logging.disable(logging.ERROR)
    yield made
    logging.disable(logging.NOTSET)
    made.close()
