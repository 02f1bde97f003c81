"""What a broker keeps of a SCRAM user: keys that prove a password and do not tell it (RFC 5802)."""

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class ScramMechanism(IntEnum):
    """The mechanisms; the numbers are Kafka's, in requests and in the metadata log."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """As SASL and the nodes of /config/users name it: SCRAM-SHA-256."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """As hashlib and hmac name it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """Of a stored key."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


MECHANISMS: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
"""By their names in SASL."""
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Kafka's limits of what a credential may have."""
SALT_BYTES: Final = 24
"""Of a salt that our own commands make."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Of one user and mechanism. Who has ``server_key`` can pretend to be the broker, and who has ``stored_key`` and
    hears a login can be the user: so neither is shown anywhere."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
    ) -> "ScramCredential":
        """From what AlterUserScramCredentials carries: the salted password, which is not kept."""
        name = mechanism.hash_name
        client_key = hmac.digest(salted_password, b"Client Key", name)
        return cls(
            salt=salt,
            stored_key=hashlib.new(name, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", name),
            iterations=iterations,
        )
