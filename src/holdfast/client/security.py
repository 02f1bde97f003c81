"""How a client proves who it is, and knows whom it speaks to: what a connection is made with.

Values, and the TLS context that they make. Never opens a connection, never logs: the values hold secrets, which no
``repr`` shows. They are picklable, and certificates and keys are text, not files: they go to Spark's executors as
they are.
"""

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from holdfast.client.errors import AuthenticationError
from holdfast.client.sasl import SaslSettings
from holdfast.client.tls_connect import TellingContext
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol

TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
ALERT: Final = b"\x15\x03"
"""How the answer of a TLS listener to plaintext begins."""
TLS_EXPECTED: Final = "expected security.protocol=SSL or SASL_SSL for this listener"
LOGIN_EXPECTED: Final = "expected security.protocol=SASL_PLAINTEXT or SASL_SSL for this listener"
PLAINTEXT_TO_TLS: Final = f"it speaks TLS: {TLS_EXPECTED}"
CLOSED_AT_ONCE: Final = "too many connections (max.connections.per.ip, max.connections), or another protocol"
"""Why a listener closes a connection that has not yet got an answer: it does not say which."""


FROM_CONTROLLER: Final = "holdfast-controller"
FROM_BROKER: Final = "holdfast-broker"
"""What a broker names for the protocol (ALPN) in its first message of TLS: no listener asks for it, but the port of a
broker that was killed a moment ago reads it there (broker/closer_process.py)."""
_KILLED: Final = "TLSV1_CERTIFICATE_UNOBTAINABLE"
"""Alert 111 of TLS: no server says it, the port of a killed broker does, to the controller."""


class Unusable(Enum):
    """What of the settings OpenSSL cannot use."""

    TRUSTSTORE = "truststore"
    PASSWORD = "password"
    """It does not open the key."""
    MISMATCH = "mismatch"
    """The key is not that of the certificate."""
    KEYSTORE = "keystore"


class UnusableTls(ConfigError):
    """``reason``: OpenSSL's, in few words."""

    def __init__(self, what: Unusable, reason: str) -> None:
        super().__init__(f"the {what.value} of TLS cannot be used: {reason}")
        self.what = what
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsNames:
    """The settings by which the stores were given, as a person is told them: no secret among it."""

    truststore: str = "ssl.truststore.certificates"
    keystore: str = "ssl.keystore.certificate.chain with ssl.keystore.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """PEM texts, as ``pem_blocks`` writes them. ``trusted`` None: the authorities that the system trusts."""

    trusted: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    """What the client shows: its certificate first, then those that sign it."""
    key: str | None = field(default=None, repr=False)
    """PKCS #8."""
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    oldest: str = "TLSv1.2"
    newest: str = "TLSv1.3"
    names: TlsNames = TlsNames()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """One listener of the brokers, as ``security.protocol`` and what belongs to it say."""

    protocol: SecurityProtocol
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


def pem_blocks(text: str) -> list[tuple[str, str]]:
    """(label, the block with lines of 64 characters) of each block in ``text``, which may be one line. ConfigError
    where a block is no base64."""
    found = []
    for label, body in _BLOCK.findall(text):
        packed = "".join(body.replace("\\n", "").split())
        if not _BASE64.fullmatch(packed):
            raise ConfigError(f"a PEM block {label} is no base64")
        lines = [packed[at : at + 64] for at in range(0, len(packed), 64)]
        found.append((label, "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))))
    return found


@lru_cache(maxsize=32)
def tls_context(settings: TlsSettings, from_whom: str | None = None) -> ssl.SSLContext:
    """UnusableTls if the certificates or the key cannot be used. One per settings: a process has few of them.
    ``from_whom``: FROM_CONTROLLER or FROM_BROKER, for connections between brokers."""
    context = TellingContext(ssl.PROTOCOL_TLS_CLIENT)
    if from_whom is not None:
        context.set_alpn_protocols([from_whom])
    context.check_hostname = settings.check_hostname
    context.minimum_version = TLS_VERSIONS[settings.oldest]
    context.maximum_version = TLS_VERSIONS[settings.newest]
    if settings.trusted is None:
        context.load_default_certs()
    else:
        # As in Kafka's clients, a certificate that is trusted by name need not be an authority's.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=settings.trusted)
        except (ssl.SSLError, ValueError) as error:
            raise UnusableTls(Unusable.TRUSTSTORE, _reason(error)) from None
    if settings.certificates is not None and settings.key is not None:
        load_shown(context, settings)
    return context


def load_shown(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """UnusableTls."""

    def password() -> str:  # without one OpenSSL would ask at the terminal
        if settings.key_password is None:
            raise UnusableTls(Unusable.PASSWORD, "the key is encrypted")
        return settings.key_password

    with _readable(f"{settings.certificates}{settings.key}") as path:
        try:
            context.load_cert_chain(path, password=password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None)
            if reason == "KEY_VALUES_MISMATCH" or reason == "KEY_TYPE_MISMATCH":
                what = Unusable.MISMATCH
            elif settings.key_password is not None and "ENCRYPTED" in (settings.key or ""):
                what = Unusable.PASSWORD
            else:
                what = Unusable.KEYSTORE
            raise UnusableTls(what, _reason(error)) from None


@contextlib.contextmanager
def _readable(text: str) -> Iterator[str]:
    """A path under which OpenSSL, which takes no text here, reads ``text``; in memory where the system can do that."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("holdfast-key")
        try:
            with os.fdopen(os.dup(descriptor), "w") as file:
                file.write(text)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", prefix="holdfast-") as file:  # for its owner alone
        file.write(text)
        file.flush()
        yield file.name


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)


def nobody_is_there(error: ssl.SSLError) -> bool:
    """Whether a handshake failed because what listens there says that its broker was killed."""
    return error.reason == _KILLED


def tls_error(address: str, error: ssl.SSLError, names: TlsNames) -> AuthenticationError | None:
    """What a failed handshake means, for whom trying again is no use; None if only the connection broke."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(
            f"broker {address}: its certificate is not trusted: {error.verify_message}; expected one that "
            f"{names.truststore} vouches for, and that names the host by which the broker is reached"
        )
    reason = _reason(error)
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return AuthenticationError(
            f"broker {address}: it does not take the client's certificate ({reason}); expected one in "
            f"{names.keystore} that the broker trusts"
        )
    return AuthenticationError(
        f"broker {address}: the TLS handshake failed ({reason}); expected a listener with TLS and a common version of "
        "ssl.enabled.protocols"
    )
