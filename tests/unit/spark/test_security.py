"""Reading over TLS: options to a connection, and what each side says when it does not believe the other."""

from __future__ import annotations

import pickle
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.client.errors import AuthenticationError
from holdfast.model.types import TopicPartition
from holdfast.spark.options import OptionError, ReadOptions, parse_read, parse_write
from holdfast.spark.ranges import Leader, Range
from holdfast.spark.reader import read_ranges
from holdfast.spark.topics import Topics
from tests.secure_front import SecureFront
from tests.unit.spark.log_cluster import LogCluster

CERTIFICATES = Path(__file__).parents[2] / "zookeeper/certificates"
AUTHORITY = (CERTIFICATES / "authority.pem").read_text()
CLIENT = (CERTIFICATES / "client.pem").read_text()
LOCKED_KEY = (CERTIFICATES / "client-locked.pem").read_text()
END = 60_000
"""More than one answer of 64 KiB, and than one record of TLS."""
TP = TopicPartition("t", 0)
OFFSETS = StructType([StructField("offset", LongType())])
TRUST = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY}


def part(text: str, label: str) -> str:
    """The blocks of a PEM text that have the label."""
    end = f"-----END {label}-----"
    return "".join(
        f"-----BEGIN {label}-----{each.split(end)[0]}{end}\n" for each in text.split(f"-----BEGIN {label}-----")[1:]
    )


CHAIN, KEY = part(CLIENT, "CERTIFICATE"), part(CLIENT, "PRIVATE KEY")
SHOWN = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": CHAIN, "ssl.keystore.key": KEY}


def tls_server(*, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    if asks:
        context.load_verify_locations(CERTIFICATES / "authority.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def parsed(bootstrap: str, settings: dict[str, str]) -> ReadOptions:
    given = {"bootstrap.servers": bootstrap, "fetch.max.wait.ms": "0", **settings}
    return parse_read({"subscribe": "t"} | {f"kafka.{name}": text for name, text in given.items()}, streaming=True)


def read(front: SecureFront, settings: dict[str, str]) -> list[int]:
    """Plans as a driver does, ships the options as Spark does, reads as a task does."""
    options = parsed(front.bootstrap, settings)
    topics = Topics(options)
    assert topics.latest(topics.partitions())[TP] == END
    ranges = (Range(tp=TP, start=0, end=END, leader=topics.leaders([TP])[TP], topic_id=topics.topic_ids({}).get("t")),)
    shipped = pickle.loads(pickle.dumps(options))
    return [offset for batch in read_ranges(ranges, OFFSETS, shipped) for offset in batch.column("offset").to_pylist()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        log = running.topic("t")[0]
        for _ in range(END // 5000):
            log.append(5000)
        yield running


def before(cluster: LogCluster, **options: Any) -> SecureFront:
    return SecureFront([("127.0.0.1", each.port) for each in cluster.brokers.values()], **options)


@pytest.fixture(scope="module")
def asking(cluster: LogCluster) -> Iterator[SecureFront]:
    """Wants to see a certificate."""
    with before(cluster, tls=tls_server(asks=True)) as running:
        yield running


@pytest.fixture
def silent(cluster: LogCluster) -> Iterator[SecureFront]:
    """Asks for none."""
    with before(cluster, tls=tls_server()) as running:
        yield running


@pytest.mark.parametrize("key", ["plain", "locked", "file", "one line"])
def test_both_sides_show_certificates_and_large_answers_arrive_whole(
    asking: SecureFront, key: str, tmp_path: Path
) -> None:
    settings = TRUST | SHOWN
    if key == "locked":
        settings |= {"ssl.keystore.key": part(LOCKED_KEY, "ENCRYPTED PRIVATE KEY"), "ssl.key.password": "hush"}
    if key == "file":
        for name in ("truststore.certificates", "keystore.certificate.chain", "keystore.key"):
            del settings[f"ssl.{name}"]
        (tmp_path / "trusted.pem").write_text(AUTHORITY)
        settings |= {
            "ssl.truststore.location": str(tmp_path / "trusted.pem"),
            "ssl.keystore.location": str(CERTIFICATES / "client.pem"),
        }
    if key == "one line":
        settings = {name: text.replace("\n", " ") for name, text in settings.items()}
    assert read(asking, settings) == list(range(END))


def test_a_client_without_a_certificate_is_told_at_once_what_the_broker_wants(asking: SecureFront) -> None:
    started_s = time.monotonic()
    words = r"localhost:[0-9]+: it does not take the client's certificate .*ssl.keystore.certificate.chain"
    with pytest.raises(AuthenticationError, match=words):
        Topics(parsed(asking.bootstrap, TRUST)).partitions()
    ranges = (Range(tp=TP, start=0, end=9, leader=Leader("localhost", next(iter(asking.ports.values())), None)),)
    with pytest.raises(AuthenticationError, match=words):
        list(read_ranges(ranges, OFFSETS, parsed(asking.bootstrap, TRUST)))
    assert time.monotonic() - started_s < 20, "nothing of this is tried again, for 30 s and for 120 s"


def test_a_broker_is_believed_by_authority_and_by_name(silent: SecureFront, tmp_path: Path) -> None:
    stranger = TRUST | {"ssl.truststore.certificates": CHAIN}
    with pytest.raises(AuthenticationError, match=r"its certificate is not trusted: .*ssl.truststore.certificates"):
        read(silent, stranger)
    (tmp_path / "stranger.pem").write_text(CHAIN)
    file = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "stranger.pem")}
    with pytest.raises(AuthenticationError, match=r"one that kafka.ssl.truststore.location='.*/stranger.pem' vouches"):
        read(silent, file)
    silent.host = "127.0.0.1"
    with pytest.raises(AuthenticationError, match=r"127.0.0.1.* not trusted: IP address mismatch"):
        read(silent, TRUST)
    assert read(silent, TRUST | {"ssl.endpoint.identification.algorithm": ""}) == list(range(END))


def test_a_certificate_that_is_trusted_itself_needs_no_authority(silent: SecureFront) -> None:
    own = part((CERTIFICATES / "server.pem").read_text(), "CERTIFICATE")
    assert read(silent, TRUST | {"ssl.truststore.certificates": own}) == list(range(END))


def test_versions_of_tls_are_those_that_are_enabled(silent: SecureFront) -> None:
    assert silent.tls is not None
    silent.tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(AuthenticationError, match=r"handshake failed .*ssl.enabled.protocols"):
        read(silent, TRUST | {"ssl.enabled.protocols": "TLSv1.3"})
    assert read(silent, TRUST | {"ssl.enabled.protocols": "TLSv1.2"}) == list(range(END))


SSL = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.truststore.certificates": AUTHORITY}, "ssl.truststore.certificates: security.protocol is PLAINTEXT"),
        ({"security.protocol": "TLS"}, "kafka.security.protocol='TLS': expected PLAINTEXT or SSL or SASL_PLAINTEXT"),
        (SSL | {"ssl.truststore.type": "JKS"}, "kafka.ssl.truststore.type='JKS': expected PEM; keytool"),
        (SSL | {"ssl.keystore.type": "PKCS12"}, "kafka.ssl.keystore.type='PKCS12': expected PEM; keytool"),
        (
            SSL | {"ssl.truststore.location": str(CERTIFICATES / "README.md")},
            "the file is no PEM; expected PEM; keytool",
        ),
        (SSL | {"ssl.truststore.location": "/nowhere"}, "'/nowhere': cannot be read here, where the query is planned"),
        (SSL | {"ssl.truststore.location": "/x", "ssl.truststore.certificates": "x"}, "expected one of the two"),
        (SSL | {"ssl.truststore.password": "x"}, "ssl.truststore.password is not allowed: a store of type PEM"),
        (SSL | {"ssl.truststore.certificates": KEY}, "ssl.truststore.certificates: expected certificates in PEM"),
        (SSL | {"ssl.truststore.certificates": "secret"}, "ssl.truststore.certificates: expected certificates in PEM"),
        (
            SSL | {"ssl.truststore.certificates": AUTHORITY.replace("M", "*")},
            "ssl.truststore.certificates: a PEM block CERTIFICATE is no base64",
        ),
        (
            SSL | {"ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----"},
            "ssl.truststore.certificates: it holds a certificate that cannot be read",
        ),
        (SSL | {"ssl.keystore.key": KEY}, "kafka.ssl.keystore.certificate.chain is missing"),
        (SSL | {"ssl.keystore.certificate.chain": CHAIN}, "kafka.ssl.keystore.key is missing"),
        (SSL | SHOWN | {"ssl.keystore.certificate.chain": KEY}, "expected certificates in PEM, first that of the key"),
        (
            SSL | SHOWN | {"ssl.keystore.key": CHAIN},
            "ssl.keystore.key: expected a key of PKCS #8 in PEM .*once; there are 0",
        ),
        (SSL | {"ssl.keystore.location": str(CERTIFICATES / "authority.pem")}, "a key of PKCS #8"),
        (
            SSL | SHOWN | {"ssl.keystore.certificate.chain": AUTHORITY},
            "ssl.keystore.key: the key is not that of the first",
        ),
        (SSL | SHOWN | {"ssl.keystore.key": LOCKED_KEY}, "kafka.ssl.key.password is missing"),
        (
            SSL | SHOWN | {"ssl.keystore.key": LOCKED_KEY, "ssl.key.password": "wrong"},
            "kafka.ssl.key.password: it does not open",
        ),
        (SSL | SHOWN | {"ssl.key.password": "hush"}, "ssl.key.password: there is no encrypted key"),
        (SSL | {"ssl.endpoint.identification.algorithm": "ldap"}, "'ldap': expected https, or nothing"),
        (SSL | {"ssl.enabled.protocols": "TLSv1.1"}, "'TLSv1.1': expected some of TLSv1.2, TLSv1.3"),
        (SSL | {"ssl.cipher.suites": "x"}, "ssl.cipher.suites is not allowed: OpenSSL of the system chooses"),
        (SSL | {"ssl.keystore.keys": "x"}, "did you mean kafka.ssl.keystore.key"),
        (SSL | {"ssl.zzz": "x"}, "kafka.ssl.zzz is not supported; there are security.protocol"),
    ],
)
def test_what_cannot_be_used_is_named_and_no_secret_with_it(settings: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words) as raised:
        parsed("localhost:1", settings)
    for secret in ("secret", "hush", "wrong", KEY[40:60], LOCKED_KEY[400:420]):
        assert secret not in str(raised.value)


def test_secrets_are_in_no_text_of_the_options() -> None:
    locked = SSL | SHOWN | {"ssl.keystore.key": LOCKED_KEY, "ssl.key.password": "hush"}
    given = {"topic": "t", "kafka.bootstrap.servers": "localhost:1"}
    options = parse_write(given | {f"kafka.{name}": text for name, text in locked.items()})
    assert options.security is not None and options.security.tls is not None
    assert options.security.tls.key_password == "hush"
    for text in (repr(options), str(options), repr(parsed("localhost:1", locked))):
        assert "hush" not in text and "BEGIN" not in text
    assert parsed("localhost:1", {"security.protocol": "plaintext"}).security is None
