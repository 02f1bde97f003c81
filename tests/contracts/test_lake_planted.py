"""Bugs that are put back into the lake's tables are found, each by a test of the contracts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.lake_planted import FOUND_BY


@pytest.mark.parametrize(
    ("bug", "test", "given"), FOUND_BY, ids=[f"{bug.__name__}-{'-'.join(given)}" for bug, _, given in FOUND_BY]
)
def test_bugs_that_are_put_back_are_found(
    tmp_path: Path, bug: Callable[[pytest.MonkeyPatch], None], test: Callable[..., None], given: tuple[Any, ...]
) -> None:
    found: BaseException | None = None
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        try:
            test(tmp_path, *given)
        except (AssertionError, pytest.fail.Exception) as error:  # not what the bug itself stumbles over
            found = error
    assert found is not None, f"{test.__name__} passes with {bug.__name__}"
