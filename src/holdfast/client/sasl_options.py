"""Kafka's settings ``sasl.*``, and the line of JAAS in ``sasl.jaas.config``, to SaslSettings.

Owns their names, what is refused, and the words of what is wrong: ConfigError names the setting or an option of the
line, and never a value or a part of the line, which holds secrets.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from holdfast.client.oauth import TokenEndpoint, UnsecuredToken
from holdfast.client.sasl import SaslSettings
from holdfast.model.errors import ConfigError

MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
HANDLER: Final = "sasl.login.callback.handler.class"
ALLOWED: Final = "sasl.oauthbearer.allowed.urls"
"""In Kafka a property of the JVM, org.apache.kafka.sasl.oauthbearer.allowed.urls (CVE-2025-27817)."""
SASL_KEYS: Final = (MECHANISM, JAAS, ENDPOINT, ALLOWED, HANDLER)
HANDLER_CLASS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
HANDLER_CLASSES: Final = (HANDLER_CLASS, HANDLER_CLASS.replace(".oauthbearer.", ".oauthbearer.secured."))
MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_OF_THE_JVM: Final = "nothing of the JVM runs on this path"
_NO_KERBEROS: Final = f"GSSAPI is not spoken; expected {', '.join(MODULES)}"
_KEPT: Final = "a token is kept until four fifths of its time are over"
_AT_BROKERS: Final = "brokers check tokens"
REFUSED_SASL: Final = {
    "sasl.client.callback.handler.class": _OF_THE_JVM,
    "sasl.login.class": _OF_THE_JVM,
    "sasl.kerberos.kinit.cmd": _NO_KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _NO_KERBEROS,
    "sasl.kerberos.service.name": _NO_KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _NO_KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _NO_KERBEROS,
    "sasl.login.connect.timeout.ms": "a token is waited for 10 s",
    "sasl.login.read.timeout.ms": "a token is waited for 10 s",
    "sasl.login.refresh.buffer.seconds": _KEPT,
    "sasl.login.refresh.min.period.seconds": _KEPT,
    "sasl.login.refresh.window.factor": _KEPT,
    "sasl.login.refresh.window.jitter": _KEPT,
    "sasl.login.retry.backoff.max.ms": "pauses grow from 10 ms to 0.5 s",
    "sasl.login.retry.backoff.ms": "pauses grow from 10 ms to 0.5 s",
    "sasl.oauthbearer.clock.skew.seconds": _AT_BROKERS,
    "sasl.oauthbearer.expected.audience": _AT_BROKERS,
    "sasl.oauthbearer.expected.issuer": _AT_BROKERS,
    "sasl.oauthbearer.header.urlencode": "client id and secret are sent as they are",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _AT_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _AT_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _AT_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.url": _AT_BROKERS,
    "sasl.oauthbearer.scope.claim.name": _AT_BROKERS,
    "sasl.oauthbearer.sub.claim.name": _AT_BROKERS,
}
_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_FORM: Final = 'expected org.apache.kafka...LoginModule required name="value" ... ;'
_UNSECURED: Final = "unsecuredLogin"


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """(the login module's class without its package, its options)."""
    words: list[tuple[bool, str]] = []  # whether it is = or ;, and the word
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ConfigError(f"a quote at character {at + 1} does not end; {_FORM}")
        at = found.end()
        quoted = found[1] if found[1] is not None else found[2]
        if quoted is not None:
            words.append((False, re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted, flags=re.DOTALL)))
        else:
            words.append((found[4] is not None, found[3] or found[4]))
    if len(words) < 3 or words[0][0] or words[1][1].lower() not in _FLAGS or words[-1] != (True, ";"):
        raise ConfigError(_FORM)
    options: dict[str, str] = {}
    rest = words[2:-1]
    for place in range(0, len(rest), 3):
        three = rest[place : place + 3]
        if [sign for sign, _ in three] != [False, True, False] or three[1][1] != "=":
            raise ConfigError(f"option {place // 3 + 1} of the login module has another form; {_FORM}")
        options[three[0][1]] = three[2][1]
    return words[0][1].rpartition(".")[2], options


def parse_sasl(given: Mapping[str, str], prefix: str, *, of_others: tuple[str, ...] = ()) -> SaslSettings:
    """Of settings whose names have been checked. ``of_others``: how options of the line begin that are somebody
    else's, as a broker's line is for those who come as well."""
    mechanism = (given.get(MECHANISM) or "").strip().upper()
    if mechanism not in MODULES:
        value = f"{prefix}{MECHANISM}={mechanism!r}" if mechanism else f"{prefix}{MECHANISM} is missing"
        raise ConfigError(f"option {value}: expected {' or '.join(MODULES)}")
    if not (given.get(JAAS) or "").strip():
        raise ConfigError(f"option {prefix}{JAAS} is missing: {_FORM}")
    handler = (given.get(HANDLER) or "").strip()
    if handler and (mechanism != "OAUTHBEARER" or handler not in HANDLER_CLASSES or not given.get(ENDPOINT)):
        raise ConfigError(
            f"option {prefix}{HANDLER}={handler!r}: expected {HANDLER_CLASS}, beside {MECHANISM}=OAUTHBEARER and "
            f"{ENDPOINT}; no other class of Java stands for anything here"
        )
    endpoint = (given.get(ENDPOINT) or "").strip()
    if mechanism == "OAUTHBEARER" and endpoint:
        _check_endpoint(endpoint, given.get(ALLOWED) or "", prefix)
    try:
        module, options = parse_jaas(given[JAAS])
        if module != MODULES[mechanism]:
            raise ConfigError(f"expected {MODULES[mechanism]} for {MECHANISM}={mechanism}")
        if of_others:
            options = {name: text for name, text in options.items() if not name.startswith(of_others)}
        if mechanism == "OAUTHBEARER":
            return _bearer(options, endpoint)
        user, password = (_needed(options, name) for name in ("username", "password"))
        _no_more(options)
    except ConfigError as error:
        raise ConfigError(f"option {prefix}{JAAS}: {error}") from None
    if endpoint:
        raise ConfigError(f"option {prefix}{ENDPOINT}: {MECHANISM} is {mechanism}, expected OAUTHBEARER with it")
    return SaslSettings(mechanism=mechanism, user=user, password=password)


def _of_all(prefix: str) -> str:
    """A broker has one list for all of its listeners."""
    return "" if prefix.startswith("listener.name.") else prefix


def _check_endpoint(endpoint: str, allowed: str, prefix: str) -> None:
    """Whoever gives settings to a process could have it ask any address that it reaches. The address is not shown, as
    it may have a secret in it."""
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"option {prefix}{ENDPOINT} is expected to be http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH"
        )
    if endpoint not in [each.strip() for each in allowed.split(",")]:
        raise ConfigError(
            f"option {prefix}{ENDPOINT} is not allowed: expected the same address in {_of_all(prefix)}{ALLOWED}, "
            f"which has {'others' if allowed.strip() else 'none'}"
        )


def _bearer(options: dict[str, str], endpoint: str) -> SaslSettings:
    mechanism = "OAUTHBEARER"
    if not endpoint:
        extensions = _extensions(options, f"{_UNSECURED}Extension_")
        return SaslSettings(mechanism=mechanism, token=_unsecured(options), extensions=extensions)
    extensions = _extensions(options, "extension_")
    token = TokenEndpoint(
        url=endpoint,
        client_id=_needed(options, "clientId"),
        client_secret=_needed(options, "clientSecret"),
        scope=options.pop("scope", None),
    )
    _no_more(options)
    return SaslSettings(mechanism=mechanism, token=token, extensions=extensions)


def _extensions(options: dict[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    found = {name.removeprefix(prefix): options.pop(name) for name in list(options) if name.startswith(prefix)}
    for name, value in found.items():
        if not re.fullmatch("[A-Za-z]+", name) or name == "auth" or not re.fullmatch(r"[\x20-\x7e\t\r\n]*", value):
            raise ConfigError(f"{prefix}{name}: expected a name of letters, not auth, and a value of ASCII")
    return tuple(sorted(found.items()))


def _unsecured(options: dict[str, str]) -> UnsecuredToken:
    lifetime = options.pop(f"{_UNSECURED}LifetimeSeconds", "3600")
    if not re.fullmatch("[1-9][0-9]{0,8}", lifetime):
        raise ConfigError(f"{_UNSECURED}LifetimeSeconds: expected a whole number of 1 or more")
    principal = options.pop(f"{_UNSECURED}PrincipalClaimName", "sub")
    claims: dict[str, str | float | tuple[str, ...]] = {}
    for name in list(options):
        kind, _, claim = name.removeprefix(_UNSECURED).partition("_")
        if not name.startswith(_UNSECURED) or kind not in ("StringClaim", "NumberClaim", "ListClaim") or not claim:
            continue
        value = options.pop(name)
        if kind == "StringClaim":
            claims[claim] = value
        elif kind == "ListClaim":  # its first character separates
            claims[claim] = tuple(value[1:].split(value[0])) if value else ()
        else:
            try:
                claims[claim] = float(value)
            except ValueError:
                raise ConfigError(f"{name}: expected a number") from None
    _no_more(options)
    if not isinstance(claims.get(principal), str):
        raise ConfigError(f"{_UNSECURED}StringClaim_{principal} is missing; or {ENDPOINT}, for a token of an endpoint")
    return UnsecuredToken(claims=tuple(sorted(claims.items())), lifetime_s=int(lifetime))


def _needed(options: dict[str, str], name: str) -> str:
    value = options.pop(name, "")
    if not value:
        raise ConfigError(f'{name}="..." is missing')
    if "\0" in value:
        raise ConfigError(f"{name} has a character NUL")
    return value


def _no_more(options: dict[str, str]) -> None:
    for name in options:
        raise ConfigError(f"the login module's option {re.sub('[^A-Za-z_]', '?', name)[:60]} is not supported")
