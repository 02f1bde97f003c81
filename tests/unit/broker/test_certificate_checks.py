"""Which certificates a listener may show: at the start of a broker, and in the place of those in force."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast.broker.certificate_checks import check_believed, check_shown, refusal
from holdfast.broker.tls_listener import InForce, loaded
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol
from tests.certificates import DAY, Authority, Certificate, expired, foreign

OLD, NEW = Authority.make("Old"), Authority.make("New")
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
NOW_S = NOW.timestamp()


class Files:
    """Of one listener that asks for certificates."""

    def __init__(self, folder: Path) -> None:
        self.keystore, self.truststore = folder / "keys.pem", folder / "trust.pem"

    def loaded(self, shown: Certificate, *trusted: Authority, asks: str = "required") -> InForce:
        shown.write(self.keystore)
        self.truststore.write_text("".join(authority.pem for authority in trusted))
        given = {
            "ssl.keystore.location": str(self.keystore), "ssl.truststore.location": str(self.truststore),
            "listener.name.internal.ssl.client.auth": asks,
        }  # fmt: skip
        return loaded(given, "INTERNAL", SecurityProtocol.SSL)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_what_is_out_of_its_time_is_shown_by_no_listener(files: Files) -> None:
    good = files.loaded(OLD.issue("broker"), OLD)
    check_shown(good, None, NOW_S)
    ends, begins = NOW - DAY, NOW + DAY
    where = f"Invalid value '{files.keystore}' of ssl.keystore.location for listener INTERNAL: the certificate of"
    between = OLD.below("between", ends=ends).issue("broker")
    for made, who, when in (
        (OLD.issue("broker", ends=ends), "CN=broker, which CN=Old", f"ended at {ends:%Y-%m-%dT%H:%M:%SZ}"),
        (
            OLD.issue("broker", begins=begins),
            "CN=broker, which CN=Old",
            f"is valid from {begins:%Y-%m-%dT%H:%M:%SZ} on",
        ),
        (between, "CN=between, which CN=Old", f"ended at {ends:%Y-%m-%dT%H:%M:%SZ}"),
    ):
        shown = files.loaded(made, OLD)
        for before in (None, good):
            with pytest.raises(ConfigError) as caught:
                check_shown(shown, before, NOW_S)
            assert caught.value.message == f"{where} {who} has signed, {when}: expected one that is valid now"
        check_shown(shown, shown, NOW_S)  # what ends while it is in force keeps no other key from being set
    check_shown(files.loaded(OLD.issue("broker", ends=NOW), OLD), None, NOW_S)


def test_brokers_believe_what_they_show_each_other(files: Files) -> None:
    good = files.loaded(OLD.issue("broker"), OLD)
    check_believed(good, None)
    check_believed(files.loaded(OLD.below("between").issue("broker"), OLD), good)
    shown = files.loaded(foreign("broker"), OLD)
    for before in (None, good):
        with pytest.raises(ConfigError) as caught:
            check_believed(shown, before)
        assert caught.value.message == (
            f"Invalid value '{files.keystore}' of ssl.keystore.location for listener INTERNAL: brokers use it among "
            f"each other, and ssl.truststore.location='{files.truststore}' does not vouch for the certificate of "
            "CN=broker, which CN=Another authority has signed (as a server: unable to get local issuer certificate): "
            "expected one that it vouches for"
        )


def test_both_ways_of_a_connection_are_tried(files: Files) -> None:
    """A certificate for servers alone is enough where nobody is asked for one."""
    server = OLD.issue("broker", purposes=(ExtendedKeyUsageOID.SERVER_AUTH,))
    silent = files.loaded(server, OLD, asks="none")
    check_believed(silent, None)
    assert refusal(files.loaded(server, OLD).tls) == "as a client: unsuitable certificate purpose"
    with pytest.raises(
        ConfigError, match=r"'required' of listener\.name\.internal\.ssl\.client\.auth for listener INTER"
    ):
        check_believed(files.loaded(server, OLD), silent)
    client = OLD.issue("broker", purposes=(ExtendedKeyUsageOID.CLIENT_AUTH,))
    assert refusal(files.loaded(client, OLD).tls) == "as a server: unsuitable certificate purpose"


def test_an_authority_is_changed_in_three_steps(files: Files) -> None:
    """Both are trusted, then the certificate is another one, then the old authority goes; a broker may be started at
    each of them. One step less is refused: others would not be believed any more."""
    one, other = OLD.issue("broker"), NEW.issue("broker")
    steps = [
        files.loaded(one, OLD),
        files.loaded(one, OLD, NEW),
        files.loaded(other, OLD, NEW),
        files.loaded(other, NEW),
    ]
    for before, after in zip([None, *steps], steps, strict=False):
        check_believed(after, before)
        check_believed(after, None)
    check_believed(files.loaded(other, NEW, OLD), steps[0])
    key = f"Invalid value '{files.truststore}' of ssl.truststore.location for listener INTERNAL: brokers use it among "
    for after in (files.loaded(one, NEW), files.loaded(other, NEW)):
        with pytest.raises(ConfigError) as caught:
            check_believed(after, steps[0])
        assert caught.value.message.startswith(f"{key}each other, and it does not vouch for what is in force")
        assert "CN=broker, which CN=Old has signed" in caught.value.message


def test_what_has_ended_is_replaced_whichever_file_comes_first(files: Files) -> None:
    made = expired(OLD)
    over = files.loaded(made, OLD)
    assert refusal(over.tls) == "as a server: certificate has expired"
    check_believed(files.loaded(made, OLD, NEW), over)
    check_believed(files.loaded(made, NEW), over)
    check_believed(files.loaded(NEW.issue("broker"), NEW), over)
    check_believed(files.loaded(OLD.issue("broker"), OLD), over)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location for listener INTERNAL: brokers use it"):
        check_believed(files.loaded(NEW.issue("broker"), OLD), over)
