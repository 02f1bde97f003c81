"""A standalone Spark cluster over hosts: a master here, and a worker on each host that sees next to nothing of this
machine.

A host has its own network and its own /tmp, where its worker has its scratch folders; of this machine's /tmp one folder
is in common, at the same path. Sources of this repository are hidden from it, so that an executor has Holdfast only if
it was shipped.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

import holdfast
from holdfast.java.runtime import use_java
from holdfast.testing import Hosts, wait_for
from holdfast.testing.ports import free_port

START_S = 180
HOME = Path(pyspark.__file__).parent
SOURCES = Path(holdfast.__file__).parents[1]


@contextlib.contextmanager
def spark_on(hosts: Hosts, logs: Path, shared: Path, image: Path | None = None) -> Iterator[str]:
    """The master's URL. ``shared``: the folder of this machine that hosts see; ``image``: a virtualenv of which each
    host has a copy of its own."""
    use_java()
    port = free_port()
    environ = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}
    daemon = str(HOME / "bin" / "spark-class")
    command = [daemon, "org.apache.spark.deploy.master.Master", "--host", hosts.address, "--port", str(port)]
    with (logs / "master.log").open("wb") as log:
        master = subprocess.Popen(
            [*command, "--webui-port", "0"], stdout=log, stderr=log, start_new_session=True, env=environ
        )
    try:
        _wait(logs / "master.log", "New state: ALIVE", master)
        for host in hosts:
            hide = ("" if image is None else with_image(image)) + (
                f"mkdir -p /srv/common && mount --bind {shlex.quote(str(shared))} /srv/common && "
                "mount -t tmpfs -o size=2g tmpfs /tmp && "
                f"mkdir -p {shlex.quote(str(shared))} && mount --bind /srv/common {shlex.quote(str(shared))} && "
                f"mount -t tmpfs -o ro,size=4k tmpfs {shlex.quote(str(SOURCES))} && cd /tmp && exec "
            )
            worker = [daemon, "org.apache.spark.deploy.worker.Worker", "--host", host.address, "--webui-port", "0"]
            worker += ["--cores", "1", "--memory", "1g", "--work-dir", "/tmp/work", f"spark://{hosts.address}:{port}"]
            own = {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": "/tmp/scratch"}
            own |= {"SPARK_LOCAL_IP": host.address}
            path = logs / f"worker-{host.number}.log"
            with path.open("wb") as log:
                process = host.run(["sh", "-c", hide + shlex.join(worker)], output=log, environment=own)
            _wait(path, "Successfully registered with master", process)
        yield f"spark://{hosts.address}:{port}"
    finally:
        os.killpg(master.pid, signal.SIGKILL)
        master.wait()


def with_image(image: Path) -> str:
    """Shell that gives a mount namespace of its own what the image of docs/spark.md has."""
    return f"mount -t tmpfs tmpfs /opt && cp -a {shlex.quote(str(image))} /opt/holdfast && "


def _wait(log: Path, ready: str, process: subprocess.Popen[bytes]) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        return ready in log.read_text(errors="replace")

    wait_for(is_ready, f"{ready!r} in {log}", timeout_s=START_S)
