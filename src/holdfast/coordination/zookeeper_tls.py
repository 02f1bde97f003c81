"""The files that a client of an ensemble speaks TLS with, read before it connects: then it is known if one is wrong.

ConfigError names the key, the file, and what was expected. Never asks for a password at a terminal.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from holdfast.coordination.zookeeper_settings import Tls
from holdfast.model.errors import ConfigError

KEYSTORE: Final = "zookeeper.ssl.keystore.location"
PASSWORD: Final = "zookeeper.ssl.keystore.password"
TRUSTSTORE: Final = "zookeeper.ssl.truststore.location"
_CERTIFICATE: Final = re.compile(r"^-----BEGIN (?:TRUSTED )?CERTIFICATE-----", re.MULTILINE)
_KEY: Final = re.compile(r"^-----BEGIN (?:\w+ )*PRIVATE KEY-----", re.MULTILINE)
_OF_TRUSTSTORE: Final = "expected a PEM file with the certificates of authorities"
_OF_KEYSTORE: Final = "expected a PEM file with a private key and its certificate"


def check(tls: Tls) -> None:
    """Read both as a connection does. ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.truststore is not None:
        where = f"{TRUSTSTORE}={tls.truststore}"
        _refuse_without(
            where, _text(where, tls.truststore, _OF_TRUSTSTORE), _CERTIFICATE, "certificate", _OF_TRUSTSTORE
        )
        try:
            context.load_verify_locations(tls.truststore)
        except (ssl.SSLError, OSError, ValueError) as e:
            raise ConfigError(f"{where} cannot be read ({_reason(e)}): {_OF_TRUSTSTORE}") from e
    if tls.keystore is not None:
        where = f"{KEYSTORE}={tls.keystore}"
        text = _text(where, tls.keystore, _OF_KEYSTORE)
        _refuse_without(where, text, _CERTIFICATE, "certificate", _OF_KEYSTORE)
        _refuse_without(where, text, _KEY, "private key", _OF_KEYSTORE)
        _load(context, where, tls.keystore, tls.keystore_password)


def _text(where: str, path: str, expected: str) -> str:
    try:
        with open(path, encoding="latin-1") as file:
            return file.read()
    except OSError as e:
        raise ConfigError(f"{where}: {e.strerror}: {expected}") from e


def _refuse_without(where: str, text: str, pattern: re.Pattern[str], what: str, expected: str) -> None:
    if pattern.search(text) is None:
        raise ConfigError(f"{where} has no {what}: {expected}")


def _load(context: ssl.SSLContext, where: str, path: str, given: str | None) -> None:
    asked = False

    def password() -> str:
        """Called for a key that is encrypted alone; without it OpenSSL would ask at the terminal."""
        nonlocal asked
        asked = True
        if given is None:
            raise ConfigError(f"{where}: its key is encrypted: expected {PASSWORD}, which is not set")
        return given

    try:
        context.load_cert_chain(path, password=password)
    except (ssl.SSLError, OSError, ValueError) as e:
        if asked:
            raise ConfigError(f"{where}: {PASSWORD} does not open its key: expected the password of that key") from e
        if "KEY_VALUES_MISMATCH" in str(e):
            raise ConfigError(f"{where}: its key is not that of its first certificate: {_OF_KEYSTORE}") from e
        raise ConfigError(f"{where} cannot be read ({_reason(e)}): {_OF_KEYSTORE}") from e


def _reason(error: Exception) -> str:
    """In the library's words, without its line number."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
