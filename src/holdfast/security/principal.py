"""Who speaks: a type and a name, as Kafka's KafkaPrincipal. A value; where it comes from is sasl.py's and TLS's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER_TYPE: Final = "User"
"""The type of every principal that a broker makes itself. Types and names are case-sensitive, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Principal:
    """``User:alice``. The name may hold anything, a colon too."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Of ``Type:name``. ValueError for another form."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"principal {text!r}: expected Type:name, as in User:alice")
        return cls(kind, name)

    @classmethod
    def user(cls, name: str) -> Principal:
        """``User:name``."""
        return cls(USER_TYPE, name)


ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")
"""Who speaks on PLAINTEXT, or on TLS without a certificate."""
