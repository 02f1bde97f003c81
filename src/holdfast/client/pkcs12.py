"""Key stores of type PKCS12 to PEM texts, by ``cryptography`` (extra ``secure``), which is loaded only for them."""

from __future__ import annotations

from typing import Final

from holdfast.model.errors import ConfigError

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
WITHOUT_EXTRA: Final = (
    "a store of type PKCS12 is read by the extra secure: pip install 'holdfast[secure]', or expected PEM"
)


def keytool_line(path: str, type_from: str = "JKS") -> str:
    """The command that makes such a store one that can be read here."""
    return (
        f"keytool -importkeystore -srckeystore {path} -srcstoretype {type_from} "
        f"-destkeystore {path}.p12 -deststoretype PKCS12"
    )


def pem_of_pkcs12(content: bytes, password: str | None) -> str:
    """Key, if there is one, and certificates. ConfigError without values: it cannot be read."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ConfigError(WITHOUT_EXTRA) from None
    if content.startswith(JKS_MAGIC):
        raise ConfigError("the file is a JKS, which cannot be read here")
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (ValueError, TypeError):
        raise ConfigError("the file cannot be read as PKCS12, or the password is not its own") from None
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    found = [each for each in (store.cert, *store.additional_certs) if each is not None]
    parts += [each.certificate.public_bytes(Encoding.PEM) for each in found]
    return b"".join(parts).decode()
