"""The small text files of a log directory: four offset checkpoints and the mark of a clean shutdown.

Owns their formats, which are Kafka's: ``recovery-point-offset-checkpoint`` (all before it is on the
device), ``log-start-offset-checkpoint``, ``replication-offset-checkpoint`` (high watermarks),
``cleaner-offset-checkpoint`` (all before it is compacted) and ``.kafka_cleanshutdown``. A checkpoint is version 0,
the number of lines, and a line "topic partition offset" each. Always written as a whole (tmp, fsync, rename, fsync
of the directory). A file that cannot be parsed
counts as missing: recovery is the answer to that, never a crash; an I/O error is not swallowed here.
"""

import json
import logging
from collections.abc import Iterable, Mapping

from holdfast.model.types import BrokerEpoch, Offset, TopicPartition
from holdfast.storage.files import FileSystem

log = logging.getLogger(__name__)

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
OFFSETS = (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER)
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_STAGED = ".next.tmp"
_VERSION = "0"
_MAX_OFFSET = 2**63 - 1
_MAX_PARTITION = 2**31 - 1


class _BadCheckpoint(ValueError):
    """The text is not a checkpoint."""


def encode_offsets(offsets: Iterable[tuple[TopicPartition, Offset]]) -> bytes:
    """The text of an offset checkpoint."""
    lines = [f"{tp.topic} {tp.partition} {offset}\n" for tp, offset in offsets]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    """The offsets in a checkpoint's text; ValueError when it is not one."""
    found: dict[TopicPartition, Offset] = {}
    for fields in decode_lines(data, fields=3):
        tp = TopicPartition(fields[0], decode_number(fields[1], _MAX_PARTITION))
        found[tp] = decode_number(fields[2], _MAX_OFFSET)
    return found


def decode_number(text: str, largest: int = _MAX_OFFSET) -> int:
    """A number as checkpoints have them: digits, no sign; ValueError when it is not one. Python's int takes more."""
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > largest:
        raise _BadCheckpoint(f"expected a number from 0 to {largest}, found {text[:40]!r}")
    return int(text)


def decode_lines(data: bytes, *, fields: int) -> list[list[str]]:
    """The lines, split in fields, of any of Kafka's checkpoint files; ValueError when it is not one."""
    if not data:
        return []  # Kafka leaves an empty file between creation and the first write
    lines = data.decode().split("\n")
    if len(lines) < 3 or lines[-1] or lines[0] != _VERSION:
        raise _BadCheckpoint(f"expected version {_VERSION}, a count and lines, found {data[:40]!r}")
    rows = [line.split(" ") for line in lines[2:-1]]
    if len(rows) != decode_number(lines[1]) or any(len(row) != fields for row in rows):
        raise _BadCheckpoint(f"expected {lines[1]} lines of {fields} fields, found {len(rows)} lines")
    return rows


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """The checkpoint at ``path``; empty when it is missing or cannot be parsed."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return {}
    try:
        return decode_offsets(data)
    except ValueError as e:
        log.warning("%s is not a checkpoint, it is ignored and the logs are recovered: %s", path, e)
        return {}


def write_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace the checkpoint at ``path``."""
    files.write_atomic(path, encode_offsets(offsets.items()))


def stage_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """What the checkpoint at ``path`` is to say, on the device, beside it: on another thread than the directory's."""
    files.unlink(path + _STAGED)  # one that an earlier life writes still is another file
    handle = files.open(path + _STAGED, create=True)
    try:
        handle.pwritev((encode_offsets(offsets.items()),), 0)
        handle.fsync()
    finally:
        handle.close()


def install_offsets(files: FileSystem, path: str) -> None:
    """Have the checkpoint at ``path`` say what was staged. On the device once its directory is synced."""
    files.rename(path + _STAGED, path)


def encode_clean_shutdown(broker_epoch: BrokerEpoch | None) -> bytes:
    """Contents of the mark: JSON with the epoch of the incarnation that shut down."""
    return b'{"version":0,"brokerEpoch":%d}' % (-1 if broker_epoch is None else broker_epoch)


def read_clean_shutdown(files: FileSystem, path: str) -> tuple[bool, BrokerEpoch | None]:
    """Whether the mark is there, and the broker epoch in it."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return False, None
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return True, None  # Kafka before 3.7 leaves the mark empty
    return True, epoch if type(epoch) is int and 0 <= epoch <= _MAX_OFFSET else None
