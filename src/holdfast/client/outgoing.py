"""How a broker speaks to other brokers: what its own properties say of the connections that it opens.

A broker registers with each of its listeners the protocol that is spoken there. Whoever connects goes by that, and
takes certificates and users from its own file, by Kafka's rules: what is said for a listener of that name
(``listener.name.<name>.ssl.*``), else what is said for all (``ssl.*``); the certificate of the keystore is shown, the
truststore says who is believed. So brokers that have been given a secure listener and brokers that have not yet reach
each other while a cluster changes from one to the other.

Nothing that the controller has to tell is needed for it. Values are kept until ``renew``; they hold secrets. What one
of the broker's own listeners shows is shown to listeners of its name, too: a file that the listener does not take is
shown to nobody.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.client.connection import BrokerConnection
from holdfast.client.listener_tls import CLIENT_AUTH, RULES, ListenerTlsOptions
from holdfast.client.sasl import SaslSettings
from holdfast.client.sasl_options import ALLOWED, ENDPOINT, HANDLER, JAAS, MECHANISM, MODULES, parse_jaas, parse_sasl
from holdfast.client.security import (
    FROM_BROKER,
    FROM_CONTROLLER,
    SecuritySettings,
    TlsSettings,
    pem_blocks,
    tls_context,
)
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import Endpoint, SecurityProtocol
from holdfast.security.der import DerError
from holdfast.security.dn import subject
from holdfast.security.principal import ANONYMOUS, Principal
from holdfast.security.principal_rules import PrincipalRules, RuleError

INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_CLIENT: Final = "controller-"
"""How the client ids of a controller's connections begin (broker/closer_process.py)."""
_OF_A_LISTENER: Final = ("unsecuredValidator", "ssl.")
"""How options of a line for OAUTHBEARER begin that say what tokens are taken there (broker/bearer.py)."""
_WITH_TLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_WITH_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """Whom others take this broker for, as far as it knows that itself, and which of its keys makes it so."""

    principal: Principal | None
    by: str

    def __str__(self) -> str:
        return f"{self.principal or 'a principal that only they know'} by {self.by}"


class Outgoing:
    """See the module's docstring. ``given``: the broker's properties as text."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = given or {}
        self._in_force: Mapping[str, TlsSettings] = {}
        self._known: dict[tuple[str, SecurityProtocol], SecuritySettings] = {}

    @classmethod
    def of(cls, config: BrokerConfig) -> "Outgoing":
        """Of a broker's properties file."""
        return cls({**config.unknown, **config.static})

    def renew(self, given: Mapping[str, str] | None = None, in_force: Mapping[str, TlsSettings] | None = None) -> None:
        """Files of certificates may be others: they are read again for the next connection. ``given``: so may keys;
        ``in_force``: by listener of this broker, what is not to be read for it."""
        if given is not None:
            self._given = given
        if in_force is not None:
            self._in_force = in_force
        self._known.clear()

    def settings(self, to: Endpoint) -> SecuritySettings:
        """How that listener is spoken to; ConfigError names the key that is missing or wrong."""
        protocol = to.security_protocol
        found = self._known.get((to.name, protocol))
        if found is None:
            found = self._known[to.name, protocol] = SecuritySettings(
                protocol=protocol,
                tls=self._tls(to.name) if protocol in _WITH_TLS else None,
                sasl=self._sasl(to.name) if protocol in _WITH_SASL else None,
            )
        return found

    def check(self, *own: Endpoint) -> None:
        """ConfigError for what is wrong with the keys, if all brokers have listeners like these."""
        for endpoint in own:
            self.settings(endpoint)

    def connection(
        self, to: Endpoint, client_id: str, *, on_close: Callable[[Exception | None], None] | None = None
    ) -> BrokerConnection:
        """A connection that is still to be opened, and logs in then where that is asked for. ConfigError as above."""
        return self._made(to, client_id, on_close, logs_in=True)

    def probe(self, to: Endpoint, client_id: str) -> BrokerConnection:
        """The same without a login: for ApiVersions, which every broker answers who lives."""
        return self._made(to, client_id, None, logs_in=False)

    def _made(
        self, to: Endpoint, client_id: str, on_close: Callable[[Exception | None], None] | None, *, logs_in: bool
    ) -> BrokerConnection:
        if to.security_protocol is SecurityProtocol.PLAINTEXT:
            return BrokerConnection(*to.address, client_id, on_close=on_close)
        settings = self.settings(to)
        from_whom = FROM_CONTROLLER if client_id.startswith(CONTROLLER_CLIENT) else FROM_BROKER
        return BrokerConnection(
            *to.address,
            client_id,
            on_close=on_close,
            ssl=None if settings.tls is None else tls_context(settings.tls, from_whom),
            tls_names=None if settings.tls is None else settings.tls.names,
            sasl=settings.sasl if logs_in else None,
        )

    def introduction(self, to: Endpoint) -> Introduction:
        """Who this broker is for others at a listener like this one, if their keys are as its own. ConfigError."""
        protocol = to.security_protocol
        if protocol in _WITH_SASL:
            sasl = self.settings(to).sasl
            assert sasl is not None, "the protocol has a login"
            user = None if sasl.user is None else Principal.user(sasl.user)
            return Introduction(principal=user, by=_jaas_key(to.name, sasl.mechanism))
        if protocol is SecurityProtocol.PLAINTEXT:
            return Introduction(principal=ANONYMOUS, by=f"listener {to.name}, which is PLAINTEXT: nobody logs in there")
        options = ListenerTlsOptions(self._given, to.name)
        tls = self.settings(to).tls
        assert tls is not None, "the protocol has TLS"
        if tls.certificates is None or options.asks(protocol) == "none":
            none = "it asks nobody for a certificate"
            return Introduction(principal=ANONYMOUS, by=f"{options.full(CLIENT_AUTH)} of listener {to.name}: {none}")
        try:
            name = subject(ssl.PEM_cert_to_DER_cert(pem_blocks(tls.certificates)[0][1]))
            principal = Principal.user(PrincipalRules(options.text(RULES) or "DEFAULT").name(name))
        except (DerError, RuleError, ValueError) as error:
            return Introduction(principal=None, by=f"{tls.names.keystore} and {options.full(RULES)}: {error}")
        rules = "" if options.text(RULES) is None else f" and {options.full(RULES)}"
        return Introduction(principal=principal, by=f"{tls.names.keystore}{rules}")

    # -- the keys ------------------------------------------------------------------------------------------------

    def _text(self, listener: str, key: str) -> str | None:
        """What is said for listeners of this name, or for all; None: nothing."""
        for name in (f"listener.name.{listener.lower()}.{key}", key):
            if name in self._given:
                return self._given[name]
        return None

    def _tls(self, listener: str) -> TlsSettings:
        in_force = self._in_force.get(listener)
        return ListenerTlsOptions(self._given, listener).tls() if in_force is None else in_force

    def _sasl(self, listener: str) -> SaslSettings:
        mechanism = (self._given.get(INTER_BROKER_MECHANISM) or "").strip().upper()
        if mechanism not in MODULES:
            value = f"{INTER_BROKER_MECHANISM}={mechanism}" if mechanism else f"{INTER_BROKER_MECHANISM} is missing"
            raise ConfigError(
                f"{value}: expected {' or '.join(MODULES)}: brokers speak to each other by listener {listener}, "
                "which asks for a login"
            )
        key = _jaas_key(listener, mechanism)
        line = (self._given.get(key) or "").strip()
        if not line:
            raise ConfigError(
                f"{key} is missing: expected the user by whose name this broker logs in at others: "
                f'org.apache.kafka.common.security...{MODULES[mechanism]} required username="..." password="...";'
            )
        if mechanism == "OAUTHBEARER":
            more = {name: text for name in (ENDPOINT, HANDLER) if (text := self._text(listener, name)) is not None}
            if ALLOWED in self._given:
                more[ALLOWED] = self._given[ALLOWED]
            prefix = f"listener.name.{listener.lower()}."
            return parse_sasl({MECHANISM: mechanism, JAAS: line, **more}, prefix, of_others=_OF_A_LISTENER)
        return _user(mechanism, line, key)


def _jaas_key(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"


def _user(mechanism: str, line: str, key: str) -> SaslSettings:
    """The line is that of the listener, too, and may name the users that it takes (``user_NAME``)."""
    try:
        module, options = parse_jaas(line)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    if module != MODULES[mechanism]:
        raise ConfigError(f"{key}: expected {MODULES[mechanism]} for {INTER_BROKER_MECHANISM}={mechanism}")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ConfigError(f'{key}: {missing[0]}="..." is missing: by it this broker logs in at others')
    return SaslSettings(mechanism=mechanism, user=options["username"], password=options["password"])
