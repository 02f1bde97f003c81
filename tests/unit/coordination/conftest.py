"""An ensemble in memory, and both stores of metadata beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checks.two_stores import TwoStores
from tests.contracts.ensembles import ModelEnsemble


@pytest.fixture
def ensemble() -> Iterator[ModelEnsemble]:
    made = ModelEnsemble()
    yield made
    made.close()


@pytest.fixture
def stores(tmp_path: Path, ensemble: ModelEnsemble) -> TwoStores:
    return TwoStores(tmp_path, lambda: ensemble.client(start=False))
