"""SCRAM, the client's side (RFC 5802, RFC 7677): what is said, and whether the server knows the password, too.

Deciding code: bytes in, bytes out; the nonce is the caller's. The picture:

    client  n,,n=USER,r=NONCE                    first
    server  r=NONCE+ITS,s=SALT,i=ITERATIONS      answer -> final
    client  c=biws,r=NONCE+ITS,p=PROOF
    server  v=SIGNATURE (or e=REASON)            check

Without channel binding, as Kafka. Passwords are taken as UTF-8 as they are: Kafka's brokers do not apply SASLprep.
"""

import base64
import binascii
import hashlib
import hmac
from functools import lru_cache
from typing import Final

LEAST_ITERATIONS: Final = 4096
"""What RFC 7677 recommends, and Kafka's brokers ask for: with fewer a stolen answer is cheap to guess from."""
MOST_ITERATIONS: Final = 1_000_000
"""Some seconds of work; a server that wants more keeps the client busy."""
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_HEADER: Final = b"n,,"  # no channel binding, no other user to act for


class ScramError(ValueError):
    """The server's message is not what the exchange expects, or its signature is wrong."""


class ScramClient:
    """One exchange: ``first``, then ``final``, then ``check``. ``mechanism`` is a key of HASHES."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}".encode()
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return _HEADER + self._bare

    def final(self, challenge: bytes) -> bytes:
        """The proof, to the server's first answer. ScramError if that cannot be trusted."""
        said = _attributes(challenge, "r", "s", "i")
        nonce, count = said["r"], said["i"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not go on from the client's: expected an answer to this exchange")
        try:
            salt = base64.b64decode(said["s"], validate=True)
        except (binascii.Error, ValueError):
            raise ScramError("the server's salt is no base64") from None
        if not count.isdecimal() or len(count) > 7 or not LEAST_ITERATIONS <= int(count) <= MOST_ITERATIONS:
            raise ScramError(
                f"the server asks for {count[:20]} iterations: expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        salted = _salted(self._hash, self._password, salt, int(count))
        without_proof = b"c=" + base64.b64encode(_HEADER) + b",r=" + nonce.encode()
        spoken = b",".join((self._bare, challenge, without_proof))
        client_key = self._mac(salted, b"Client Key")
        client_signature = self._mac(hashlib.new(self._hash, client_key).digest(), spoken)
        proof = (int.from_bytes(client_key) ^ int.from_bytes(client_signature)).to_bytes(len(client_key))
        self._signature = self._mac(self._mac(salted, b"Server Key"), spoken)
        return without_proof + b",p=" + base64.b64encode(proof)

    def check(self, answer: bytes) -> None:
        """ScramError unless the server has proved that it knows the password."""
        if answer.startswith(b"e="):
            raise ScramError(f"the server says: {answer[2:200].decode('utf-8', 'replace')}")
        signature = _attributes(answer, "v")["v"]
        expected = base64.b64encode(self._signature or b"").decode()
        if self._signature is None or not hmac.compare_digest(signature.encode(), expected.encode()):
            raise ScramError("the server's signature is wrong: it does not know the password")

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


@lru_cache(maxsize=64)
def _salted(kind: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """A millisecond or more of work, which is the same for every connection of a user: a broker has many, and makes
    them anew when another one dies."""
    return hashlib.pbkdf2_hmac(kind, password, salt, iterations)


def _attributes(message: bytes, *names: str) -> dict[str, str]:
    """``a=...,b=...`` in this order; what follows is an extension and passed over, one that is mandatory is not."""
    try:
        parts = message.decode("utf-8").split(",")
    except UnicodeDecodeError:
        raise ScramError("the server's message is not UTF-8") from None
    found = {}
    for name, part in zip(names, parts, strict=False):
        if part[:2] != f"{name}=":
            raise ScramError(f"the server's message has {part[:2]!r}: expected {name}=")
        found[name] = part[2:]
    if len(found) != len(names):
        raise ScramError(f"the server's message ends early: expected {', '.join(names)}")
    return found
