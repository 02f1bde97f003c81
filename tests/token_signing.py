"""JSON Web Tokens for tests, that somebody has signed, or nobody, and the JWKS of who signs; made on the spot."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_DIGESTS = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


def packed(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def packed_json(value: Any) -> str:
    return packed(json.dumps(value).encode())


def packed_number(number: int) -> str:
    return packed(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def unsecured(claims: Mapping[str, Any], *, alg: str = "none") -> str:
    """A token that nobody has signed."""
    return f"{packed_json({'alg': alg})}.{packed_json(claims)}."


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Made once in a process: it takes a tenth of a second."""
    return rsa.generate_private_key(65537, bits)


@dataclass(frozen=True)
class Signer:
    """Of one key; ``kid`` None: its key has no name."""

    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    kid: str | None = "k1"

    @classmethod
    def ec(cls, kid: str | None = "k1") -> Signer:
        return cls(ec.generate_private_key(ec.SECP256R1()), kid)

    @classmethod
    def rsa(cls, kid: str | None = "k1") -> Signer:
        return cls(rsa_key(), kid)

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key as it is published."""
        name = {} if self.kid is None else {"kid": self.kid}
        if isinstance(self.key, rsa.RSAPrivateKey):
            numbers = self.key.public_key().public_numbers()
            return {"kty": "RSA", "use": "sig", "n": packed_number(numbers.n), "e": packed_number(numbers.e), **name}
        point = self.key.public_key().public_numbers()
        x, y = (packed(each.to_bytes(32, "big")) for each in (point.x, point.y))
        return {"kty": "EC", "crv": "P-256", "use": "sig", "x": x, "y": y, **name}

    @property
    def jwks(self) -> bytes:
        return json.dumps({"keys": [self.jwk]}).encode()

    def token(self, claims: Mapping[str, Any], *, alg: str | None = None, **header: Any) -> str:
        """``header``: more of it, or other names."""
        alg = alg or ("RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "ES256")
        said = {"alg": alg, "typ": "JWT", **({} if self.kid is None else {"kid": self.kid}), **header}
        signed = f"{packed_json(said)}.{packed_json(claims)}"
        return f"{signed}.{packed(self.signature(signed.encode(), alg))}"

    def signature(self, signed: bytes, alg: str) -> bytes:
        digest = _DIGESTS[alg[2:]]
        if isinstance(self.key, rsa.RSAPrivateKey):
            form: padding.AsymmetricPadding = padding.PKCS1v15()
            if alg.startswith("PS"):
                form = padding.PSS(padding.MGF1(digest), digest.digest_size)
            return self.key.sign(signed, form, digest)
        r, s = decode_dss_signature(self.key.sign(signed, ec.ECDSA(digest)))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
