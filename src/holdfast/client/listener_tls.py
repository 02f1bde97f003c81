"""A broker's keys ``ssl.*`` for one of its listeners: what it shows there, whom it believes, and what it speaks.

By Kafka's rules ``listener.name.<name>.ssl.*`` stands before ``ssl.*``. The same keys say what the broker shows when it
connects to a listener of that name at others. ConfigError names the key as it was given and what was expected, and no
secret. Files are read each time: certificates are renewed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.client.pkcs12 import JKS_MAGIC, keytool_line, pem_of_pkcs12
from holdfast.client.security import TLS_VERSIONS, TlsSettings, UnusableTls, load_shown
from holdfast.client.security_options import KEYSTORE, TLS_KEYS, SecurityOptions
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol

CLIENT_AUTH: Final = "ssl.client.auth"
CIPHERS: Final = "ssl.cipher.suites"
RULES: Final = "ssl.principal.mapping.rules"
LOCATIONS: Final = ("ssl.keystore.location", "ssl.truststore.location")
_PASSWORDS: Final = {"keystore": "ssl.keystore.password", "truststore": "ssl.truststore.password"}
_KEYS: Final = (
    *TLS_KEYS, *_PASSWORDS.values(), CLIENT_AUTH, CIPHERS, RULES, "ssl.protocol", "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
)  # fmt: skip
_TYPES: Final = ("PEM", "PKCS12")
_ASKED: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """What a listener speaks TLS with. A value; two that are equal but for names make the same context."""

    settings: TlsSettings
    asks: str
    """For a certificate of the client: none, requested or required."""
    ciphers: str | None
    """Of TLS 1.2, in OpenSSL's names."""
    rules: str
    """How the name in a client's certificate becomes a principal."""
    may_change_name: bool
    may_change_hosts: bool

    def speaks_as(self, other: ListenerTls) -> bool:
        """Whether the two are the same by whichever keys and files they are given."""
        return replace(self, settings=replace(self.settings, names=other.settings.names)) == other


class ListenerTlsOptions(SecurityOptions):
    """``given``: the broker's properties as text."""

    def __init__(self, given: Mapping[str, str], listener: str) -> None:
        own = f"listener.name.{listener.lower()}."
        self._full = {key: own + key if own + key in given else key for key in _KEYS}
        super().__init__({key: given[name] for key, name in self._full.items() if name in given})
        self.listener = listener

    def full(self, name: str) -> str:
        return self._full.get(name, name)

    def text(self, name: str) -> str | None:
        if name == "ssl.key.password" and self._type("keystore") == "PKCS12":
            return None  # the store's own opens the key, too
        return super().text(name)

    def _type(self, kind: str) -> str:
        """PEM or PKCS12, as it is said, or as the file is: JKS, Kafka's default, is a wish for none of the two."""
        said = (super().text(f"ssl.{kind}.type") or "JKS").upper()
        path = super().text(f"ssl.{kind}.location")
        if said != "JKS" or path is None:
            return "PEM" if said == "JKS" else said
        try:
            with open(path, "rb") as file:
                beginning = file.read(4)
        except OSError:
            return "PEM"
        if beginning == JKS_MAGIC:
            return "JKS"
        return "PKCS12" if beginning[:1] == b"\x30" else "PEM"

    def wrong(self, name: str, what: str, *, shown: bool = False) -> ConfigError:
        value = repr(self.text(name)) if shown or name in LOCATIONS else "[hidden]"
        return ConfigError(f"Invalid value {value} of {self.full(name)}: {what}")

    def wrong_for_listener(self, name: str, what: str) -> ConfigError:
        """The same, for what may be good for another listener that has the same key."""
        value = repr(self.text(name)) if name in (*LOCATIONS, CLIENT_AUTH) else "[hidden]"
        return ConfigError(f"Invalid value {value} of {self.full(name)} for listener {self.listener}: {what}")

    def missing(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"{self.full(name)} is missing: {why}")

    def shows_the_same(self, other: ListenerTlsOptions) -> bool:
        """Whether the two listeners have one keystore."""
        return all(self.text(name) == other.text(name) for name in KEYSTORE)

    def files(self) -> tuple[str, ...]:
        """Those that are read, and change when a certificate is renewed."""
        return tuple(path for key in LOCATIONS if (path := self.text(key)) is not None)

    def listens(self, protocol: SecurityProtocol) -> ListenerTls:
        """For the broker's own listener."""
        settings = self.tls()
        if settings.certificates is None:
            raise self.missing(
                "ssl.keystore.location",
                f"listener {self.listener} speaks {protocol.name}: expected its key and certificate",
            )
        made = ListenerTls(
            settings=settings,
            asks=self.asks(protocol),
            ciphers=self._ciphers(settings.oldest),
            rules=self.text(RULES) or "DEFAULT",
            may_change_name=(self.text("ssl.allow.dn.changes") or "").lower() == "true",
            may_change_hosts=(self.text("ssl.allow.san.changes") or "").lower() == "true",
        )
        try:
            server_context(made)
        except UnusableTls as error:
            raise self.unusable(error) from None
        return made

    def asks(self, protocol: SecurityProtocol) -> str:
        """As in Kafka (KIP-684) a listener with SASL asks for certificates only where that is said for it alone."""
        if protocol is SecurityProtocol.SASL_SSL and self.full(CLIENT_AUTH) == CLIENT_AUTH:
            return "none"
        asks = (self.text(CLIENT_AUTH) or "none").lower()
        if asks not in _ASKED:
            raise self.wrong(CLIENT_AUTH, f"expected {', '.join(_ASKED)}", shown=True)
        return asks

    def _versions(self) -> tuple[str, str]:
        oldest, newest = super()._versions()
        limit = self.text("ssl.protocol") or "TLSv1.3"
        if limit not in (*TLS_VERSIONS, "TLS"):
            raise self.wrong("ssl.protocol", f"expected {', '.join(TLS_VERSIONS)} or TLS", shown=True)
        if limit != "TLS" and limit < oldest:
            raise self.wrong("ssl.protocol", f"expected one of {self.full('ssl.enabled.protocols')}", shown=True)
        return oldest, newest if limit == "TLS" else min(newest, limit)

    # -- stores ------------------------------------------------------------------------------------------------

    def check_types(self) -> None:
        for kind, password in _PASSWORDS.items():
            name, location = f"ssl.{kind}.type", f"ssl.{kind}.location"
            found = self._type(kind)
            path = self.text(location)
            if found == "JKS":
                line = keytool_line(path or "FILE")
                raise self.wrong(location, f"the file is a JKS; this makes another of it: {line}", shown=True)
            if found not in _TYPES:
                line = keytool_line(path or "FILE", found)
                raise self.wrong(name, f"expected {' or '.join(_TYPES)}; this makes one of it: {line}", shown=True)
            if found == "PEM" and self.text(password) is not None:
                raise self.wrong(password, "a store of type PEM has none; ssl.key.password opens an encrypted key")
            if found == "PKCS12" and path is None and self._inline(kind):
                raise self.wrong(
                    name, f"expected {location}, or PEM beside {self.full(self._inline(kind)[0])}", shown=True
                )

    def _inline(self, kind: str) -> list[str]:
        names = [f"ssl.{kind}.certificates", f"ssl.{kind}.certificate.chain", f"ssl.{kind}.key"]
        return [name for name in names if self.text(name) is not None]

    def content(self, location: str, path: str) -> str:
        kind = location.split(".")[1]
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise self.wrong(location, f"cannot be read: {error.strerror}", shown=True) from None
        if self._type(kind) == "PKCS12":
            try:
                return pem_of_pkcs12(content, self.text(_PASSWORDS[kind]), as_trusted=kind == "truststore")
            except ConfigError as error:
                raise self.wrong(location, error.message, shown=True) from None
        if b"-----BEGIN " not in content:
            raise self.wrong(
                location, f"the file is no PEM: expected it, or {self.full(f'ssl.{kind}.type')}=PKCS12", shown=True
            )
        return content.decode("utf-8", "replace")

    # -- cipher suites -----------------------------------------------------------------------------------------

    def _ciphers(self, oldest: str) -> str | None:
        names = [each.strip() for each in (self.text(CIPHERS) or "").split(",") if each.strip()]
        if not names:
            return None
        known = _known_ciphers()
        found = []
        for name in names:
            if name.startswith("TLS_") and "_WITH_" not in name:
                raise self.wrong(
                    CIPHERS, f"{name} is of TLS 1.3, of which OpenSSL alone chooses here: expected suites of TLS 1.2",
                    shown=True,
                )  # fmt: skip
            openssl = "-".join(_openssl_parts(name)) if "_WITH_" in name else name
            if openssl not in known:
                raise self.wrong(CIPHERS, f"there is no suite {name} here", shown=True)
            found.append(openssl)
        if oldest != "TLSv1.2":
            raise self.wrong(
                CIPHERS, f"suites of TLS 1.2, which {self.full('ssl.enabled.protocols')} leaves out", shown=True
            )
        return ":".join(found)


def _openssl_parts(java: str) -> Iterator[str]:
    """``TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256`` is ``ECDHE-RSA-AES128-SHA256`` there."""
    exchange, _, cipher = java.removeprefix("TLS_").partition("_WITH_")
    if exchange != "RSA":
        yield from exchange.split("_")
    words = cipher.split("_")
    if words[0] in ("AES", "CAMELLIA", "ARIA") and len(words) > 1:
        words[:2] = [words[0] + words[1]]
    if words[:1] == ["CHACHA20"]:
        words = words[:2]
    yield from (word for word in words if word != "CBC")


def _known_ciphers() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=1")
    return frozenset(each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3")


def server_context(tls: ListenerTls) -> ssl.SSLContext:
    """UnusableTls if the certificates or the key cannot be used."""
    settings = tls.settings
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_VERSIONS[settings.oldest]
    context.maximum_version = TLS_VERSIONS[settings.newest]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # docs/decisions/0055-tls-of-brokers.md
    if tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    load_shown(context, settings)
    context.verify_mode = _ASKED[tls.asks]
    if tls.asks != "none":
        # As in Kafka, a certificate that is trusted by name need not be an authority's.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if settings.trusted is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            context.load_verify_locations(cadata=settings.trusted)
    return context
