"""Kafka's settings ``security.protocol``, ``ssl.*`` and ``sasl.*``, as a client is given them, to SecuritySettings.

Owns their names, what is refused, and the words of what is wrong: ConfigError names the setting and what was expected,
and never a value that may be a secret. Files are read here, once: what comes out is text.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.client.sasl import SaslSettings
from holdfast.client.sasl_options import REFUSED_SASL, SASL_KEYS, parse_sasl
from holdfast.client.security import TLS_VERSIONS, SecuritySettings, TlsSettings, pem_blocks, tls_context
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol

SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.")
TLS_KEYS: Final = (
    "ssl.truststore.type", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.keystore.type", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols",
)  # fmt: skip
SECURITY_KEYS: Final = ("security.protocol", *TLS_KEYS, *SASL_KEYS)
_OF_THE_JVM: Final = "nothing of the JVM runs on this path"
_PEM_HAS_NONE: Final = "a store of type PEM has no password; ssl.key.password opens an encrypted key"
REFUSED: Final = {
    "ssl.truststore.password": _PEM_HAS_NONE,
    "ssl.keystore.password": _PEM_HAS_NONE,
    "ssl.protocol": "ssl.enabled.protocols says which versions of TLS may be spoken",
    "ssl.cipher.suites": "OpenSSL of the system chooses",
    "ssl.provider": _OF_THE_JVM,
    "ssl.engine.factory.class": _OF_THE_JVM,
    "ssl.keymanager.algorithm": _OF_THE_JVM,
    "ssl.trustmanager.algorithm": _OF_THE_JVM,
    "ssl.secure.random.implementation": _OF_THE_JVM,
    "security.providers": _OF_THE_JVM,
    **REFUSED_SASL,
}
"""Settings that are known and do not exist here, with the reason."""
_TLS_PROTOCOLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_SASL_PROTOCOLS: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
AS_PEM: Final = (
    "expected PEM; keytool -importkeystore -deststoretype PKCS12 and openssl pkcs12 -nodes make it of another type"
)
_KEY_LABELS: Final = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
_KEY: Final = "a key of PKCS #8 in PEM (openssl pkcs8 -topk8 makes it)"


class SecurityOptions:
    """The settings of one client by Kafka's names; ``prefix`` stands before them in what is complained of."""

    def __init__(self, settings: Mapping[str, str], prefix: str = "") -> None:
        self._given = {name: text for name, text in settings.items() if name.startswith(SECURITY_PREFIXES)}
        self.prefix = prefix

    def text(self, name: str) -> str | None:
        """None where it is not given or empty."""
        return (self._given.get(name) or "").strip() or None

    def full(self, name: str) -> str:
        """The name of a setting as it is given."""
        return f"{self.prefix}{name}"

    def wrong(self, name: str, what: str, *, shown: bool = False) -> ConfigError:
        """``shown``: the value is no secret."""
        value = f"={self.text(name)!r}" if shown else ""
        return ConfigError(f"option {self.full(name)}{value}: {what}")

    def missing(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"option {self.full(name)} is missing: {why}")

    def check_names(self) -> None:
        for name in self._given:
            if name in REFUSED:
                raise ConfigError(f"option {self.prefix}{name} is not allowed: {REFUSED[name]}")
            if name not in SECURITY_KEYS:
                close = difflib.get_close_matches(name, SECURITY_KEYS, n=1)
                hint = f"did you mean {self.prefix}{close[0]}?" if close else f"there are {', '.join(SECURITY_KEYS)}"
                raise ConfigError(f"option {self.prefix}{name} is not supported; {hint}")

    def protocol(self) -> SecurityProtocol:
        name = (self.text("security.protocol") or "PLAINTEXT").upper()
        for each in SecurityProtocol:
            if each.name == name:
                return each
        expected = " or ".join(each.name for each in SecurityProtocol)
        raise self.wrong("security.protocol", f"expected {expected}", shown=True)

    def check_used(self, protocol: SecurityProtocol) -> None:
        """What is given has an effect: settings of TLS without TLS may be a security.protocol that was forgotten."""
        for name in self._given:
            for beginning, protocols in (("ssl.", _TLS_PROTOCOLS), ("sasl.", _SASL_PROTOCOLS)):
                if name.startswith(beginning) and protocol not in protocols:
                    expected = " or ".join(each.name for each in protocols)
                    raise self.wrong(name, f"security.protocol is {protocol.name}; expected {expected} with it")

    def sasl(self) -> SaslSettings:
        return parse_sasl(self._given, self.prefix)

    def tls(self) -> TlsSettings:
        self.check_types()
        oldest, newest = self._versions()
        certificates, key = self._keystore()
        password = self.text("ssl.key.password")
        if key is not None and "ENCRYPTED" in key and password is None:
            raise self.missing("ssl.key.password", "the keystore's key is encrypted")
        if password is not None and (key is None or "ENCRYPTED" not in key):
            raise self.wrong("ssl.key.password", "there is no encrypted key in ssl.keystore.key or .location")
        algorithm = self._given.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if algorithm not in ("https", ""):
            name = "ssl.endpoint.identification.algorithm"
            raise self.wrong(name, "expected https, or nothing for brokers whose name is not checked", shown=True)
        settings = TlsSettings(
            trusted=self._truststore(),
            certificates=certificates,
            key=key,
            key_password=password,
            check_hostname=algorithm == "https",
            oldest=oldest,
            newest=newest,
        )
        try:
            tls_context(settings)
        except ConfigError as error:
            raise ConfigError(f"options {self.prefix}ssl.*: {error}") from None
        return settings

    def check_types(self) -> None:
        """What kind of files the stores are."""
        for name in ("ssl.truststore.type", "ssl.keystore.type"):
            if (self.text(name) or "PEM").upper() != "PEM":
                raise self.wrong(name, AS_PEM, shown=True)

    def _versions(self) -> tuple[str, str]:
        name = "ssl.enabled.protocols"
        text = self.text(name)
        wanted = [each.strip() for each in (text or "TLSv1.2,TLSv1.3").split(",")]
        if not set(wanted) <= set(TLS_VERSIONS):
            raise self.wrong(name, f"expected some of {', '.join(TLS_VERSIONS)}", shown=True)
        return min(wanted), max(wanted)

    def _truststore(self) -> str | None:
        found = self._store("ssl.truststore.certificates", "ssl.truststore.location")
        if found is None:
            return None
        name, blocks = found
        certificates = "".join(block for label, block in blocks if label == "CERTIFICATE")
        if not certificates:
            raise self.wrong(name, "expected certificates in PEM: -----BEGIN CERTIFICATE-----")
        return certificates

    def _keystore(self) -> tuple[str | None, str | None]:
        """Certificates and key."""
        chain, key, location = "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location"
        if (self.text(chain) is None) != (self.text(key) is None):
            there, missing = (chain, key) if self.text(key) is None else (key, chain)
            raise self.missing(missing, f"expected it beside {self.full(there)}")
        found = self._store(chain, location)
        if found is None:
            return None, None
        name, blocks = found
        certificates = "".join(block for label, block in blocks if label == "CERTIFICATE")
        if not certificates:
            raise self.wrong(name, "expected certificates in PEM, the client's first: -----BEGIN CERTIFICATE-----")
        if name == chain:
            name, blocks = key, self._blocks(key, self.text(key) or "")
        keys = [block for label, block in blocks if label in _KEY_LABELS]
        if len(keys) != 1:
            raise self.wrong(name, f"expected {_KEY}, once; there are {len(keys)}")
        return certificates, keys[0]

    def _store(self, inline: str, location: str) -> tuple[str, list[tuple[str, str]]] | None:
        """The setting that a store is given by, and its blocks."""
        text, path = self.text(inline), self.text(location)
        if text is not None and path is not None:
            raise self.wrong(location, f"{self.full(inline)} is given, too; expected one of the two")
        if path is None:
            return None if text is None else (inline, self._blocks(inline, text))
        return location, self._blocks(location, self.content(location, path))

    def content(self, location: str, path: str) -> str:
        """The PEM text of the store in a file."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            what = f"cannot be read here, where the query is planned: {error.strerror}"
            raise self.wrong(location, what, shown=True) from None
        if b"-----BEGIN " not in content:
            raise self.wrong(location, f"the file is no PEM; {AS_PEM}", shown=True)
        return content.decode("utf-8", "replace")

    def _blocks(self, name: str, text: str) -> list[tuple[str, str]]:
        try:
            return pem_blocks(text)
        except ConfigError as error:
            raise self.wrong(name, str(error)) from None


def parse_security(settings: Mapping[str, str], prefix: str = "") -> SecuritySettings | None:
    """None for plaintext. Other settings than ``security.*``, ``ssl.*`` and ``sasl.*`` are passed over."""
    options = SecurityOptions(settings, prefix)
    options.check_names()
    protocol = options.protocol()
    options.check_used(protocol)
    if protocol is SecurityProtocol.PLAINTEXT:
        return None
    return SecuritySettings(
        protocol=protocol,
        tls=options.tls() if protocol in _TLS_PROTOCOLS else None,
        sasl=options.sasl() if protocol in _SASL_PROTOCOLS else None,
    )
