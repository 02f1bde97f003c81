"""Logs on a temporary dir, batches to put in them, and a disk that fails on command."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import HEADER, stamp_crc
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from tests.left_open import closed_at_the_end

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def make_batch(
    *values: bytes,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp: int = NOW_MS,
    step_ms: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    key: bytes | None = b"k",
) -> bytearray:
    """An uncompressed batch of the values, as a producer sends it."""
    records = bytearray()
    for i, value in enumerate(values):
        key_part = varint(-1) if key is None else varint(len(key)) + key
        body = b"\0" + varint(i * step_ms) + varint(i) + key_part + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    count = len(values)
    newest = timestamp + (count - 1) * step_ms
    header = HEADER.pack(
        base_offset, 49 + len(records), leader_epoch, 2, 0, attributes, count - 1, timestamp, newest,
        producer_id, producer_epoch, sequence, count,
    )  # fmt: skip
    batch = bytearray(header) + records
    stamp_crc(batch, 0)
    return batch


@dataclass
class FailingFiles(OsFiles):
    """The machine's files, but an operation whose name and path match a rule fails."""

    rules: list[tuple[str, str, int]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)

    def fail(self, operation: str, part_of_path: str = "", error: int = errno.EIO) -> None:
        self.rules.append((operation, part_of_path, error))

    def fail_probes(self) -> None:
        """The disk itself, not only some of its files."""
        self.fail("create", "/.probe")

    def _check(self, operation: str, path: str) -> None:
        self.calls.append((operation, path))
        for rule, part, error in self.rules:
            if rule in (operation, "*") and part in path:
                raise OSError(error, f"injected into {operation}", path)

    def open(self, path, *, create=False, readonly=False):
        self._check("create" if create else "open", path)
        return FailingHandle(self, super().open(path, create=create, readonly=readonly))


for _name in (
    "mkdir",
    "makedirs",
    "rename",
    "unlink",
    "rmtree",
    "listdir",
    "fsync_dir",
    "statvfs",
    "read_bytes",
    "exists",
):

    def _wrapped(self, path, *rest, _name=_name):
        self._check(_name, path)
        return getattr(OsFiles, _name)(self, path, *rest)

    setattr(FailingFiles, _name, _wrapped)


def _write_atomic(self, path, data, *, durable=True):
    self._check("write_atomic", path)
    OsFiles.write_atomic(self, path, data, durable=durable)


def _lock(self, path, *, patience_s=0.0):
    self._check("lock", path)
    return OsFiles.lock(self, path, patience_s=patience_s)


FailingFiles.write_atomic = _write_atomic
FailingFiles.lock = _lock


class FailingHandle:
    def __init__(self, files: FailingFiles, inner) -> None:
        self._files, self._inner, self.path = files, inner, inner.path

    def __getattr__(self, name):
        target = getattr(self._inner, name)
        if name not in ("pread", "preadv_nowait", "pwritev", "fsync", "truncate", "size"):
            return target

        def call(*args):
            self._files._check(name, self.path)
            return target(*args)

        return call


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield from closed_at_the_end()


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def log_dir(tmp_path: Path, files: FailingFiles) -> Iterator[LogDir]:
    directory = LogDir(str(tmp_path / "d0"), files, InlineQueue())
    directory.open(node_id=1, cluster_id="cluster", new_id=lambda: UUID(int=1), now_ms=NOW_MS)
    yield directory
    directory.close()


OpenLog = Callable[..., Log]


@pytest.fixture
def open_log(log_dir: LogDir) -> OpenLog:
    """Open (or make) topic-0; keywords are LogConfig's, or clean, recovery_point, start, topic."""

    def opener(
        *, clean: bool = False, recovery_point: int = 0, start: int | None = None, topic: str = "topic", **config
    ) -> Log:
        return Log.open(
            log_dir,
            TopicPartition(topic, 0),
            TOPIC_ID,
            LogConfig(**config),
            clean_shutdown=clean,
            now_ms=NOW_MS,
            recovery_point=recovery_point,
            log_start_offset=start,
        )

    return opener


@pytest.fixture
def batch():
    return make_batch


def contents(log: Log, start: int | None = None, limit: int = 2**62, max_bytes: int = 2**31) -> bytes:
    """All bytes that reads give, from an offset on."""
    from holdfast.records.batch import iter_headers

    found = b""
    offset = log.view.start_offset if start is None else start
    while True:
        piece = log.read(offset, max_bytes, limit, blocking=True)
        if piece is None:
            return found
        data = piece.read()
        found += data
        offset = [h for _, h in iter_headers(data)][-1].next_offset


@pytest.fixture
def read_all():
    return contents
