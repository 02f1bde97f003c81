"""What can be seen of SCRAM credentials before a login: how long salts are, of which characters, how many iterations.

Tools differ in it: Kafka's make salts of 24 to 26 characters, librdkafka of 64 bytes, ours of 24. Who is not known is
answered in the form of one of the users that there are, so that the form tells nothing. Which one follows from the
name, and each form is as frequent among names of nobody as among users. Where all users have one form no answer ever
changes; where another form comes or goes, those of a few names do.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from enum import IntEnum
from itertools import accumulate
from typing import Final, NamedTuple

from holdfast.security.scram_credential import LEAST_ITERATIONS, SALT_BYTES, ScramCredential

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_KAFKAS: Final = 1 << 130
"""Kafka's salts are numbers below this, written with digits and letters (ScramFormatter)."""
_KAFKAS_LENGTHS: Final = (24, 25, 26)
"""Of those salts. A shorter one is one of a million millions."""
_NUMBER: Final = 8
"""Bytes of the number that a name gives."""


class SaltText(IntEnum):
    """Which bytes a salt is made of: the first of these that fits."""

    HEX = 16
    """As people write random bytes."""
    DIGITS_AND_LETTERS = 36
    """As Kafka does."""
    BYTES = 256

    @classmethod
    def of(cls, salt: bytes) -> SaltText:
        for text in (cls.HEX, cls.DIGITS_AND_LETTERS):
            if not salt.translate(None, _DIGITS[:text]):
                return text
        return cls.BYTES


class CredentialForm(NamedTuple):
    """What a challenge shows of a credential beside its salt's own value."""

    salt_bytes: int
    text: SaltText
    iterations: int

    @classmethod
    def of(cls, credential: ScramCredential) -> CredentialForm:
        return cls(len(credential.salt), SaltText.of(credential.salt), credential.iterations)

    def salt(self, seed: bytes, key: bytes) -> bytes:
        """One of this form that follows from the seed and a key of 64 bytes at most. BLAKE2, as it is made for every
        login: OpenSSL's HMAC takes more than three times as long."""
        size, blocks = self.salt_bytes, list[bytes]()
        enough = size if self.text is SaltText.BYTES else size + 16
        for number in range(-(-enough // hashlib.blake2b.MAX_DIGEST_SIZE)):
            salted = number.to_bytes(2)
            blocks.append(hashlib.blake2b(seed, key=key, salt=salted, person=b"salt").digest())
        random = b"".join(blocks)
        if self.text is SaltText.BYTES:
            return random[:size]
        least, beyond = int(self.text) ** (size - 1) if size else 0, int(self.text) ** size
        if self.text is SaltText.DIGITS_AND_LETTERS and size in _KAFKAS_LENGTHS:
            beyond = min(beyond, _KAFKAS)
        elif size:
            least = 0
        return _written(least + int.from_bytes(random) % (beyond - least), int(self.text), size)


def _written(number: int, base: int, size: int) -> bytes:
    digits = bytearray(size)
    for at in range(size - 1, -1, -1):
        number, digit = divmod(number, base)
        digits[at] = _DIGITS[digit]
    return bytes(digits)


DEFAULT: Final = CredentialForm(SALT_BYTES, SaltText.BYTES, LEAST_ITERATIONS)
"""Where there are no users: as our own command makes them."""


class CredentialForms:
    """How many credentials of one mechanism have which form. A choice costs the same however many users there are."""

    def __init__(self) -> None:
        self._counts = Counter[CredentialForm]()
        self._forms: list[CredentialForm] = []
        """In an order that is the same at all brokers."""
        self._ends: list[int] = []
        """How many credentials have one of the first forms. Empty: not counted since something changed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CredentialForms) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]

    def add(self, credential: ScramCredential) -> None:
        self._counts[CredentialForm.of(credential)] += 1
        self._ends = []

    def remove(self, credential: ScramCredential) -> None:
        form = CredentialForm.of(credential)
        self._counts[form] -= 1
        if not self._counts[form]:
            del self._counts[form]
        self._ends = []

    def clear(self) -> None:
        self._counts.clear()
        self._ends = []

    def of(self, seed: bytes, key: bytes) -> CredentialForm:
        """The form for what nobody has chosen, by a number that the seed and the key give."""
        if not self._counts:
            return DEFAULT
        if not self._ends:
            self._forms = sorted(self._counts)
            self._ends = list(accumulate(self._counts[form] for form in self._forms))
        digest = hashlib.blake2b(seed, key=key, digest_size=_NUMBER, person=b"form").digest()
        at = int.from_bytes(digest) * self._ends[-1] >> 8 * _NUMBER
        return self._forms[bisect_right(self._ends, at)]
