"""Keys of those who sign tokens (JWKS, RFC 7517), and whether one of them has signed this token (RFC 7515, 7518).

Values and arithmetic; where keys come from and when they are asked for again is broker/bearer_keys.py's. A key is for
one kind of algorithm alone, so a token's header cannot have a public key taken for a secret, and there are only those
algorithms whose check costs an event loop less than a tenth of a millisecond.

``cryptography`` (extra ``oauth``) is loaded by whoever checks tokens, and by nobody else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from holdfast.model.errors import ConfigError
from holdfast.security.bearer_token import BearerToken, TokenError, read_json

MOST_KEYS: Final = 100
MOST_KEY_SET_BYTES: Final = 1 << 20
MOST_KEY_ID: Final = 1000
RSA_BITS: Final = (2048, 4096)
"""Fewer are not safe (RFC 7518, 3.3), more are slow."""
_RSA: Final = {
    "RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512", "PS256": "SHA256", "PS384": "SHA384", "PS512": "SHA512",
}  # fmt: skip
_EC: Final = ("ES256",)
ALGORITHMS: Final = (*_RSA, *_EC)
WITHOUT_EXTRA: Final = "signatures of tokens are checked by the extra oauth: pip install 'holdfast[oauth]'"
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")
_Check: TypeAlias = Callable[[str, bytes, bytes], bool]
"""(algorithm, signature, signed) -> whether it is the key's."""


class UnknownKeyError(TokenError):
    """A token names a key that is not known (yet)."""


@dataclass(frozen=True, slots=True)
class _Key:
    algorithms: tuple[str, ...]
    check: _Check


class TokenKeys:
    """Those of one provider, as it published them; never changed."""

    def __init__(self, keys: Mapping[str | None, tuple[_Key, ...]]) -> None:
        self._by_id = keys

    def __len__(self) -> int:
        return sum(map(len, self._by_id.values()))

    @classmethod
    def parse(cls, text: bytes) -> TokenKeys:
        """Of a JWKS. Keys that are for something else, or cannot be read, are left out. ValueError: it is no JWKS, too
        large, or none of its keys signs tokens here. ConfigError: the extra is missing."""
        if len(text) > MOST_KEY_SET_BYTES:
            raise ValueError(f"more than {MOST_KEY_SET_BYTES} bytes")
        said = read_json(text)
        keys = said.get("keys") if isinstance(said, dict) else None
        if not isinstance(keys, list):
            raise ValueError("expected a JWKS: an object with a list of keys")
        if len(keys) > MOST_KEYS:
            raise ValueError(f"{len(keys)} keys: expected {MOST_KEYS} at most")
        found: dict[str | None, tuple[_Key, ...]] = {}
        for each in keys:
            try:
                key = _key(each) if isinstance(each, dict) else None
            except ValueError:
                continue  # one that nobody can use does not lock out those who sign with the others
            if key is not None:
                name = each.get("kid")
                found[name] = (*found.get(name, ()), key)
        if not found:
            raise ValueError(f"expected one key at least that signs tokens by {', '.join(ALGORITHMS)}")
        return cls(found)

    def check(self, token: BearerToken) -> None:
        """TokenError: nobody who is known has signed it, or it cannot be said which key did."""
        algorithm = token.algorithm
        if algorithm not in ALGORITHMS:
            raise TokenError(f"the token's algorithm: expected {', '.join(ALGORITHMS)}")
        candidates = [key for key in self._named(token) if algorithm in key.algorithms]
        if len(candidates) != 1:
            raise TokenError(f"{len(candidates)} keys could have signed the token by {algorithm}: expected one (kid)")
        if not candidates[0].check(algorithm, token.signature, token.signed):
            raise TokenError("the token's signature is wrong")

    def _named(self, token: BearerToken) -> tuple[_Key, ...]:
        name = token.header.get("kid")
        if name is None:
            return tuple(key for keys in self._by_id.values() for key in keys)
        if not isinstance(name, str) or len(name) > MOST_KEY_ID:
            raise TokenError(f"the token's key (kid): expected a name of {MOST_KEY_ID} characters at most")
        if name not in self._by_id:
            raise UnknownKeyError("the token's key (kid) is none of those that are known")
        return self._by_id[name]


def _key(said: Mapping[str, Any]) -> _Key | None:
    """None: it is no key for this. ValueError: it says that it is, and cannot be read."""
    kind, algorithm, name = said.get("kty"), said.get("alg"), said.get("kid")
    operations = said.get("key_ops")
    if said.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    if name is not None and not (isinstance(name, str) and len(name) <= MOST_KEY_ID):
        return None
    if kind == "RSA":
        algorithms, make = tuple(_RSA), _rsa
    elif kind == "EC" and said.get("crv") == "P-256":
        algorithms, make = _EC, _ec
    else:
        return None
    if algorithm is not None:
        if algorithm not in algorithms:
            return None
        algorithms = (algorithm,)
    check = make(said)
    return None if check is None else _Key(algorithms, check)


def _number(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    if not isinstance(value, str) or not _BASE64.fullmatch(value) or len(value) % 4 == 1 or len(value) > 2000:
        raise ValueError(f"a key's {name}: expected base64url")
    return int.from_bytes(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)), "big")


def _rsa(said: Mapping[str, Any]) -> _Check | None:
    """None: a key of a size that is not taken."""
    modulus, exponent = _number(said, "n"), _number(said, "e")
    if not RSA_BITS[0] <= modulus.bit_length() <= RSA_BITS[1]:
        return None
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    except ImportError:
        raise ConfigError(WITHOUT_EXTRA) from None
    if exponent.bit_length() > 32:
        raise ValueError("a key's e: expected a number of 32 bits")
    public = RSAPublicNumbers(exponent, modulus).public_key()
    digests = {"SHA256": hashes.SHA256(), "SHA384": hashes.SHA384(), "SHA512": hashes.SHA512()}

    def check(algorithm: str, signature: bytes, signed: bytes) -> bool:
        digest = digests[_RSA[algorithm]]
        if algorithm.startswith("PS"):
            form: padding.AsymmetricPadding = padding.PSS(padding.MGF1(digest), digest.digest_size)
        else:
            form = padding.PKCS1v15()
        try:
            public.verify(signature, signed, form, digest)
        except InvalidSignature:
            return False
        return True

    return check


def _ec(said: Mapping[str, Any]) -> _Check | None:
    x, y = _number(said, "x"), _number(said, "y")
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
    except ImportError:
        raise ConfigError(WITHOUT_EXTRA) from None
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    how = ec.ECDSA(SHA256())

    def check(algorithm: str, signature: bytes, signed: bytes) -> bool:
        if len(signature) != 64:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            public.verify(encode_dss_signature(r, s), signed, how)
        except InvalidSignature:
            return False
        return True

    return check
