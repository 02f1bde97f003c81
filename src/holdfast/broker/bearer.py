"""OAUTHBEARER on a listener: what its keys and its line of JAAS mean, and who checks a token there.

``bearer_mechanisms(config, "CLIENTS")`` makes a login for each call. Owns the words of what cannot be; never says a
value that may be a secret.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from holdfast.broker.bearer_keys import KeyPlace, KeySource, check_allowed
from holdfast.client.sasl_options import MODULES, parse_jaas
from holdfast.client.security import tls_context
from holdfast.client.security_options import SecurityOptions
from holdfast.model.config import BrokerConfig
from holdfast.model.config_bearer_keys import (
    ALLOWED_URLS,
    AUDIENCE,
    BACKOFF,
    BACKOFF_MAX,
    HANDLER,
    ISSUER,
    KEYS_URL,
    REFRESH,
    SIGNED_HANDLERS,
    SKEW,
    SUBJECT,
    UNSECURED_HANDLER,
)
from holdfast.model.config_sasl_keys import JAAS
from holdfast.model.config_value import Value
from holdfast.model.errors import ConfigError
from holdfast.security.bearer_token import ClaimRules, TokenHolder, parse_token, refuse_signed
from holdfast.security.oauth import OAUTHBEARER, BearerLogin, TokenJudge
from holdfast.security.sasl_mechanism import SaslMechanism

MOST_SKEW_S: Final = 86_400
LONGEST_PAUSE_MS: Final = 366 * 86_400_000
_OPTION: Final = "unsecuredValidator"
_OPTIONS: Final = tuple(
    f"{_OPTION}{name}" for name in ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
)
_OF_THE_BROKER: Final = ("unsecuredLogin", "clientId", "clientSecret", "scope", "extension_")
"""How options begin by which this broker logs in at others: they are in the same line, and nothing to a listener."""
_TRUST: Final = tuple(f"ssl.truststore.{each}" for each in ("type", "location", "certificates"))
"""Whom to trust who answers with keys, as in Kafka."""
log = logging.getLogger(__name__)


class BearerMechanisms:
    """Logins by tokens on one listener; each call makes one. ``close`` when the broker stops."""

    def __init__(self, judge: TokenJudge, source: KeySource | None) -> None:
        self._judge = judge
        self._source = source

    def __call__(self) -> SaslMechanism:
        return BearerLogin(self._judge)

    @property
    def is_signed(self) -> bool:
        """Whether somebody must have signed a token."""
        return self._source is not None

    def close(self) -> None:
        """Keys are not read again."""
        if self._source is not None:
            self._source.close()


def bearer_mechanisms(config: BrokerConfig, listener_name: str) -> BearerMechanisms:
    """What makes the logins by OAUTHBEARER of one listener. ConfigError names the key and what was expected."""
    keys = _Keys(config, listener_name)
    options = _options(keys)
    url, handler = keys.text(KEYS_URL), keys.text(HANDLER)
    if handler not in (None, *SIGNED_HANDLERS, UNSECURED_HANDLER):
        raise ConfigError(
            f"Invalid value {handler!r} of {keys.prefix}{HANDLER}: expected {SIGNED_HANDLERS[0]}, or "
            f"{UNSECURED_HANDLER} for tests; no other class of Java stands for anything here"
        )
    if handler in SIGNED_HANDLERS:
        if url is None:
            raise ConfigError(
                f"{KEYS_URL} is missing: expected where the keys are by which tokens are signed, beside {HANDLER}"
            )
        return _signed(keys, options, url)
    if url is not None:
        raise ConfigError(
            f"{KEYS_URL} has no effect without {keys.prefix}{HANDLER}={SIGNED_HANDLERS[0]}: tokens that nobody has "
            "signed would be taken"
        )
    return _unsecured(keys, options)


class _Keys:
    """The values of one listener: for this mechanism, else for the listener, else for all."""

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self.prefix = f"listener.name.{listener_name.lower()}.{OAUTHBEARER.lower()}."
        self.listener = listener_name
        self._values = config.on_listener(listener_name).values

    def is_own(self, key: str) -> bool:
        """Whether it has a value for this mechanism alone."""
        return f"{OAUTHBEARER.lower()}.{key}" in self._values

    def value(self, key: str) -> Value | None:
        return self._values.get(f"{OAUTHBEARER.lower()}.{key}", self._values[key])

    def text(self, key: str) -> str | None:
        """None where it is not given or empty."""
        value = self.value(key)
        return value.strip() or None if isinstance(value, str) else None

    def number(self, key: str, low: int, high: int) -> int:
        value = self.value(key)
        assert isinstance(value, int), key
        if not low <= value <= high:
            raise ConfigError(f"Invalid value {value} of {key}: expected {low} to {high}")
        return value

    def list(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        return tuple(each for each in value if each) if isinstance(value, tuple) else ()


def _options(keys: _Keys) -> Mapping[str, str]:
    """Those of the line of JAAS that are about who comes; without a line there are none."""
    line, is_own = keys.text(JAAS), keys.is_own(JAAS)
    if line is None:
        return {}
    name = f"{keys.prefix}{JAAS}" if is_own else JAAS
    try:
        module, options = parse_jaas(line)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    if module != MODULES[OAUTHBEARER]:
        if not is_own:
            return {}  # one line for the listener, which is of another of its mechanisms
        raise ConfigError(f"{name}: expected {MODULES[OAUTHBEARER]} for {OAUTHBEARER}")
    ours = {each: text for each, text in options.items() if not each.startswith(_OF_THE_BROKER)}
    for each in ours:
        if each not in (*_OPTIONS, *_TRUST):
            raise ConfigError(f"{name}: the login module's option {re.sub('[^A-Za-z_.]', '?', each)[:60]} is not known")
    return ours


def _signed(keys: _Keys, options: Mapping[str, str], url: str) -> BearerMechanisms:
    for each in options:
        if each in _OPTIONS:
            raise ConfigError(
                f"{keys.prefix}{JAAS}: {each} is for tokens that nobody has signed; {HANDLER} asks for others"
            )
    check_allowed(url, keys.list(ALLOWED_URLS))
    rules = ClaimRules(
        is_signed=True,
        principal_claim=keys.text(SUBJECT) or "sub",
        audience=frozenset(keys.list(AUDIENCE)),
        issuer=keys.text(ISSUER),
        skew_ms=1000 * keys.number(SKEW, 0, MOST_SKEW_S),
    )
    trusted = {each: text for each, text in options.items() if each in _TRUST}
    source = KeySource(
        KeyPlace(
            url=url,
            refresh_s=keys.number(REFRESH, 1, LONGEST_PAUSE_MS) / 1000,
            backoff_s=keys.number(BACKOFF, 1, LONGEST_PAUSE_MS) / 1000,
            backoff_max_s=keys.number(BACKOFF_MAX, 1, LONGEST_PAUSE_MS) / 1000,
            trusts=tls_context(SecurityOptions(trusted, f"{keys.prefix}{JAAS}: ").tls()) if trusted else None,
        )
    )

    def judge(text: str, now_ms: int) -> TokenHolder:
        token = parse_token(text)
        source.check(token)
        return rules.holder(token.claims, now_ms)

    return BearerMechanisms(judge, source)


def _unsecured(keys: _Keys, options: Mapping[str, str]) -> BearerMechanisms:
    for each in options:
        if each in _TRUST:
            raise ConfigError(f"{keys.prefix}{JAAS}: {each} is for {KEYS_URL}, which is not set")
    skew = options.get(f"{_OPTION}AllowableClockSkewMs", "").strip() or "0"
    if not re.fullmatch("[0-9]{1,9}", skew):
        raise ConfigError(f"{keys.prefix}{JAAS}: {_OPTION}AllowableClockSkewMs: expected a whole number of 0 or more")
    rules = ClaimRules(
        is_signed=False,
        principal_claim=options.get(f"{_OPTION}PrincipalClaimName", "").strip() or "sub",
        scope_claim=options.get(f"{_OPTION}ScopeClaimName", "").strip() or "scope",
        required_scope=tuple(options.get(f"{_OPTION}RequiredScope", "").split()),
        skew_ms=int(skew),
    )
    log.warning(
        "listener %s takes tokens that nobody has signed: whoever reaches it can be everybody. For tests alone; %s%s "
        "asks for signed ones",
        keys.listener,
        keys.prefix,
        HANDLER,
    )

    def judge(text: str, now_ms: int) -> TokenHolder:
        token = parse_token(text)
        refuse_signed(token)
        return rules.holder(token.claims, now_ms)

    return BearerMechanisms(judge, None)
