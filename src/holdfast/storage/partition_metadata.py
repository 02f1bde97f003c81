"""``partition.metadata``: which topic (by id) a partition's directory belongs to.

Owns the file's format, which is Kafka's. A directory whose id is not the one of the topic that has its name
now belongs to a topic that was deleted while the disk was away (KIP-516).
"""

import base64
from uuid import UUID

from holdfast.model.errors import InconsistentTopicIdError
from holdfast.model.types import TopicId
from holdfast.storage.files import FileSystem

FILE_NAME = "partition.metadata"
_HEAD = b"version: 0\ntopic_id: "


def encode_uuid(value: UUID) -> str:
    """Kafka's text of an id: base64 for URLs without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """The id in Kafka's text; ValueError when it is none."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError as e:
        raise ValueError(f"id {text!r}: expected 22 characters of base64") from e


def encode(topic_id: TopicId) -> bytes:
    """The file's text."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode(data: bytes) -> TopicId:
    """The topic id in the file's text; ValueError when it is not one."""
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError(f"expected version 0 and a topic_id, found {data[:60]!r}")
    return decode_uuid(fields["topic_id"])


def read(files: FileSystem, path: str) -> TopicId | None:
    """The id in the file; None when there is no file, or what a crash left of one."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    return None if _is_torn(data) else decode(data)


def _is_torn(data: bytes) -> bool:
    """What a loss of power makes of a file of ours that was not synced: it ends early, or with zeros."""
    whole = len(_HEAD) + 22
    return (
        b"\0" in data
        or not data.strip()
        or _HEAD.startswith(data)
        or (data.startswith(_HEAD) and len(data) < whole and not data.endswith(b"\n"))
    )


def check(files: FileSystem, directory: str, topic_id: TopicId | None) -> TopicId | None:
    """The topic id of an existing replica: the stored one, which must be the expected one if there are both."""
    path = f"{directory}/{FILE_NAME}"
    try:
        stored = read(files, path)
    except ValueError as e:
        raise InconsistentTopicIdError(f"{path}: {e}") from e
    if stored is None:
        if topic_id is not None:
            write(files, directory, topic_id)
        return topic_id
    if topic_id is not None and topic_id != stored:
        raise InconsistentTopicIdError(f"{directory} is of topic id {stored}: expected {topic_id}")
    return stored


def write(files: FileSystem, directory: str, topic_id: TopicId) -> None:
    """Not synced: thousands of replicas are made at once. The first sync of data syncs it as well."""
    handle = files.open(f"{directory}/{FILE_NAME}", create=True)
    handle.pwritev((encode(topic_id),), 0)
    handle.close()


def sync(files: FileSystem, directory: str, topic_id: TopicId | None) -> None:
    """Bring the file and the names in the directory to the device."""
    if topic_id is not None:
        handle = files.open(f"{directory}/{FILE_NAME}", create=True)
        handle.pwritev((encode(topic_id),), 0)
        handle.fsync()
        handle.close()
    files.fsync_dir(directory)
