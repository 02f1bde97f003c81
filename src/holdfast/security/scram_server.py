"""SCRAM on a broker's side (RFC 5802, RFC 7677), without channel binding, as in Kafka.

    client  n,[a=NAME],n=NAME,r=NONCE            answer -> r=NONCE+OURS,s=SALT,i=ITERATIONS
    client  c=HEADER,r=NONCE+OURS,p=PROOF        answer -> v=SIGNATURE

Who is not known is answered as who is: with a salt that follows from the name and a secret of the cluster, so it is
the same at every broker and after every restart, in the form that users' salts have (scram_forms.py); and the login
fails where a wrong password does. The nonce is the caller's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from enum import Enum
from typing import Final

from holdfast.model.shown import shown
from holdfast.model.transitions import Transitions
from holdfast.security.principal import Principal
from holdfast.security.sasl_mechanism import Challenge, Proved, Refused, SaslStep
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from holdfast.security.scram_forms import CredentialForms

MOST_BYTES: Final = 8192
"""Of one message; names, nonces and proofs are far shorter."""
_PRINTABLE: Final = bytes(range(0x21, 0x7F))


class ScramState(Enum):
    """How far one login is."""

    BEGINS = "begins"
    CHALLENGED = "challenged"
    OVER = "over"


class ScramEvent(Enum):
    """What happens to it."""

    FIRST = "the client's first message"
    FINAL = "its last one"
    WRONG = "a message that cannot be taken"


SCRAM: Final = Transitions(
    starts=(ScramState.BEGINS,),
    moves={
        (ScramState.BEGINS, ScramEvent.FIRST): ScramState.CHALLENGED,
        (ScramState.BEGINS, ScramEvent.WRONG): ScramState.OVER,
        (ScramState.CHALLENGED, ScramEvent.FINAL): ScramState.OVER,
        (ScramState.CHALLENGED, ScramEvent.WRONG): ScramState.OVER,
    },
)


def credential_of_nobody(
    secret: bytes, mechanism: ScramMechanism, user: str, forms: CredentialForms
) -> ScramCredential:
    """What a user who is not known is asked to prove, and cannot. ``secret``: the cluster's, of which 64 bytes count;
    ``forms``: those of the users that it has with this mechanism."""
    seed = b"%d\0%s" % (mechanism, user.encode())
    secret = secret[: hashlib.blake2b.MAX_KEY_SIZE]
    form = forms.of(seed, secret)
    key = hashlib.blake2b(seed, key=secret, digest_size=mechanism.key_bytes, person=b"key").digest()
    salt = form.salt(seed, secret)
    return ScramCredential(salt=salt, stored_key=key, server_key=key, iterations=form.iterations)


class ScramServer:
    """One login. ``find``: the credential of a user, None if there is none; ``forms``: those of all of them."""

    __slots__ = (
        "_bare", "_challenge", "_credential", "_find", "_forms", "_header", "_is_known", "_mechanism", "_nonce",
        "_secret", "_state", "_user",
    )  # fmt: skip

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], ScramCredential | None],
        secret: bytes,
        nonce: str,
        forms: CredentialForms,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._secret = secret
        self._nonce = nonce
        self._forms = forms
        self._state = ScramState.BEGINS
        self._header = self._bare = self._challenge = b""
        self._user = ""
        self._is_known = False
        self._credential: ScramCredential | None = None

    def answer(self, token: bytes, now_ms: int) -> SaslStep:
        """One message of the client. AssertionError: the login is over."""
        step = self._first(token) if self._state is ScramState.BEGINS else self._final(token)
        if isinstance(step, Refused):
            event = ScramEvent.WRONG
        else:
            event = ScramEvent.FIRST if isinstance(step, Challenge) else ScramEvent.FINAL
        self._state = SCRAM.after(self._state, event)
        return step

    def _first(self, token: bytes) -> SaslStep:
        if len(token) > MOST_BYTES:
            return Refused(f"a first message of {len(token)} bytes, expected {MOST_BYTES} at most")
        if token[:2] != b"n,":
            return Refused("a first message that asks for channel binding, or is none: expected n,")
        acts_for, comma, bare = token[2:].partition(b",")
        parts = bare.split(b",")
        if not comma or len(parts) < 2 or parts[0][:2] != b"n=" or parts[1][:2] != b"r=" or acts_for[:2] not in (
            b"", b"a=",
        ):  # fmt: skip
            return Refused("a first message of another form: expected n,[a=NAME],n=NAME,r=NONCE")
        user, other, nonce = _name(parts[0][2:]), _name(acts_for[2:]), parts[1][2:]
        if not user or other is None or not _is_printable(nonce):
            return Refused("a first message with a name or a nonce that cannot be read")
        if other and other != user:  # CVE-2017-12610
            return Refused(f"user {shown(user)} asks for the authorization id of another one")
        if any(part.startswith(b"tokenauth=") for part in parts[2:]):
            return Refused("a delegation token: there are none here")
        nobody = credential_of_nobody(self._secret, self._mechanism, user, self._forms)
        found = self._find(user)
        self._user, self._is_known = user, found is not None
        self._credential = credential = nobody if found is None else found
        self._header, self._bare = token[: len(token) - len(bare)], bare
        self._challenge = b"r=%s%s,s=%s,i=%d" % (
            nonce, self._nonce.encode(), base64.b64encode(credential.salt), credential.iterations,
        )  # fmt: skip
        return Challenge(self._challenge)

    def _final(self, token: bytes) -> SaslStep:
        credential = self._credential
        assert credential is not None, "there was a first message"
        if len(token) > MOST_BYTES:
            return Refused(f"a last message of {len(token)} bytes, expected {MOST_BYTES} at most")
        without_proof, comma, encoded = token.rpartition(b",p=")
        parts = without_proof.split(b",")
        if not comma or len(parts) < 2 or parts[0][:2] != b"c=" or parts[1][:2] != b"r=":
            return Refused("a last message of another form: expected c=HEADER,r=NONCE,p=PROOF")
        nonce = self._challenge[: self._challenge.index(b",s=")]
        if not hmac.compare_digest(parts[1], nonce):  # CVE-2024-56128: of this login, and no other
            return Refused("a last message with another nonce")
        header, proof = _decoded(parts[0][2:]), _decoded(encoded)
        if header != self._header:
            return Refused("a last message with another header, or channel binding")
        spoken = b",".join((self._bare, self._challenge, without_proof))
        name = self._mechanism.hash_name
        signature = hmac.digest(credential.stored_key, spoken, name)
        if proof is None or len(proof) != len(signature):
            return Refused("a proof of another length, or no base64")
        client_key = (int.from_bytes(proof) ^ int.from_bytes(signature)).to_bytes(len(proof))
        is_right = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
        if not is_right or not self._is_known:
            return Refused(f"user {shown(self._user)}: unknown, or another password")
        verifier = hmac.digest(credential.server_key, spoken, name)
        return Proved(b"v=" + base64.b64encode(verifier), Principal.user(self._user))


def _name(escaped: bytes) -> str | None:
    """A name of a message: =2C is a comma, =3D an equals sign, and there is no other."""
    try:
        text = escaped.decode()
    except UnicodeDecodeError:
        return None
    if "=" not in text:
        return text
    plain = text.replace("=2C", ",").replace("=3D", "\0")
    return None if "=" in plain or "\0" in text else plain.replace("\0", "=")


def _is_printable(nonce: bytes) -> bool:
    """RFC 5802: ASCII that can be seen, without a comma."""
    return bool(nonce) and not nonce.translate(None, _PRINTABLE)


def _decoded(encoded: bytes) -> bytes | None:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
