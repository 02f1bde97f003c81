"""The fake broker, for tests that cannot import from each other."""

import importlib.util
import pathlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("client_fakes", pathlib.Path(__file__).with_name("fakes.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
