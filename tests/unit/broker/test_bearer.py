"""broker/bearer.py and bearer_keys.py: what a listener's keys make of OAUTHBEARER, and where keys are read."""

from __future__ import annotations

import gc
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.bearer import BearerMechanisms, bearer_mechanisms
from holdfast.broker.bearer_keys import KeyPlace, KeySource, check_allowed
from holdfast.model.config import BrokerConfig
from holdfast.model.config_bearer_keys import SIGNED_HANDLERS, UNSECURED_HANDLER
from holdfast.model.errors import ConfigError
from holdfast.security.bearer_token import TokenError, parse_token
from holdfast.security.oauth import BearerLogin
from holdfast.security.principal import Principal
from holdfast.security.sasl_mechanism import Challenge, Proved, SaslStep
from holdfast.security.token_keys import MOST_KEY_SET_BYTES
from tests.key_server import KeyServer, key_server
from tests.token_signing import Signer, unsecured

NOW_S = 1_700_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 1, "exp": NOW_S + 60}
PREFIX = "listener.name.clients.oauthbearer."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SIGNED = {f"{PREFIX}sasl.server.callback.handler.class": SIGNED_HANDLERS[0]}


def config(**given: str) -> BrokerConfig:
    names = {name.replace("__", "."): text for name, text in given.items()}
    return of(names)


def of(given: dict[str, str]) -> BrokerConfig:
    found = BrokerConfig.parse({"node.id": "1", **given})
    assert not found.unknown
    return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come to it within 10 s"
        threading.Event().wait(0.002)


def said(mechanisms: BearerMechanisms, token: str) -> SaslStep:
    return mechanisms().answer(b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01", NOW_S * 1000)


def is_taken(mechanisms: BearerMechanisms, token: str) -> bool:
    return isinstance(said(mechanisms, token), Proved)


@pytest.fixture
def jwks(tmp_path: Path) -> tuple[Signer, Path]:
    """Who signs, and the file with its key."""
    signer = Signer.ec()
    path = tmp_path / "jwks.json"
    path.write_bytes(signer.jwks)
    return signer, path


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[tuple[Signer, KeyServer]]:
    signer = Signer.rsa()
    with key_server(tmp_path, signer.jwks) as server:
        yield signer, server


def signed(url: str, **more: str) -> BrokerConfig:
    keys = {"sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.allowed.urls": f"https://x/y,{url}"}
    return of(SIGNED | keys | {name.replace("__", "."): text for name, text in more.items()})


# -- tokens that nobody has signed -----------------------------------------------------------------------------------


def test_without_keys_tokens_that_nobody_has_signed_are_taken_and_a_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        mechanisms = bearer_mechanisms(config(), "CLIENTS")
    assert "listener CLIENTS takes tokens that nobody has signed" in caplog.text
    assert not mechanisms.is_signed
    assert said(mechanisms, unsecured(CLAIMS)) == Proved(b"", Principal.user("alice"), (NOW_S + 60) * 1000)
    step = said(mechanisms, Signer.ec().token(CLAIMS))
    assert step == Challenge(b'{"status":"invalid_token"}')
    mechanisms.close()


def test_the_options_are_those_of_kafkas_default_handler() -> None:
    line = (
        f'{MODULE} unsecuredValidatorPrincipalClaimName="email" unsecuredValidatorScopeClaimName="scp" '
        'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="3000" '
        'unsecuredLoginStringClaim_sub="broker" extension_x="y";'
    )
    mechanisms = bearer_mechanisms(of({f"{PREFIX}sasl.jaas.config": line}), "CLIENTS")
    good = {"email": "a@b", "exp": NOW_S - 2, "scp": "b a"}
    assert is_taken(mechanisms, unsecured(good))
    for change in ({"exp": NOW_S - 3}, {"scp": "a"}, {"email": None, "sub": "a@b"}):
        assert not is_taken(mechanisms, unsecured({**good, **change}))


def test_the_default_handler_may_be_named() -> None:
    named = of({f"{PREFIX}sasl.server.callback.handler.class": UNSECURED_HANDLER})
    assert is_taken(bearer_mechanisms(named, "CLIENTS"), unsecured(CLAIMS))


def test_a_line_of_the_listener_for_another_mechanism_is_not_for_this_one() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    assert is_taken(bearer_mechanisms(of({"sasl.jaas.config": line}), "CLIENTS"), unsecured(CLAIMS))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "expected org.apache.kafka"),
        ('x.PlainLoginModule required user_a="secret";', "expected OAuthBearerLoginModule"),
        (f'{MODULE} unsecuredValidatorNonsense="secret";', "unsecuredValidatorNonsense is not known"),
        (f'{MODULE} unsecuredValidatorAllowableClockSkewMs="-1";', "whole number of 0 or more"),
        (f'{MODULE} ssl.truststore.location="secret";', "jwks.endpoint.url, which is not set"),
    ],
)
def test_a_line_that_cannot_be_is_refused_without_its_values(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        bearer_mechanisms(of({f"{PREFIX}sasl.jaas.config": line}), "CLIENTS")
    assert f"{PREFIX}sasl.jaas.config" in str(caught.value) and "secret" not in str(caught.value)


# -- keys of a file --------------------------------------------------------------------------------------------------


def test_tokens_that_a_key_of_the_file_has_signed_are_taken(jwks: tuple[Signer, Path]) -> None:
    signer, path = jwks
    mechanisms = bearer_mechanisms(signed(path.as_uri()), "CLIENTS")
    assert mechanisms.is_signed
    assert is_taken(mechanisms, signer.token(CLAIMS))
    assert not is_taken(mechanisms, unsecured(CLAIMS))
    assert not is_taken(mechanisms, Signer.ec().token(CLAIMS))
    assert not is_taken(mechanisms, signer.token({**CLAIMS, "aud": "others"}))
    mechanisms.close()


def test_what_a_token_must_say_is_configured(jwks: tuple[Signer, Path]) -> None:
    signer, path = jwks
    own = {f"{PREFIX}sasl.oauthbearer.sub.claim.name": "upn"}  # that of the mechanism goes before the listener's
    mechanisms = bearer_mechanisms(
        signed(
            path.as_uri(),
            sasl__oauthbearer__expected__audience="kafka,other",
            sasl__oauthbearer__expected__issuer="https://idp",
            sasl__oauthbearer__clock__skew__seconds="5",
            listener__name__clients__sasl__oauthbearer__sub__claim__name="email",
            **own,
        ),
        "CLIENTS",
    )
    good = {"upn": "alice", "iss": "https://idp", "aud": ["kafka"], "iat": NOW_S - 60, "exp": NOW_S - 4}
    assert is_taken(mechanisms, signer.token(good))
    for change in ({"exp": NOW_S - 5}, {"iss": "x"}, {"aud": "x"}, {"upn": None, "email": "alice"}):
        assert not is_taken(mechanisms, signer.token({**good, **change}))
    mechanisms.close()


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(
    jwks: tuple[Signer, Path], caplog: pytest.LogCaptureFixture
) -> None:
    signer, path = jwks
    more = {"sasl__oauthbearer__jwks__endpoint__refresh__ms": "5"}
    mechanisms = bearer_mechanisms(signed(path.as_uri(), **more), "CLIENTS")
    with caplog.at_level(logging.WARNING):
        path.write_bytes(b"{")
        until(lambda: "those that are known stay" in caplog.text)
    assert is_taken(mechanisms, signer.token(CLAIMS))
    other = Signer.ec("k2")
    path.write_bytes(other.jwks)
    until(lambda: is_taken(mechanisms, other.token(CLAIMS)))
    assert not is_taken(mechanisms, signer.token(CLAIMS))
    mechanisms.close()


@pytest.mark.parametrize("content", [None, b"", b'{"keys":[]}', b" " * (MOST_KEY_SET_BYTES + 9)])
def test_a_broker_does_not_start_without_the_keys_of_its_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"endpoint.url: {path}"):
        bearer_mechanisms(signed(path.as_uri()), "CLIENTS")


# -- CVE-2025-27817 --------------------------------------------------------------------------------------------------


def test_CVE_2025_27817_nothing_is_read_that_is_not_allowed(provider: tuple[Signer, KeyServer], tmp_path: Path) -> None:
    """Whoever may set the address shall not read files of the broker's machine, or ask its network."""
    server = provider[1]
    secret = tmp_path / "secret"
    secret.write_text("secret of the machine")
    for url in (server.url, secret.as_uri(), "file:///etc/passwd", f"{server.url}/../x"):
        for allowed in ("", f"{server.url}/", "https://localhost", "file:///"):
            given = SIGNED | {"sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.allowed.urls": allowed}
            with pytest.raises(ConfigError, match=r"is not allowed: expected one of sasl\.oauthbearer\.allowed\.urls"):
                bearer_mechanisms(of(given), "CLIENTS")
    assert server.asked == 0


def test_CVE_2025_27817_an_allowed_address_cannot_send_the_broker_elsewhere(
    provider: tuple[Signer, KeyServer], jwks: tuple[Signer, Path], caplog: pytest.LogCaptureFixture
) -> None:
    _, server = provider
    server.moved = jwks[1].as_uri()
    mechanisms = bearer_mechanisms(signed(server.url, **{f"{PREFIX}sasl.jaas.config": trusting(server)}), "CLIENTS")
    with caplog.at_level(logging.WARNING):
        until(lambda: "HTTP 302" in caplog.text)
    assert not is_taken(mechanisms, jwks[0].token(CLAIMS))
    mechanisms.close()


@pytest.mark.parametrize("url", [
    "http://localhost/jwks", "ftp://h/x", "/etc/passwd", "file:jwks", "file://host/jwks", "https:///jwks",
    "https://user:password@h/jwks", "https://[", "https://h:99999/",
])  # fmt: skip
def test_an_address_of_another_form_is_refused_though_it_is_allowed(url: str) -> None:
    with pytest.raises(ConfigError, match="expected file:///PATH or https://HOST"):
        check_allowed(url, (url,))


# -- keys of an address ----------------------------------------------------------------------------------------------


def trusting(server: KeyServer) -> str:
    return f'{MODULE} ssl.truststore.certificates="{server.trusted}";'


def test_keys_are_asked_for_over_tls_and_logins_do_not_wait(provider: tuple[Signer, KeyServer]) -> None:
    signer, server = provider
    mechanisms = bearer_mechanisms(signed(server.url, **{f"{PREFIX}sasl.jaas.config": trusting(server)}), "CLIENTS")
    until(lambda: is_taken(mechanisms, signer.token(CLAIMS)))
    assert server.asked == 1
    mechanisms.close()


def test_who_cannot_be_trusted_is_not_asked(
    provider: tuple[Signer, KeyServer], caplog: pytest.LogCaptureFixture
) -> None:
    signer, server = provider
    with caplog.at_level(logging.WARNING):
        mechanisms = bearer_mechanisms(signed(server.url), "CLIENTS")
        until(lambda: "no answer" in caplog.text)
    assert "tokens are refused until they can" in caplog.text
    assert said(mechanisms, signer.token(CLAIMS)) == Challenge(b'{"status":"invalid_token"}')
    assert server.asked == 0
    mechanisms.close()


def place(server: KeyServer, **more: float) -> KeyPlace:
    from holdfast.client.security import TlsSettings, tls_context

    return KeyPlace(url=server.url, trusts=tls_context(TlsSettings(trusted=server.trusted)), **more)  # type: ignore[arg-type]


def test_what_is_no_answer_is_asked_for_again_after_growing_pauses(
    provider: tuple[Signer, KeyServer], caplog: pytest.LogCaptureFixture
) -> None:
    signer, server = provider
    server.status = 503
    with caplog.at_level(logging.INFO):
        source = KeySource(place(server, backoff_s=0.001, backoff_max_s=0.01))
        until(lambda: server.asked >= 4)
        server.status, server.body = 200, b"x" * (MOST_KEY_SET_BYTES + 1)
        asked = server.asked
        until(lambda: server.asked >= asked + 2)
        with pytest.raises(TokenError, match="not known yet"):
            source.check(parse_token(signer.token(CLAIMS)))
        server.body = signer.jwks
        until(lambda: source.keys is not None)
    source.check(parse_token(signer.token(CLAIMS)))
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1 and "HTTP 503" in warnings[0].getMessage()  # one a minute
    assert "1 keys" in caplog.text
    source.close()


def test_a_thousand_logins_with_keys_that_are_not_known_ask_once(provider: tuple[Signer, KeyServer]) -> None:
    signer, server = provider
    source = KeySource(place(server, unknown_s=0.2))
    until(lambda: source.keys is not None)
    begun_s = time.monotonic()
    for number in range(1000):
        with pytest.raises(TokenError):
            source.check(parse_token(f"{signer.token(CLAIMS, kid=f'unknown-{number}')}"))
    took_s = time.monotonic() - begun_s
    assert server.asked <= 2 + took_s / 0.2
    server.body = json.dumps({"keys": [signer.jwk, {**signer.jwk, "kid": "k2"}]}).encode()
    until(lambda: source.keys is not None and _checks(source, signer.token(CLAIMS, kid="k2")))
    source.close()


def _checks(source: KeySource, token: str) -> bool:
    try:
        source.check(parse_token(token))
    except TokenError:
        return False
    return True


def test_an_address_that_answers_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.broker.bearer_keys.ASK_S", 0.05)
    with socket.create_server(("localhost", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/"
        source = KeySource(KeyPlace(url=url, backoff_s=0.001))
        with silent.accept()[0], silent.accept()[0]:
            assert source.keys is None
        source.close()


def test_the_thread_ends_with_the_broker_or_when_nobody_has_it_any_more(jwks: tuple[Signer, Path]) -> None:
    def threads() -> int:
        return sum(thread.name == "token-keys" for thread in threading.enumerate())

    gc.collect()
    until(lambda: threads() == 0)
    mechanisms = bearer_mechanisms(signed(jwks[1].as_uri()), "CLIENTS")
    assert threads() == 1
    mechanisms.close()
    until(lambda: threads() == 0)
    other = bearer_mechanisms(signed(jwks[1].as_uri()), "CLIENTS")
    assert threads() == 1 and isinstance(other(), BearerLogin)
    del other
    gc.collect()
    until(lambda: threads() == 0)


# -- keys that contradict each other ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (SIGNED, r"sasl\.oauthbearer\.jwks\.endpoint\.url is missing"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///x"}, "tokens that nobody has signed would be taken"),
        (
            SIGNED
            | {
                "sasl.oauthbearer.jwks.endpoint.url": "file:///x",
                "sasl.oauthbearer.allowed.urls": "file:///x",
                f"{PREFIX}sasl.jaas.config": f'{MODULE} unsecuredValidatorRequiredScope="a";',
            },
            "unsecuredValidatorRequiredScope is for tokens that nobody has signed",
        ),
    ],
)
def test_keys_that_would_have_no_effect_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        bearer_mechanisms(of(given), "CLIENTS")


def test_no_other_class_of_java_stands_for_anything() -> None:
    with pytest.raises(ConfigError, match="no other class of Java"):
        bearer_mechanisms(of({f"{PREFIX}sasl.server.callback.handler.class": "com.example.Handler"}), "CLIENTS")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("clock.skew.seconds", "-1", "expected 0 to 86400"),
        ("clock.skew.seconds", "86401", "expected 0 to 86400"),
        ("jwks.endpoint.refresh.ms", "0", "expected 1 to"),
        ("jwks.endpoint.retry.backoff.ms", "0", "expected 1 to"),
        ("jwks.endpoint.retry.backoff.max.ms", str(2**63 - 1), "expected 1 to"),
    ],
)
def test_a_number_out_of_its_range_is_refused(jwks: tuple[Signer, Path], key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        bearer_mechanisms(signed(jwks[1].as_uri(), **{f"sasl.oauthbearer.{key}": value}), "CLIENTS")


def test_the_form_of_another_mechanism_is_not_known() -> None:
    name = "listener.name.clients.plain.sasl.oauthbearer.jwks.endpoint.url"
    assert BrokerConfig.parse({"node.id": "1", name: "file:///x"}).unknown == {name: "file:///x"}
