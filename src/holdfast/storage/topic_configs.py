"""``holdfast.topics``: the configurations of topics as a broker last knew them, one file in each log directory.

Beside the ids in ``partition.metadata`` it is what lets the metadata be rebuilt when every copy of it is gone. Owns the
format. ``told`` orders two of them: the controller's epoch and the offset of the metadata that the broker had.

``holdfast.recovered``: the metadata was rebuilt, and nobody has confirmed the configurations yet: retention deletes
nothing in a directory that has it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.storage.files import FileSystem

FILE_NAME = "holdfast.topics"
RECOVERED = "holdfast.recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """Topic -> its own configuration. Topics without one are not in it."""

    told: tuple[int, int] = (-1, -1)
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The file's text."""
        return json.dumps({"version": 1, "told": list(self.told), "topics": self.topics}, sort_keys=True).encode()


def decode(data: bytes) -> TopicConfigs:
    """ValueError for what is no such file."""
    try:
        value = json.loads(data)
        epoch, offset = value["told"]
        topics = {
            _text(topic): {_text(k): _text(v) for k, v in found.items()} for topic, found in value["topics"].items()
        }
        if value["version"] != 1 or type(epoch) is not int or type(offset) is not int:
            raise ValueError(f"expected version 1, found {value['version']!r}")
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError(f"no configurations of topics: {e}") from e
    return TopicConfigs(told=(epoch, offset), topics=topics)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def read(files: FileSystem, directory: str) -> TopicConfigs | None:
    """None when there is no file, or a torn one."""
    try:
        return decode(files.read_bytes(f"{directory}/{FILE_NAME}"))
    except (FileNotFoundError, ValueError):
        return None


def write(files: FileSystem, directory: str, configs: TopicConfigs) -> None:
    files.write_atomic(f"{directory}/{FILE_NAME}", configs.encode())
