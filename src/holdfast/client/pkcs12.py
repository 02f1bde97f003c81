"""Key stores of type PKCS12 to PEM texts, by ``cryptography`` (extra ``secure``), which is loaded only for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.model.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import pkcs12

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


def pem_of_pkcs12(content: bytes, password: str | None, *, as_trusted: bool = False) -> str:
    """Key, if there is one, and certificates; ``as_trusted``: those that Java would believe if it were given the store
    as a truststore. ConfigError without values: it cannot be read."""
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
    if as_trusted and store.key is not None:
        return b"".join(each.public_bytes(Encoding.PEM) for each in _trusted(store)).decode()
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    found = [each for each in (store.cert, *store.additional_certs) if each is not None]
    parts += [each.certificate.public_bytes(Encoding.PEM) for each in found]
    return b"".join(parts).decode()


def _trusted(store: pkcs12.PKCS12KeyAndCertificates) -> list[x509.Certificate]:
    """Of a store with a key: the key's own certificate, and entries that have a name, as keytool gives one to each.
    Those who have signed the key's certificate are there to be shown; who believed them would let in all that they
    signed. One that is there as an entry too, is there twice."""
    own, others = store.cert, sorted(store.additional_certs, key=lambda each: each.friendly_name is not None)
    found = [] if own is None else [own.certificate]
    signed = None if own is None else own.certificate
    while signed is not None and signed.issuer != signed.subject:
        above = next((each for each in others if each.certificate.subject == signed.issuer), None)
        if above is not None:
            others.remove(above)
        signed = None if above is None else above.certificate
    return found + [each.certificate for each in others if each.friendly_name]
