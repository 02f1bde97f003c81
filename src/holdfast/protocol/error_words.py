"""The words of Kafka's error codes, for an answer that has a code and no message: the code's name, as a sentence."""

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

_NAMES: Final = {int(code): code.name for code in ErrorCode}
_TOOLS: Final[Mapping[int, str]] = {
    15: "The coordinator is not available.",
    24: "The group id is invalid.",
    68: "The group is not empty.",
    69: "The group id does not exist.",
}
"""What Kafka's tools for groups print, which scripts match."""


def words_of(code: int) -> str:
    """``Cluster authorization failed.`` of 31; of a code that has no name, the number."""
    name = _NAMES.get(code)
    if name is None:
        return f"Kafka error {code}"
    return _TOOLS.get(code) or f"{name.replace('_', ' ').capitalize()}."
