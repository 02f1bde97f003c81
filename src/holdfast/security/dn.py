"""Names in certificates: the subject as Java writes it (RFC 2253), and the other names of a host.

Java's ``X500Principal.getName`` is what Kafka maps to principals and what ACLs are about, so its habits are kept: the
last part of the subject comes first, nine types of attributes have a word, all others are numbers with the value in
hexadecimal, and values are escaped as RFC 2253 says, with ``=`` and ``#`` everywhere. Source: RFC 5280 4.1, RFC 2253;
what Java writes is in tests/golden/security.
"""

from __future__ import annotations

from typing import Final

from holdfast.security.der import OCTETS, SEQUENCE, SET, Der, DerError, one

_WORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS: Final = {0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E}
"""Tags of strings: UTF8, Printable, T61, IA5, General, BMP."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_HOSTS: Final = "2.5.29.17"


def subject(certificate: bytes) -> str:
    """Of a certificate in DER. DerError: it is none."""
    return rfc2253(certificate_fields(certificate)[4])


def issuer(certificate: bytes) -> str:
    """Who has signed a certificate in DER. DerError: it is none."""
    return rfc2253(certificate_fields(certificate)[2])


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Hosts, addresses and other names that it is for, each as it is encoded. DerError: it is none."""
    for field in certificate_fields(certificate)[6:]:
        if field.tag != 0xA3:
            continue
        for extension in one(field.content).inside(SEQUENCE):
            parts = extension.inside(SEQUENCE)
            if len(parts) < 2:
                raise DerError("an extension without a value")
            if parts[0].object_id == _HOSTS and parts[-1].tag == OCTETS:
                return frozenset(each.encoded for each in one(parts[-1].content).inside(SEQUENCE))
    return frozenset()


def certificate_fields(certificate: bytes) -> list[Der]:
    """Serial number, algorithm, issuer, validity, subject and so on, of a certificate in DER. DerError: it is none."""
    parts = one(certificate).inside(SEQUENCE)
    if not parts:
        raise DerError("an empty certificate")
    fields = parts[0].inside(SEQUENCE)
    if fields and fields[0].tag == 0xA0:  # the version, which the oldest have not
        del fields[0]
    if len(fields) < 6:
        raise DerError("a certificate without a subject")
    return fields


def rfc2253(name: Der) -> str:
    """A name as Java writes it. DerError: it is none."""
    parts = []
    for part in reversed(name.inside(SEQUENCE)):
        attributes = part.inside(SET)
        if not attributes:
            raise DerError("an empty part of a name")
        parts.append("+".join(map(_attribute, attributes)))
    return ",".join(parts)


def _attribute(attribute: Der) -> str:
    pair = attribute.inside(SEQUENCE)
    if len(pair) != 2:
        raise DerError(f"an attribute of {len(pair)} values, expected type and value")
    kind, value = pair
    word = _WORDS.get(kind.object_id)
    if word is None or value.tag not in _TEXTS:
        return f"{word or kind.object_id}=#{value.encoded.hex()}"
    return f"{word}={_escaped(_text(value))}"


def _text(value: Der) -> str:
    return value.content.decode("utf-8", "replace")


def _escaped(text: str) -> str:
    written = "".join("\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in text)
    bare = written.strip(" \r")
    lead = len(written) - len(written.lstrip(" \r"))
    end = lead + len(bare)
    return "".join(c if lead <= at < end else f"\\{c}" for at, c in enumerate(written))
