"""--command-config: what of a Kafka client's file counts, and what is said where a listener wants more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.command_config import CommandConfig, read_command_config
from holdfast.cli.connecting import cluster_options
from holdfast.cli.producer_properties import ProducerProperties, producer_properties, settled
from holdfast.lake.opening import make_table
from holdfast.lake.position import End, Position, TopicEnds
from holdfast.model.errors import ConfigError
from tests.commands import command_at
from tests.secure_front import FakeSasl, SecureFront
from tests.unit.cli.test_operator_rows import every_command
from tests.unit.client.test_outgoing import CERTIFICATES, tls_server
from tests.unit.spark.log_cluster import LogCluster

SECRET = "hush"
TRUST = f"ssl.truststore.type=PEM\nssl.truststore.location={CERTIFICATES / 'authority.pem'}\n"
LOGIN = (
    "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
    "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="alice" password="{SECRET}";\n' + TRUST
)
OF_OTHERS = "group.id=g\nkey.serializer=org.apache.kafka.common.serialization.StringSerializer\n"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of a user counts."""
    for name in ("HOLDFAST_CONFIG", "HOLDFAST_PROFILE", "HOLDFAST_BOOTSTRAP_SERVER", "HOLDFAST_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LogCluster]:
    with LogCluster(1) as running:
        running.topic("t")[0].append(3)
        yield running


@pytest.fixture
def front(cluster: LogCluster) -> Iterator[SecureFront]:
    sasl = FakeSasl(("SCRAM-SHA-512",), {"alice": SECRET})
    targets = [("127.0.0.1", each.port) for each in cluster.brokers.values()]
    with SecureFront(targets, tls=tls_server(), sasl=sasl) as running:
        yield running


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return str(path)


def holdfast(*args: str, **environment: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(entry.main, args, prog_name="holdfast", env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert SECRET not in done.stderr
    return done.exit_code, done.stdout, done.stderr


def test_the_file_says_how_and_where(front: SecureFront, tmp_path: Path) -> None:
    plain = file(tmp_path, LOGIN + OF_OTHERS)
    code, out, err = holdfast("topics", "list", "-b", front.bootstrap, "--command-config", plain)
    assert (code, out, err) == (0, "t\n", "")
    code, out, err = holdfast("topics", "list", "-b", front.bootstrap, HOLDFAST_COMMAND_CONFIG=plain)
    assert (code, out, err) == (0, "t\n", "")
    whole = file(tmp_path, LOGIN + f"bootstrap.servers={front.bootstrap}\n")
    assert holdfast("topics", "list", "--command-config", whole) == (0, "t\n", "")
    profiles = tmp_path / "config/holdfast/config.toml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(f'[default]\ncommand-config = "{whole}"\n')
    assert holdfast("topics", "list") == (0, "t\n", "")


@pytest.mark.parametrize("option", ["--command-config", "--consumer.config"])
def test_records_are_read_by_it(front: SecureFront, tmp_path: Path, option: str) -> None:
    code, out, err = holdfast(
        "consume", "t", "--from-beginning", "--exit-eof", "-b", front.bootstrap, option, file(tmp_path, LOGIN)
    )
    assert code == 0 and len(out.splitlines()) == 3, err


def test_the_doctor_of_spark_tries_the_brokers_of_the_file(front: SecureFront, tmp_path: Path) -> None:
    where = f"bootstrap.servers={front.bootstrap}\n"
    for settings, said in (
        (LOGIN.replace(SECRET, "a wrong one"), "the login is refused"),
        ("", "if it speaks TLS, expected security.protocol=SSL or SASL_SSL for this listener, in the file of"),
    ):
        code, out, err = holdfast("spark", "doctor", "--command-config", file(tmp_path, settings + where))
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err


def test_the_lag_of_a_table_is_asked_of_the_brokers_of_the_file(front: SecureFront, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    made = make_table(place, "parquet", pa.schema([("a", pa.int64())]))
    ends = TopicEnds(topic_id=None, partitions={0: End(offset=1)})
    made.put((), Position(sequence=1, topics={"t": ends}))
    whole = file(tmp_path, LOGIN + f"bootstrap.servers={front.bootstrap}\n")
    code, out, err = holdfast("lake", "status", "--to", place, "--json", "--command-config", whole)
    assert (code, err) == (0, "")
    assert json.loads(out)["topics"]["t"]["partitions"]["0"]["lag"] == 2
    nothing = file(tmp_path, f"bootstrap.servers={front.bootstrap}\n")
    code, out, err = holdfast("lake", "status", "--to", place, "--command-config", nothing)
    assert (code, out) == (1, "")
    assert "if it speaks TLS, expected security.protocol=SSL or SASL_SSL" in err


def test_an_audit_says_at_once_what_a_listener_wants(front: SecureFront) -> None:
    code, out, err = holdfast("audit", "--quick", "-b", front.bootstrap)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "if it speaks TLS, expected security.protocol=SSL or SASL_SSL" in err
    assert front.accepted == 1  # it was tried once


def test_what_a_listener_wants_is_named_once(front: SecureFront, cluster: LogCluster, tmp_path: Path) -> None:
    code, out, err = holdfast("topics", "list", "-b", front.bootstrap)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.endswith(
        "if it speaks TLS, expected security.protocol=SSL or SASL_SSL for this listener, in --command-config FILE\n"
    )
    assert ": too many connections (max.connections.per.ip, max.connections), or another protocol; if" in err
    code, out, err = holdfast("consume", "t", "-b", front.bootstrap)
    assert code == 1 and "for this listener, in --command-config FILE\n" in err
    targets = [("127.0.0.1", each.port) for each in cluster.brokers.values()]
    with SecureFront(targets, sasl=FakeSasl(("PLAIN",))) as asking:
        code, out, err = holdfast("topics", "list", "-b", asking.bootstrap)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "if it asks for a login, expected security.protocol=SASL_PLAINTEXT or SASL_SSL" in err
    only_tls = file(tmp_path, "security.protocol=SSL\n" + TRUST)
    code, out, err = holdfast("topics", "list", "-b", front.bootstrap, "--command-config", only_tls)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "if it asks for a login" in err and "in the file of --command-config\n" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file or directory: expected a properties file of a Kafka client"),
        ("security.protocol=SECURE", "option security.protocol='SECURE': expected PLAINTEXT or SSL"),
        ("ssl.keystore.type=PEM", "option ssl.keystore.type: security.protocol is PLAINTEXT; expected SSL or SASL_SSL"),
        ("security.protocol=SASL_SSL", "option sasl.mechanism is missing"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere", "'/nowhere': cannot be read here: No such file"),
        ("bootstrap.servers=:x", "expected HOST:PORT"),
        (LOGIN.replace("ScramLoginModule", "Other"), "option sasl.jaas.config: expected ScramLoginModule"),
    ],
)
def test_a_file_that_cannot_be_meant_is_wrong_usage(tmp_path: Path, text: str | None, words: str) -> None:
    path = str(tmp_path / "none") if text is None else file(tmp_path, text)
    code, out, err = holdfast("topics", "list", "--command-config", path)
    assert (code, out) == (2, "")
    assert f"holdfast topics: --command-config {path}: " in err and words in err
    with pytest.raises(ConfigError, match=path):
        read_command_config(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no text"):
        read_command_config(str(path))


def test_secrets_are_not_shown_and_spark_gets_the_same() -> None:
    config = CommandConfig({"sasl.jaas.config": SECRET, "ssl.truststore.type": "PEM", "group.id": "g"})
    assert SECRET not in repr(config)
    assert config.spark_options() == {"kafka.sasl.jaas.config": SECRET, "kafka.ssl.truststore.type": "PEM"}


def test_every_command_that_asks_brokers_has_it() -> None:
    for path in every_command(entry.main):
        options = {each for param in command_at(path)[0].params for each in param.opts}
        if "--bootstrap-server" in options:
            assert "--command-config" in options, path


# -- a producer's settings -------------------------------------------------------------------------------------------


def produced(tmp_path: Path, *args: str, text: str) -> ProducerProperties:
    found: list[ProducerProperties] = []

    @click.command()
    @cluster_options("--producer.config")
    @click.option("--acks", default="all")
    @producer_properties("acks", "batch.size", "linger.ms")
    @click.pass_context
    def command(ctx: click.Context, bootstrap: str, acks: str, properties: ProducerProperties) -> None:
        found.append(settled(ctx, properties))

    done = CliRunner().invoke(command, [*args, "--producer.config", file(tmp_path, text)])
    if done.exit_code:
        raise ValueError(done.output)
    return found[0]


def test_a_producers_file_counts_where_neither_option_nor_property_does(tmp_path: Path) -> None:
    text = "acks=1\nbatch.size=1000\nlinger.ms=20\nretries=3\n"
    assert produced(tmp_path, text=text) == ProducerProperties(acks=1, batch_bytes=1000, linger_s=0.02)
    assert produced(tmp_path, "--producer-property", "batch.size=500", "--acks", "0", text=text) == ProducerProperties(
        batch_bytes=500, linger_s=0.02
    )
    with pytest.raises(ValueError, match="--command-config acks=many: expected one of all"):
        produced(tmp_path, text="acks=many\n")
