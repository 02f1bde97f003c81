"""Authorities and certificates for tests, made on the spot: ECDSA P-256, a millisecond each.

``authority = Authority.make(); server = authority.issue("broker", hosts=("localhost", "127.0.0.1"))``; what a party
shows is ``server.pem`` (key and chain, a PEM keystore), what it trusts ``authority.pem``.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCAL = ("localhost", "127.0.0.1", "::1")
DAY = dt.timedelta(days=1)
BOTH_PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Certificate:
    """One party's certificate with its key; ``issuer`` is the PEM text of those above it, without the root."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuers: str = ""

    @property
    def chain(self) -> str:
        """``ssl.keystore.certificate.chain``."""
        return self.certificate.public_bytes(Encoding.PEM).decode() + self.issuers

    @property
    def key_pem(self) -> str:
        """``ssl.keystore.key``: PKCS #8."""
        return self._key(NoEncryption())

    @property
    def pem(self) -> str:
        """The content of a keystore of type PEM."""
        return self.key_pem + self.chain

    def encrypted_key(self, password: str) -> str:
        """``ssl.keystore.key`` that ``ssl.key.password`` opens."""
        return self._key(BestAvailableEncryption(password.encode()))

    def _key(self, encryption: KeySerializationEncryption) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str) -> bytes:
        """The content of a keystore of type PKCS12."""
        above = x509.load_pem_x509_certificates(self.issuers.encode()) if self.issuers else None
        return pkcs12.serialize_key_and_certificates(
            b"one", self.key, self.certificate, above, BestAvailableEncryption(password.encode())
        )

    def write(self, path: Path) -> str:
        """The keystore as a file of its owner; its path."""
        path.write_text(self.pem)
        path.chmod(0o600)
        return str(path)


@dataclass(frozen=True)
class Authority:
    """Signs certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuers: str = ""

    @classmethod
    def make(cls, name: str = "Authority of tests") -> Authority:
        """One that signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        return cls(_built(subject, subject, key, key, authority=True).sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> str:
        """What those trust who trust it: ``ssl.truststore.certificates``, or the content of a PEM truststore."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> str:
        """The truststore as a file; its path."""
        path.write_text(self.pem)
        return str(path)

    def truststore_pkcs12(self, password: str) -> bytes:
        """The content of a truststore of type PKCS12."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"authority")], BestAvailableEncryption(password.encode())
        )

    def below(self, name: str, *, ends: dt.datetime | None = None) -> Authority:
        """One between this one and those that it signs."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = _built(_name(name), self.certificate.subject, key, self.key, authority=True, ends=ends)
        made = built.sign(self.key, hashes.SHA256())
        return Authority(made, key, made.public_bytes(Encoding.PEM).decode() + self.issuers)

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = LOCAL,
        subject: x509.Name | None = None,
        expired: bool = False,
        days: int = 2,
        begins: dt.datetime | None = None,
        ends: dt.datetime | None = None,
        purposes: tuple[x509.ObjectIdentifier, ...] = BOTH_PURPOSES,
    ) -> Certificate:
        """For a server or a client. The subject is ``CN=name`` if none is given; ``expired``: since yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        built = _built(
            subject or _name(name), self.certificate.subject, key, self.key, purposes=purposes,
            begins=begins or now - 10 * DAY, ends=ends or now + (-DAY if expired else days * DAY),
        )  # fmt: skip
        if hosts:
            built = built.add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), False)
        return Certificate(built.sign(self.key, hashes.SHA256()), key, self.issuers)


def expired(authority: Authority, name: str = "broker") -> Certificate:
    """Good but for its age."""
    return authority.issue(name, expired=True)


def foreign(name: str = "broker") -> Certificate:
    """Good, and of an authority that nobody knows."""
    return Authority.make("Another authority").issue(name)


def misnamed(authority: Authority, name: str = "broker") -> Certificate:
    """Good, for a host that is not this one."""
    return authority.issue(name, hosts=("elsewhere.example",))


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _built(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signs: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    begins: dt.datetime | None = None,
    ends: dt.datetime | None = None,
    purposes: tuple[x509.ObjectIdentifier, ...] = BOTH_PURPOSES,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins or now - 10 * DAY)
        .not_valid_after(ends or now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signs.public_key()), False)
    )
    if authority:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        return built.add_extension(usage, True)
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    return built.add_extension(usage, True).add_extension(x509.ExtendedKeyUsage(purposes), False)
