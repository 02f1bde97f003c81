"""What stands behind a schema registry's prefix, and what a registry says of it. Needs neither numpy nor pyarrow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

PREFIX_BYTES: Final = 5
"""A byte 0 and the id, big-endian."""
MAX_ID: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """What a registry has under an id."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    """The schema. Of PROTOBUF the FileDescriptorProto in base64, which registries call the format ``serialized``."""
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of the schemas that it uses, each after those that it uses itself."""


Lookup: TypeAlias = Callable[[int], RegisteredSchema | None]
"""None for an id that the registry does not know. It raises where it cannot find out."""
