"""The mark of a store whose metadata is to be found in another one: it was moved there, or is on its way from there.

Owns the form of the mark and what a broker says that meets one. Where it stands is the store's: in the notes of the
embedded store, in MOVED of ZooKeeper's tree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from holdfast.model.errors import MetadataError, MetadataMovedError

FILE: Final = "the file "
"""What ``to`` begins with where the metadata comes out of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """``to``: the store that counts, in words for a person. ``by``: the migration that wrote this mark.

    ``is_whole``: all of the metadata is here too, as it was when it left or arrived. False: what is here is a part of
    it, or older."""

    to: str
    by: str
    is_whole: bool

    def values(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {"version": 1, "to": self.to, "by": self.by, "whole": self.is_whole}

    @classmethod
    def of(cls, where: str, found: Any) -> Moved:
        """What ``values`` wrote; MetadataError for anything else."""
        if (
            not isinstance(found, dict)
            or not (type(found.get("to")) is str and type(found.get("by")) is str)
            or type(found.get("whole")) is not bool
        ):
            raise MetadataError(
                f"{where}: {json.dumps(found)[:80]}: expected where the metadata was moved: to, by, whole"
            )
        return cls(to=found["to"], by=found["by"], is_whole=found["whole"])

    def refusal(self, here: str) -> MetadataMovedError:
        """What a broker says that was to use the store ``here``."""
        if self.to.startswith(FILE):
            return MetadataMovedError(
                f"{here} holds no whole metadata: `holdfast metadata import` of {self.to} was not done. Run it again"
            )
        if self.is_whole:
            return MetadataMovedError(
                f"{here} was left: `holdfast metadata migrate` has moved this cluster's metadata to {self.to}. Start "
                "the brokers with metadata.store of there; if it did not say that it was done, run it again first"
            )
        return MetadataMovedError(
            f"{here} holds no whole metadata: it is in {self.to}, from where `holdfast metadata migrate` was bringing "
            "it. Run that again, or start the brokers with metadata.store of there"
        )


def encode(moved: Moved) -> bytes:
    """The data of a node."""
    return json.dumps(moved.values()).encode()


def decode(where: str, data: bytes) -> Moved:
    """MetadataError names ``where``."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise MetadataError(f"{where}: {data[:80]!r} is no JSON: expected where the metadata was moved") from e
    return Moved.of(where, found)
