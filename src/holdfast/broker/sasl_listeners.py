"""What each listener with SASL takes, by the broker's own file: mechanisms, users of PLAIN, how long a login counts.

A user of SCRAM is the cluster's, and known once the controller has told of it. The one that brokers log in with on the
listener of brokers must be known before: it stands in the file of every broker, and is taken from there. What others
are asked to prove for it does not tell it from a user who is not known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from holdfast.broker.bearer import bearer_mechanisms
from holdfast.client.sasl_options import MODULES, parse_jaas
from holdfast.model.config import BrokerConfig
from holdfast.model.config_sasl_keys import ENABLED_MECHANISMS, JAAS, REAUTH, SASL_MECHANISMS
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol
from holdfast.security import plain
from holdfast.security.sasl_mechanism import SaslMechanism
from holdfast.security.sasl_server import SaslListener
from holdfast.security.scram_credential import MECHANISMS, ScramCredential, ScramMechanism
from holdfast.security.scram_forms import CredentialForms
from holdfast.security.scram_server import ScramServer, credential_of_nobody

WITH_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
NONCE_BYTES: Final = 18
_USER: Final = "user_"


class ScramUsers(Protocol):
    """What the cluster knows of its users."""

    @property
    def secret(self) -> bytes:
        """Of the cluster, for who is not known (security/scram_server.py)."""
        ...

    @property
    def forms(self) -> Mapping[ScramMechanism, CredentialForms]:
        """What can be seen of their credentials (security/scram_forms.py)."""
        ...

    def scram(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None: ...


class Randomness(Protocol):
    """Where nonces and salts come from."""

    def __call__(self, size: int, /) -> bytes: ...


def sasl_listeners(config: BrokerConfig, users: ScramUsers, random_bytes: Randomness) -> dict[str, SaslListener]:
    """By the names of those that have SASL. ConfigError names the key, the value and what was expected."""
    return {
        endpoint.name: _listener(config, endpoint.name, users, random_bytes)
        for endpoint in config.listening.bound
        if endpoint.security_protocol in WITH_SASL
    }


def _listener(config: BrokerConfig, name: str, users: ScramUsers, random_bytes: Randomness) -> SaslListener:
    own = config.on_listener(name)
    enabled = tuple(each.strip().upper() for each in own.list(ENABLED_MECHANISMS))
    for mechanism in enabled or ("",):
        if mechanism not in SASL_MECHANISMS:
            raise ConfigError(
                f"Invalid value {mechanism!r} of {ENABLED_MECHANISMS} for listener {name}: expected one or more of "
                f"{', '.join(SASL_MECHANISMS)}; no other is spoken"
            )
    return SaslListener(
        mechanisms={each: _mechanism(own, name, each, users, random_bytes) for each in enabled},
        lifetimes_ms={each: _lifetime_ms(own, each) for each in enabled},
    )


def _mechanism(
    own: BrokerConfig, listener: str, mechanism: str, users: ScramUsers, random_bytes: Randomness
) -> Callable[[], SaslMechanism]:
    options = jaas_options(own, listener, mechanism)
    if mechanism == plain.NAME:
        passwords = {key.removeprefix(_USER): text.encode() for key, text in options.items() if key.startswith(_USER)}
        if not passwords:
            raise ConfigError(
                f"listener.name.{listener.lower()}.plain.{JAAS} names no user of listener {listener}: expected "
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="password";'
            )
        return partial(plain.PlainServer, passwords)
    if mechanism in MECHANISMS:
        scram = MECHANISMS[mechanism]
        find, forms = partial(_credential, users, scram, _OwnUser(scram, options, users)), users.forms[scram]
        return lambda: ScramServer(scram, find, users.secret, random_bytes(NONCE_BYTES).hex(), forms)
    return bearer_mechanisms(own, listener)


class _OwnUser:
    """Whom brokers log in as, if anybody. Its salt and iterations are those that somebody unknown of this name would
    have: the same at every broker and after every restart, and no sign that there is such a user."""

    def __init__(self, mechanism: ScramMechanism, options: Mapping[str, str], users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._users = users
        self.name, self._password = options.get("username"), options.get("password", "").encode()
        self._made: ScramCredential | None = None
        """Made again when its salt changes, as with the first user, and where users of other tools come or go."""

    def credential(self) -> ScramCredential:
        users, mechanism = self._users, self._mechanism
        nobody = credential_of_nobody(users.secret, mechanism, self.name or "", users.forms[mechanism])
        salt, iterations = nobody.salt, nobody.iterations
        made = self._made
        if made is None or made.salt != salt or made.iterations != iterations:
            salted = hashlib.pbkdf2_hmac(mechanism.hash_name, self._password, salt, iterations)
            self._made = made = ScramCredential.of_salted(mechanism, salt, salted, iterations)
        return made

    def is_one(self, user: str) -> bool:
        return bool(self._password) and user == self.name


def _credential(users: ScramUsers, mechanism: ScramMechanism, own: _OwnUser, user: str) -> ScramCredential | None:
    return own.credential() if own.is_one(user) else users.scram(user, mechanism)


def jaas_options(own: BrokerConfig, listener: str, mechanism: str) -> dict[str, str]:
    """Those of the login module of a mechanism, empty without a line for it; ``own``: as the listener goes by it.
    ConfigError never shows a part of the line, which holds secrets."""
    key = f"{mechanism.lower()}.{JAAS}"
    text = own.values.get(key)
    if text is None:
        key, text = JAAS, own.values.get(JAAS)
        if text is None:
            return {}
    try:
        module, options = parse_jaas(str(text))
    except ConfigError as error:
        raise ConfigError(f"listener.name.{listener.lower()}.{key}: {error}") from None
    if module == MODULES[mechanism]:
        return options
    if key != JAAS:
        raise ConfigError(f"listener.name.{listener.lower()}.{key}: expected the login module {MODULES[mechanism]}")
    return {}  # one line for the listener, which is of another of its mechanisms


def _lifetime_ms(own: BrokerConfig, mechanism: str) -> int:
    value = own.values.get(f"{mechanism.lower()}.{REAUTH}", own.values[REAUTH])
    assert isinstance(value, int)
    return max(0, value)
