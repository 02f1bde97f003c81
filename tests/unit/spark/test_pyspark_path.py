"""Python processes of Spark import PySpark from its directory, where they have bytecode of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest

from holdfast.spark.pyspark_path import without_zips

SITE = Path(pyspark.__file__).parents[1]
LIB = SITE / "pyspark/python/lib"
ZIPS = sorted(map(str, LIB.glob("*.zip")))


def test_zips_of_what_is_installed_are_left_out() -> None:
    assert len(ZIPS) == 2
    assert without_zips(["", *ZIPS, "/elsewhere", str(SITE)]) == ["", "/elsewhere", str(SITE)]


@pytest.mark.parametrize(
    "others",
    [
        ["/opt/spark/python/lib/pyspark.zip", str(SITE)],
        [ZIPS[0], "/elsewhere"],
        [str(LIB / "py4j-0.0.1-src.zip"), str(SITE)],
        [str(SITE / "more.zip"), str(SITE)],
    ],
)
def test_other_zips_stay(others: list[str]) -> None:
    assert without_zips(others) == others


def started(path: list[str]) -> list[str]:
    """Where a Python that has this path imports PySpark and Py4J from."""
    script = "import py4j, pyspark; print(py4j.__file__); print(pyspark.__file__)"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_a_python_that_spark_starts_has_the_installed_pyspark(tmp_path: Path) -> None:
    assert started(ZIPS) == [py4j.__file__, pyspark.__file__]
    copies = [shutil.copy(each, tmp_path) for each in ZIPS]
    assert all(found.startswith(str(tmp_path)) for found in started(copies))
