"""The certificates of ``holdfast up --secure``: an authority of the cluster's own, and what it signs.

    secure/ca.pem       whom clients and brokers trust
    secure/ca.key       what signs; nobody but `up` reads it
    secure/broker.pem   key and certificate of the brokers, for localhost, 127.0.0.1, ::1 and what --host says
    secure/NAME.pem     key and certificate of a user that logs in by TLS

Keys are ECDSA on P-256. Owns what a certificate says and when it has to be made anew; knows no properties file and no
broker. Needs the package cryptography, which the extra ``secure`` brings.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.cli.up_secure import BROKER_FILE, CA_CERTIFICATE, CA_KEY, ORGANISATION

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
CA_DAYS: Final = 3650
LEAF_DAYS: Final = 825
RENEWED_BEFORE: Final = datetime.timedelta(days=30)
CLOCKS_DIFFER: Final = datetime.timedelta(days=1)
"""Certificates are valid from so long before they are made."""
USAGES: Final = {"broker": (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
                 "user": (ExtendedKeyUsageOID.CLIENT_AUTH,)}  # fmt: skip


def ensure_certificates(folder: Path, hosts: Sequence[str], users: Sequence[str], now: datetime.datetime) -> list[str]:
    """Make what is missing, has expired or nearly so, does not fit its key, or names other hosts; the names of the
    files that were made. ``hosts``: those of the brokers beside ``LOCAL_NAMES``."""
    made = []
    authority = Authority.read(folder, now)
    if authority is None:
        authority = Authority.make(now)
        write_secret(folder / CA_KEY, _key_text(authority.key))
        write_secret(folder / CA_CERTIFICATE, _certificate_text(authority.certificate))
        made.append(CA_CERTIFICATE)
    names = tuple(dict.fromkeys((*LOCAL_NAMES, *hosts)))
    wanted = [(BROKER_FILE, broker_subject(), names), *((f"{user}.pem", user_subject(user), ()) for user in users)]
    for file_name, subject, its_hosts in wanted:
        if not authority.has_signed(folder / file_name, subject, its_hosts, now):
            write_secret(folder / file_name, authority.issue(subject, its_hosts, now))
            made.append(file_name)
    return made


def broker_subject() -> x509.Name:
    """``CN=broker,O=holdfast``: the organisation keeps a user named broker another principal."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION), x509.NameAttribute(NameOID.COMMON_NAME, "broker")]
    )


def user_subject(name: str) -> x509.Name:
    """``CN=name``."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def write_secret(path: Path, text: str) -> None:
    """For the owner alone from the first byte on; a reader sees the old text or the new one, also after a crash."""
    partial = path.with_name(f"{path.name}.tmp")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


class Authority:
    """What signs the certificates of one cluster."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.key, self.certificate = key, certificate

    @classmethod
    def make(cls, now: datetime.datetime) -> Authority:
        """A new one, for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION),
                x509.NameAttribute(NameOID.COMMON_NAME, f"holdfast {x509.random_serial_number():x}"[:24]),
            ]
        )
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(name, name, key.public_key(), now, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def read(cls, folder: Path, now: datetime.datetime) -> Authority | None:
        """None where there is none, or one that ends soon."""
        try:
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
            return None
        return cls(key, certificate) if _lasts(certificate, now) else None

    def issue(self, subject: x509.Name, hosts: Sequence[str], now: datetime.datetime) -> str:
        """A key and its certificate, in PEM. ``hosts``: none for that of a user."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        signer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _builder(subject, self.certificate.subject, key.public_key(), now, LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(USAGES["broker" if hosts else "user"]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_general_name, hosts)), critical=False)
        return f"{_key_text(key)}{_certificate_text(builder.sign(self.key, hashes.SHA256()))}"

    def has_signed(self, path: Path, subject: x509.Name, hosts: Sequence[str], now: datetime.datetime) -> bool:
        """Whether the file has a key and a certificate that can go on being used."""
        try:
            text = path.read_bytes()
            key = serialization.load_pem_private_key(text, password=None)
            certificate = x509.load_pem_x509_certificate(text)
            certificate.verify_directly_issued_by(self.certificate)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        fits = certificate.public_key() == key.public_key() and certificate.subject == subject
        return fits and _lasts(certificate, now) and set(map(_general_name, hosts)) <= _alternative_names(certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _lasts(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEWED_BEFORE


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _alternative_names(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _certificate_text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
