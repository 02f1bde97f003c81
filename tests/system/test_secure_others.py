"""Kafka's Java client and franz-go with the files that `up --secure` wrote, with a password and with a certificate."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.peers import kafka

from holdfast.testing import Cluster

pytestmark = [
    pytest.mark.system,
    pytest.mark.embedded_store("--secure refuses another one"),
    pytest.mark.long("clients from Maven and of Go; tests/system/test_secure.py has those of Python in every run"),
]
HERE = Path(__file__).parent
VALUES = ["one", "two", "three"]
LIMIT_S = 120


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=2, log_dirs=1, secure=True) as cluster:
        yield cluster


@pytest.mark.parametrize("file", ["client", "client-mtls"])
def test_SEC_12_javas_client_takes_the_files_as_they_are(secured: Cluster, file: str, topic: str) -> None:
    secured.create_topic(topic)
    jars = kafka.fetch(artifact="kafka-tools")
    path = str(secured.data_dir / f"{file}.properties")
    bootstrap = secured.properties(file)["bootstrap.servers"]

    def tool(name: str, *arguments: str, text: str = "") -> str:
        java = ["java", "-Xmx128M", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = [*java, "-cp", f"{jars}/*", f"org.apache.kafka.tools.{name}", "--bootstrap-server", bootstrap]
        command += ["--topic", topic, "--command-config", path, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tool("ConsoleProducer", text="".join(f"{value}\n" for value in VALUES))
    read = tool("consumer.ConsoleConsumer", "--from-beginning", "--max-messages", "3", "--group", topic)
    assert read.split() == VALUES


@pytest.fixture(scope="module")
def franz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("franz") / "franz"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "secured" / "franz", check=True)
    return program


@pytest.mark.parametrize("file", ["librdkafka", "librdkafka-mtls"])
def test_SEC_13_franz_go_gets_in_with_what_the_files_say(secured: Cluster, franz: Path, file: str, topic: str) -> None:
    secured.create_topic(topic)
    command = [str(franz), str(secured.data_dir / f"{file}.properties"), topic, *VALUES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout.split()) == (0, VALUES), done.stderr
