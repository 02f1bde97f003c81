"""A virtualenv that is not activated: its workers are its own Python, or somebody is told what to set."""

from __future__ import annotations

import os
import site
import subprocess
import venv
from pathlib import Path

import pytest

from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

READ = """
import sys
{first}
from pyspark.sql import SparkSession
from holdfast.java.runtime import use_java
use_java()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
{then}
reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
print("values", [row.value.decode() for row in reader.schema("value binary").load().collect()])
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a virtualenv whose packages are those of this one."""
    folder = tmp_path_factory.mktemp("unactivated")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    lines = [f"import site; site.addsitedir({each!r})" for each in site.getsitepackages()]
    (packages / "those-of-the-tests.pth").write_text("\n".join(lines) + "\n")
    return folder / "bin" / "python"


def run(python: Path, path: Path, *arguments: str, first: str = "", then: str = "") -> subprocess.CompletedProcess[str]:
    """As ``path/to/venv/bin/python script.py`` of a shell that knows nothing of it: python3 is a bare one's."""
    venv.create(path / "bare", with_pip=False, symlinks=True)
    script = path / "script.py"
    script.write_text(READ.format(first=first, then=then))
    unset = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ["PATH"] = f"{path / 'bare' / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    command = [str(python), str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300, check=False)


def test_a_script_that_imports_the_source_first_has_workers_of_its_own(
    python: Path, cluster: Cluster, produced: object, topic: str, tmp_path: Path
) -> None:
    assert callable(produced)
    produced(topic, [b"one", b"two"])
    done = run(python, tmp_path, cluster.bootstrap, topic, first="import pyspark_holdfast")
    assert "values ['one', 'two']" in done.stdout, done.stderr[-3000:]


def test_a_script_that_imports_it_later_is_told_what_to_set(python: Path, tmp_path: Path) -> None:
    done = run(python, tmp_path, "127.0.0.1:1", "none", then="import pyspark_holdfast")
    bare = tmp_path / "bare" / "bin" / "python3"
    assert f"Spark starts its workers with python3 ({bare}), and this is {python}" in done.stderr
    assert f"or set PYSPARK_PYTHON={python}" in done.stderr
    assert done.returncode != 0 and "DATA_SOURCE_NOT_FOUND" in done.stderr
