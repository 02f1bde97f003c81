"""Which Python workers are started with, before there is a session: tests/spark/test_virtualenv.py has the rest."""

from __future__ import annotations

import sys

import pytest

from holdfast.spark.python_of_workers import use_this_python


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not loaded Spark, in a virtualenv."""
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setattr(sys, "prefix", "/somewhere/venv")


def test_a_virtualenv_is_taken_where_nobody_has_said_another_python() -> None:
    environ: dict[str, str] = {}
    use_this_python(environ)
    assert environ == {"PYSPARK_PYTHON": sys.executable}


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_what_somebody_has_said_stays(name: str) -> None:
    environ = {name: "./environment/bin/python"}
    use_this_python(environ)
    assert environ == {name: "./environment/bin/python"}


def test_the_python_of_the_system_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    environ: dict[str, str] = {}
    use_this_python(environ)
    assert environ == {}
