"""JSON of a node: written as Kafka writes it, read with an error that names the node, the key and what was expected.

Unknown keys are skipped, as Kafka's readers skip them: so both sides may add some. All of ours in nodes of Kafka's
stand below the one key ``holdfast``, where no later version of Kafka has one.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from holdfast.model.errors import MetadataError

OUR_KEY: Final = "holdfast"
INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1

_encoder: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def encode(values: Mapping[str, Any]) -> bytes:
    """The data of a node."""
    return _encoder.encode(values).encode()


def id_text(value: UUID) -> str:
    """Kafka's text of an id: base64 for URLs without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def wrong(path: str, what: str, expected: str) -> MetadataError:
    """The error of a node that does not say what it should."""
    return MetadataError(f"znode {path}: {what}: expected {expected}")


class Fields:
    """The keys of one JSON object of the node at ``path``; each method says which type it expects.

    With ``default`` a key may be missing or null. Errors: MetadataError.
    """

    __slots__ = ("_values", "_where", "path")

    def __init__(self, path: str, values: Mapping[str, Any], where: str = "") -> None:
        self.path = path
        self._values = values
        self._where = where

    @classmethod
    def of(cls, path: str, data: bytes) -> "Fields":
        """Of the whole node."""
        try:
            text = data.decode()
            values = json.loads(text)
            if "\\u" in text:
                _encoder.encode(values).encode()  # half of a surrogate pair is no character
        except (ValueError, RecursionError) as e:
            raise wrong(path, f"{data[:80]!r} is no JSON", "an object") from e
        if not isinstance(values, dict):
            raise wrong(path, f"{data[:80]!r}", "a JSON object")
        return cls(path, values)

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    @property
    def names(self) -> Sequence[str]:
        """All keys that are there."""
        return list(self._values)

    def wrong(self, key: str, expected: str) -> MetadataError:
        """The error of this key."""
        if key not in self._values:
            return wrong(self.path, f"{self._where}{key} is missing", expected)
        return wrong(self.path, f"{self._where}{key} is {repr(self._values[key])[:80]}", expected)

    def integer(self, key: str, default: int | None = None, *, low: int = 0, high: int = INT32) -> int:
        """A number from ``low`` to ``high``."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key, f"a number from {low} to {high}")
        return value

    def is_number(self, key: str) -> bool:
        """Whether it is there and is a number, of whatever size."""
        return type(self._values.get(key)) is int

    def number_text(self, key: str) -> int:
        """A number of 64 bits in a string."""
        value = self._values.get(key)
        if not isinstance(value, str) or not _is_number(value):
            raise self.wrong(key, "a number in a string")
        return int(value)

    def text(self, key: str) -> str:
        """A string."""
        value = self._values.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None when it is missing."""
        return self.text(key) if key in self else None

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._values.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def brokers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Broker ids."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            raise self.wrong(key, "an array of broker ids")
        for member in value:
            if type(member) is not int or not 0 <= member <= INT32:
                raise self.wrong(key, "an array of broker ids")
        return tuple(value)

    def uuid(self, key: str) -> UUID:
        """An id in Kafka's text."""
        found = _uuid(self._values.get(key))
        if found is None:
            raise self.wrong(key, "an id, 22 characters of base64")
        return found

    def uuids(self, key: str) -> tuple[UUID, ...]:
        """Ids, likewise."""
        value = self._values.get(key)
        found = [_uuid(member) for member in value] if isinstance(value, list) else [None]
        ids = tuple(member for member in found if member is not None)
        if len(ids) != len(found):
            raise self.wrong(key, "an array of ids, each of 22 characters of base64")
        return ids

    def texts(self, key: str) -> dict[str, str]:
        """An object of strings."""
        value = self._values.get(key)
        if not isinstance(value, dict) or not all(isinstance(member, str) for member in value.values()):
            raise self.wrong(key, "an object of strings")
        return dict(value)

    def strings(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(isinstance(member, str) for member in value):
            raise self.wrong(key, "an array of strings")
        return tuple(value)

    def object(self, key: str, *, required: bool = True) -> "Fields":
        """Another object; an empty one if it is missing and need not be there."""
        value = self._values.get(key)
        if value is None and not required:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(self.path, value, f"{self._where}{key}.")

    def objects(self, key: str) -> "list[Fields]":
        """An array of objects."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(isinstance(member, dict) for member in value):
            raise self.wrong(key, "an array of objects")
        return [Fields(self.path, member, f"{self._where}{key}[{i}].") for i, member in enumerate(value)]


def _uuid(value: object) -> UUID | None:
    if not isinstance(value, str) or len(value) != 22:
        return None
    try:
        found = UUID(bytes=base64.b64decode(value + "==", altchars=b"-_", validate=True))
    except ValueError:
        return None
    return found if id_text(found) == value else None


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 19 and -INT64 - 1 <= int(text) <= INT64
