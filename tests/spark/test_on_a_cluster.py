"""A cluster of two machines that share one folder, with Holdfast shipped as docs/spark.md says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
import pyspark_holdfast
from holdfast.testing import Cluster, Hosts
from tests.spark import cluster_job
from tests.spark.spark_hosts import HOME, spark_on, with_image

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]


def documented(kind: str) -> list[str]:
    """The commands of the section "On a cluster": of ``sh`` or ``dockerfile``."""
    section = (REPOSITORY / "docs/spark.md").read_text().partition("\n## On a cluster\n")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)
    return block.splitlines()


def by_archive(master: str, address: str, job: str, driver: Path) -> list[str]:
    """The driver's command, as documented. The network is spared: what pip would fetch is what these tests have, and
    Holdfast itself is put into the virtualenv, so that it is in the archive and nowhere else on a host."""
    make, install, pack, python, submit = documented("sh")
    assert install == "environment/bin/pip install 'holdfast[spark,lake]'"
    installed = f"{sys.executable} install.py environment"
    return _in_shell(f"{make} --without-pip", installed, pack, python, _submit(submit, master, address, job))


def image_of(folder: Path) -> Path:
    """What the image has in /opt/holdfast, with what pip would fetch taken from these tests."""
    *_, made, _ = documented("dockerfile")
    make, _, install = made.removeprefix("RUN ").partition(" && ")
    assert install == "/opt/holdfast/bin/pip install 'holdfast[spark,lake]'"
    for command in (f"{make} --without-pip".replace("/opt/holdfast", "image"), f"{sys.executable} install.py image"):
        subprocess.run(command, shell=True, cwd=folder, check=True, timeout=120)
    return folder / "image"


def by_image(master: str, address: str, job: str, driver: Path) -> list[str]:
    """The driver's command in a mount namespace of its own with the image, on a cluster whose workers have it."""
    *_, environ = documented("dockerfile")
    (submit,) = [line for line in documented("sh") if line.startswith("spark-submit ")]
    submit = submit.replace("--archives environment.tar.gz#environment ", "")
    given = environ.removeprefix("ENV ").split()
    assert given == ["PYSPARK_PYTHON=/opt/holdfast/bin/python", "PATH=/opt/holdfast/bin:$PATH"]
    script = _in_shell(f"export {' '.join(given)}", _submit(submit, master, address, job))[-1]
    return ["unshare", "--mount", "sh", "-c", with_image(driver / "image") + f"sh -c {shlex.quote(script)}"]


def _submit(line: str, master: str, address: str, job: str) -> str:
    assert "spark://HOST:7077" in line and "=ADDRESS " in line and line.endswith(" job.py")
    return line.replace("spark://HOST:7077", master).replace("ADDRESS", address).replace("job.py", job)


def _in_shell(*lines: str) -> list[str]:
    return ["sh", "-c", "\n".join(("set -e", *lines))]


INSTALL = """
import shutil, sys
from pathlib import Path
(packages,) = Path(sys.argv[1], "lib").glob("python*/site-packages")
for source in {sources!r}:
    shutil.copytree(source, packages / Path(source).name, ignore=shutil.ignore_patterns("__pycache__"))
lines = [f"import site; site.addsitedir({{each!r}})" for each in {others!r}]
(packages / "those-of-the-tests.pth").write_text("\\n".join(lines) + "\\n")
"""


@pytest.mark.timeout(900)
@pytest.mark.long(
    "six JVMs, and an environment that each machine unpacks; every run has the probe of a shared place "
    "(tests/unit/spark/test_shared_path.py) and tasks on two executors (test_executors_say_what_they_lack)"
)
@pytest.mark.parametrize("way", ["archive", "image"])
def test_two_machines_read_write_and_land_like_one_process(spark: Any, tmp_path: Path, topic: str, way: str) -> None:
    shared, alone, driver = (tmp_path / name for name in ("shared", "alone", "driver"))
    for folder in (shared, alone, driver, driver / "elsewhere"):
        folder.mkdir()
    sources = [str(Path(each.__file__).parent) for each in (holdfast, pyspark_holdfast)]
    (driver / "install.py").write_text(INSTALL.format(sources=sources, others=site.getsitepackages()))
    shutil.copy(cluster_job.__file__, driver / "job.py")
    image = image_of(driver) if way == "image" else None
    with Hosts(2, disks=0) as hosts:
        up = [sys.executable, "-m", "holdfast.cli.main", "up", "--host", hosts.address]
        with Cluster(brokers=1, log_dirs=1, up=up) as cluster, spark_on(hosts, tmp_path, shared, image) as master:
            produce(cluster.bootstrap, topic)
            lacking = examined(master, hosts.address, cluster.bootstrap, driver / "elsewhere")
            job = f"job.py {cluster.bootstrap} {topic} {shared} {driver}/elsewhere answer.json"
            unset = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
            environ = {name: value for name, value in os.environ.items() if name not in unset}
            environ |= {"PATH": f"{HOME / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
            command = (by_image if image else by_archive)(master, hosts.address, job, driver)
            done = subprocess.run(
                command, cwd=driver, env=environ, capture_output=True, text=True, timeout=380, check=False
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
            there = json.loads((driver / "answer.json").read_text())
            here = cluster_job.work(spark, cluster.bootstrap, topic, str(alone))
    assert sorted(lacking) == ["host-1", "host-2"], "what is missing is told of each host"
    for host, wrong in lacking.items():
        assert "No module named 'holdfast'" in wrong["holdfast.spark.fetching"], (host, wrong)
        assert "shared path" in wrong and not [what for what in wrong if what.startswith("broker ")], (host, wrong)
    shipped = "/opt/holdfast" if image else str(driver / "environment")
    assert there["driver"].startswith(shipped), "the driver, too, has what was shipped"
    assert there["hosts"] == ["host-1", "host-2"], "tasks ran on both"
    for what in ("read", "written", "landed", "table"):
        assert there[what] == here[what], what
    assert there["landed"] == [4000, 0] and there["table"] == sorted(range(4000))
    assert re.search(r"location '.*/elsewhere/table' is not shared: host host-[12] ", there["refused"]), there[
        "refused"
    ]
    assert list((driver / "elsewhere").rglob("*.parquet")) == []


def examined(master: str, address: str, bootstrap: str, path: Path) -> dict[str, dict[str, str]]:
    """What ``holdfast spark doctor`` finds wrong on each host when nothing was shipped to it."""
    command = [sys.executable, "-m", "holdfast.cli.main", "spark", "doctor", "--json", "--master", master]
    command += ["--bootstrap-server", bootstrap, "--path", str(path)]
    environ = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": address}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, dict[str, str]] = {}
    for finding in map(json.loads, done.stdout.splitlines()):
        kind, _, rest = finding["where"].partition(" ")
        if kind == "executor" and finding["wrong"]:
            found.setdefault(rest.partition(":")[0], {})[finding["what"]] = finding["wrong"]
    return found


def produce(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    names = (topic, f"{topic}-shared", f"{topic}-alone")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 4, 1) for name in names]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for n in range(4000):
        producer.produce(topic, json.dumps({"n": n}).encode(), b"k%d" % n, n % 4)
    assert producer.flush(60) == 0
