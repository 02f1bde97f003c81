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
from holdfast.client.security import (
    TLS_VERSIONS,
    SecuritySettings,
    TlsNames,
    TlsSettings,
    Unusable,
    UnusableTls,
    pem_blocks,
    tls_context,
)
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
TRUSTSTORE: Final = ("ssl.truststore.certificates", "ssl.truststore.location")
KEYSTORE: Final = ("ssl.keystore.certificate.chain", "ssl.keystore.location")
"""By which of these a store is given: the text itself, or a file."""
KEY_PASSWORD: Final = "ssl.key.password"


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
        """``shown``: the value is no secret, as no path is."""
        return ConfigError(f"option {self.naming(name, shown=shown)}: {what}")

    def naming(self, name: str, *, shown: bool = False) -> str:
        """The setting with its value, which is left out where it may be a secret."""
        value = f"={self.text(name)!r}" if shown or name.endswith(".location") else ""
        return f"{self.full(name)}{value}"

    def given(self, names: tuple[str, str]) -> str:
        """Which of two settings for the same is there; the second one, a file, where none is."""
        return names[0] if self.text(names[0]) is not None else names[1]

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
        password = self.text(KEY_PASSWORD)
        if key is not None and "ENCRYPTED" in key and password is None:
            raise self.missing(KEY_PASSWORD, "the keystore's key is encrypted")
        if password is not None and (key is None or "ENCRYPTED" not in key):
            raise self.wrong(KEY_PASSWORD, "there is no encrypted key in ssl.keystore.key or .location")
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
            names=self._names(),
        )
        try:
            tls_context(settings)
        except UnusableTls as error:
            raise self.unusable(error) from None
        return settings

    def _names(self) -> TlsNames:
        """What an error of a connection tells a person to look at."""
        truststore, keystore = self.given(TRUSTSTORE), self.given(KEYSTORE)
        inline = f"{self.full(KEYSTORE[0])} with {self.full('ssl.keystore.key')}"
        if self.text(keystore) is None:
            shown = f"{inline}, or {self.full(keystore)},"
        else:
            shown = inline if keystore == KEYSTORE[0] else self.naming(keystore)
        system = f"the system (neither {self.full(TRUSTSTORE[0])} nor {self.full(TRUSTSTORE[1])} is given)"
        return TlsNames(truststore=system if self.text(truststore) is None else self.naming(truststore), keystore=shown)

    def unusable(self, error: UnusableTls) -> ConfigError:
        """What of the files or texts OpenSSL cannot use, by the setting that it is given by."""
        keystore = self.given(KEYSTORE)
        key = "ssl.keystore.key" if keystore == KEYSTORE[0] else keystore
        if error.what is Unusable.TRUSTSTORE:
            return self.wrong(self.given(TRUSTSTORE), f"it holds a certificate that cannot be read: {error.reason}")
        if error.what is Unusable.PASSWORD:
            return self.wrong(KEY_PASSWORD, f"it does not open the key: expected that of the key in {self.naming(key)}")
        if error.what is Unusable.MISMATCH:
            what = f"the key is not that of the first certificate ({error.reason}): expected two that belong together"
            return self.wrong(key, what)
        return self.wrong(keystore, f"its key and certificate cannot be used ({error.reason}); expected {_KEY}")

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
        found = self._store(*TRUSTSTORE)
        if found is None:
            return None
        name, blocks = found
        certificates = "".join(block for label, block in blocks if label == "CERTIFICATE")
        if not certificates:
            raise self.wrong(name, "expected certificates in PEM: -----BEGIN CERTIFICATE-----")
        return certificates

    def _keystore(self) -> tuple[str | None, str | None]:
        """Certificates and key."""
        (chain, location), key = KEYSTORE, "ssl.keystore.key"
        if (self.text(chain) is None) != (self.text(key) is None):
            there, missing = (chain, key) if self.text(key) is None else (key, chain)
            raise self.missing(missing, f"expected it beside {self.full(there)}")
        found = self._store(chain, location)
        if found is None:
            return None, None
        name, blocks = found
        certificates = "".join(block for label, block in blocks if label == "CERTIFICATE")
        if not certificates:
            raise self.wrong(name, "expected certificates in PEM, first that of the key: -----BEGIN CERTIFICATE-----")
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
            here = "here, where the query is planned" if self.prefix else "here"
            raise self.wrong(location, f"cannot be read {here}: {error.strerror}", shown=True) from None
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
