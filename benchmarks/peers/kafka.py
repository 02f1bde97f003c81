"""Apache Kafka as a peer: fetches a release with Maven and runs it under the contract of ``holdfast up``.

The contract (all that the benchmark knows about a broker): one line ``ready: bootstrap.servers=...`` on
standard output when every node takes writes, ``DATA_DIR/pids.json``, SIGTERM stops everything cleanly,
SIGUSR1 starts again what does not run. Each node is broker and controller at once, with Kafka's own heap
and collector flags: the fair peer of a process that does everything. With ``--store zookeeper`` the release is the
last one that can keep its metadata there, with one ZooKeeper server (of the same jars) beside the nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

VERSION = "4.3.0"
VERSION_WITH_ZOOKEEPER = "3.9.1"
CLUSTER_ID = "aG9sZGZhc3QtYmVuY2gtMQ"
HEAP_FLAGS = ["-Xms1G", "-Xmx1G"]
JVM_FLAGS = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
STOP_LIMIT_S = 15.0

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast.bench</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def cache_dir() -> Path:
    """Where fetched peers are kept between runs."""
    root = os.environ.get("HOLDFAST_BENCH_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "holdfast-bench"
    )
    return Path(root)


def missing_tool() -> str | None:
    """The name of what is not installed here, or None when the peer can run."""
    return next((tool for tool in ("java", "mvn") if shutil.which(tool) is None), None)


def fetch(version: str = VERSION, say: Callable[[str], None] = print, *, artifact: str = "kafka_2.13") -> Path:
    """The directory with Kafka's jars, downloaded once; ``artifact`` kafka-tools has those of its commands too."""
    jars = cache_dir() / f"{artifact.removesuffix('_2.13')}-{version}"
    if (jars / "complete").exists():
        return jars
    say(f"fetching Apache Kafka {version} with Maven into {jars}")
    jars.mkdir(parents=True, exist_ok=True)
    (jars / "pom.xml").write_text(POM.format(version=version, artifact=artifact))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    done = subprocess.run(command, cwd=jars, capture_output=True, text=True, check=False)
    if done.returncode or not list(jars.glob(f"{artifact}-{version}.jar")):
        raise RuntimeError(f"Maven could not fetch Kafka {version}: {(done.stdout + done.stderr)[-800:]}")
    (jars / "complete").touch()
    return jars


class Peer:
    """N nodes as child processes: combined ones of KRaft, or brokers with a ZooKeeper server beside them."""

    def __init__(
        self,
        *,
        jars: Path,
        data_dir: Path,
        brokers: int,
        log_dirs: int,
        port: int,
        settings: list[str],
        on_zookeeper: bool = False,
    ) -> None:
        self.jars, self.data, self.port, self.settings = jars, data_dir.resolve(), port, settings
        self.on_zookeeper = on_zookeeper
        self.zookeeper: subprocess.Popen[bytes] | None = None
        self.ids = list(range(1, brokers + 1))
        self.log_dirs = log_dirs
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[int, int] = {}

    def address(self, node: int) -> str:
        return f"127.0.0.1:{self.port + node - 1}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node) for node in self.ids)

    def _java(self, main: str, *arguments: str, heap: list[str]) -> list[str]:
        return ["java", *heap, *JVM_FLAGS, "-cp", f"{self.jars}/*", main, *arguments]

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with open(self.data / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data, start_new_session=True
            )

    def _write_properties(self, node: int) -> Path:
        home = self.data / f"broker-{node}"
        dirs = [home / f"log-dir-{k}" for k in range(1, self.log_dirs + 1)]
        for folder in (*dirs, home / "meta"):
            folder.mkdir(parents=True, exist_ok=True)
        copies = min(3, len(self.ids))
        values = {
            **(self._zookeeper_keys(node) if self.on_zookeeper else self._quorum_keys(node)),
            "log.dirs": ",".join(map(str, dirs)),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(2, copies),
        }
        lines = [f"{key}={value}" for key, value in values.items()] + self.settings
        path = self.data / f"broker-{node}.properties"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _quorum_keys(self, node: int) -> dict[str, object]:
        quorum = 500 + self.port
        return {
            "process.roles": "broker,controller",
            "node.id": node,
            "listeners": f"PLAINTEXT://{self.address(node)},CONTROLLER://127.0.0.1:{quorum + node}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{quorum + n}" for n in self.ids),
            "metadata.log.dir": self.data / f"broker-{node}" / "meta",
        }

    def _zookeeper_keys(self, node: int) -> dict[str, object]:
        listener = f"PLAINTEXT://{self.address(node)}"
        return {"broker.id": node, "listeners": listener, "zookeeper.connect": f"127.0.0.1:{500 + self.port}"}

    def _start_zookeeper(self) -> None:
        settings = {
            "dataDir": self.data / "zookeeper",
            "clientPort": 500 + self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
        }
        path = self.data / "zookeeper.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.zookeeper = self._spawn("zookeeper", self._java(main, str(path), heap=["-Xms512M", "-Xmx512M"]))

    def format(self) -> None:
        """What an administrator does once: writes meta.properties into every directory."""
        started = []
        for node in self.ids:
            path = self._write_properties(node)
            if not (self.on_zookeeper or (self.data / f"broker-{node}/meta/meta.properties").exists()):
                arguments = ("format", "-t", CLUSTER_ID, "-c", str(path))
                command = self._java("kafka.tools.StorageTool", *arguments, heap=["-Xmx256M"])
                started.append(self._spawn(f"format-{node}", command))
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"formatting failed; see {self.data}/format-*.log")

    def start_missing(self) -> None:
        if self.on_zookeeper and self.zookeeper is None:
            self._start_zookeeper()
        for node in self.ids:
            process = self.running.get(node)
            if process is None or process.poll() is not None:
                path = str(self.data / f"broker-{node}.properties")
                log = self.data / f"broker-{node}.log"
                self._log_starts[node] = log.stat().st_size if log.exists() else 0
                command = self._java("kafka.Kafka", path, heap=HEAP_FLAGS)
                self.running[node] = self._spawn(f"broker-{node}", command)
        partial = self.data / "pids.json.new"
        partial.write_text(json.dumps({str(node): process.pid for node, process in self.running.items()}))
        partial.replace(self.data / "pids.json")

    def wait_ready(self) -> None:
        """Until every node's port answers and its log says that it has started."""
        for node in self.ids:
            started = f"[KafkaServer id={node}] started".encode() if self.on_zookeeper else b"Kafka Server started"
            log = self.data / f"broker-{node}.log"
            while started not in log.read_bytes()[self._log_starts[node] :]:
                if self.running[node].poll() is not None:
                    raise RuntimeError(f"node {node} ended while starting; see {log}")
                time.sleep(0.02)
            with socket.create_connection(("127.0.0.1", self.port + node - 1), timeout=5):
                pass
        print(f"ready: bootstrap.servers={self.bootstrap}", flush=True)

    def stop(self) -> None:
        """Asks every node to go; the last ones have no quorum left to say good-bye to and are killed."""
        alive = [process for process in self.running.values() if process.poll() is None]
        for process in alive:
            process.terminate()
        deadline = time.monotonic() + STOP_LIMIT_S
        for process in alive:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper.wait()


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--log-dirs", type=int, default=2)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--store", choices=("kraft", "zookeeper"), default="kraft")
    parser.add_argument("--fetch-only", action="store_true", help="download the jars and end")
    args = parser.parse_args()
    on_zookeeper = args.store == "zookeeper"
    jars = fetch(VERSION_WITH_ZOOKEEPER if on_zookeeper else VERSION, say=lambda line: print(line, file=sys.stderr))
    if args.fetch_only:
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    args.data_dir.mkdir(parents=True, exist_ok=True)
    peer = Peer(
        jars=jars,
        data_dir=args.data_dir,
        brokers=args.brokers,
        log_dirs=args.log_dirs,
        port=args.port,
        settings=args.set,
        on_zookeeper=on_zookeeper,
    )

    def leave(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGUSR1, lambda *_: peer.start_missing())
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        while True:
            signal.pause()
    finally:
        peer.stop()


if __name__ == "__main__":
    main()
