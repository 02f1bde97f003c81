"""The wheel: built from the checkout, installed into an empty environment, used from somewhere else.

Works without a network: the build uses the hatchling that is installed, and the new environment sees the packages
that Holdfast depends on through a path file. An editable install is not seen that way, so what is imported is what
the wheel brought.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import confluent_kafka
import pytest

from holdfast.testing import Cluster

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("holdfast-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with nothing but the wheel and sight of our dependencies."""
    home = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(home, with_pip=False)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", home / "bin/python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=home)
    return home / "bin"


def test_the_wheel_carries_types_and_licence_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "holdfast/py.typed" in names
    assert {"holdfast/console/templates/whole.html", "holdfast/console/static/console.css"} <= set(names)
    vendored = "holdfast/console/static/vendored/htmx-4.0.1"
    assert {f"{vendored}.min.js", f"{vendored}.LICENSE"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "pyspark_holdfast/__init__.py" in names or "pyspark_holdfast.py" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"holdfast", "pyspark_holdfast"}


def test_an_installed_wheel_imports_and_helps(installed: Path, tmp_path: Path) -> None:
    place = run(installed / "python", "-c", "import holdfast; print(holdfast.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)
    listed = run(installed / "holdfast", "--help", cwd=tmp_path)
    assert all(command in listed for command in ("up", "broker", "topics", "groups", "demo", "lake", "audit"))


def test_an_installed_wheel_runs_a_broker(installed: Path, tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, up=[str(installed / "holdfast"), "up"]) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        delivered: list[int] = []
        producer.produce("outside", b"hello", on_delivery=lambda error, message: delivered.append(message.offset()))
        assert producer.flush(30) == 0
        assert delivered == [0]
