"""``holdfast spark doctor``: what Spark needs, and where it is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Cluster
from tests.spark.standalone import StandaloneSpark

pytestmark = pytest.mark.spark


def doctor(*arguments: str, python: str | None, **environ: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings of the command, as somebody runs it who has not activated the virtualenv."""
    given = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"} | environ
    if python is not None:
        given["PYSPARK_PYTHON"] = python
    command = [sys.executable, "-m", "holdfast.cli.main", "spark", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=given, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def wrong(findings: list[dict[str, Any]], where: str) -> dict[str, str]:
    """What is wrong at places whose name begins so."""
    return {f["what"]: f["wrong"] for f in findings if f["where"].startswith(where) and f["wrong"] is not None}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without any package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


def test_nothing_is_missing_where_workers_have_this_python() -> None:
    code, findings = doctor(python=sys.executable)
    assert (code, [f for f in findings if f["wrong"]]) == (0, [])
    assert {f["where"] for f in findings} == {"driver", f"worker here ({sys.executable})"}


def test_a_worker_with_another_python_is_told_and_how_to_mend_it(bare: str) -> None:
    """A virtualenv that is not activated: Spark starts the python3 of the PATH, and finds no data source there."""
    code, findings = doctor(python=None, PATH=f"{Path(bare).parent}:{os.environ['PATH']}")
    here = wrong(findings, "worker here (python3)")
    assert (code, here["holdfast"], here["pyarrow"]) == (1, "holdfast is missing", "pyarrow is missing")
    assert wrong(findings, "driver") == {}
    assert {f["cure"] for f in findings if f["wrong"]} == {f"export PYSPARK_PYTHON={sys.executable}"}


def test_a_python_that_does_not_start_is_told(tmp_path: Path) -> None:
    code, findings = doctor(python=str(tmp_path / "none"))
    assert (code, wrong(findings, "worker here")) == (1, {"Python": f"{tmp_path / 'none'} is not on the PATH"})


def test_executors_say_what_they_lack(bare: str, tmp_path: Path, cluster: Cluster) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with StandaloneSpark(tmp_path / "spark", workers=2) as spark:
        asked = ["--master", spark.master, "--bootstrap-server", cluster.bootstrap, "--path", str(shared)]
        code, findings = doctor(*asked, python=sys.executable)
        assert (code, [f for f in findings if f["wrong"]]) == (0, []), findings
        executors = {f["where"] for f in findings if f["where"].startswith("executor ")}
        assert len(executors) == 2, "one of each worker"
        for executor in executors:
            found = {f["what"]: f["found"] for f in findings if f["where"] == executor}
            assert found["shared path"] == "shared"
            assert [state for what, state in found.items() if what.startswith("broker ")] == ["reached"] * 3

        code, findings = doctor("--master", spark.master, python=bare)
        lacking = {f["where"] for f in findings if f["where"].startswith("executor ") and f["what"] == "holdfast"}
        assert (code, len(lacking)) == (1, 2)
        assert {wrong(findings, executor)["holdfast"] for executor in lacking} == {"holdfast is missing"}
    assert list(shared.iterdir()) == []


def test_a_master_that_is_not_there_is_told_at_once() -> None:
    code, findings = doctor("--master", "spark://127.0.0.1:1", python=sys.executable)
    assert (code, wrong(findings, "spark://")) == (1, {"session": "127.0.0.1:1: [Errno 111] Connection refused"})
    code, findings = doctor("--master", "spark://127.0.0.1", python=sys.executable)
    assert "expected spark://HOST:PORT" in wrong(findings, "spark://")["session"]
