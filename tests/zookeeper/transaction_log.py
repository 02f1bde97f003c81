"""ZooKeeper's transaction log, read from the files of a server: every write in order, and whose session made it.

The format is ZooKeeper's own (FileTxnLog, zookeeper.jute; servers 3.5 to 3.9). A file ``log.HEX`` begins with magic,
version and database id, 16 bytes; then come records, each as checksum (Adler-32), length, header, body and an end mark.
Files are longer than what is written: the rest is zeros. A server has a write in its log before it answers it, so what
a client heard of is found here, also while the server runs and after kill -9.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"ZKLG"
END_OF_RECORD = b"B"
CREATE_SESSION, CLOSE_SESSION, MULTI, FAILED = -10, -11, 14, -1
CREATES = frozenset({1, 15, 19, 21})
"""create, create2, createContainer, createTTL."""
DELETES = frozenset({2, 20})
SET_DATA, SET_ACL, CHECK = 5, 7, 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation. ``op``: create, delete, setData, setACL, check or error. ``version``: of a check the one that the
    node had, of a setData the new one. ``code``: of an error."""

    op: str
    path: str = ""
    data: bytes = b""
    ephemeral: bool = False
    version: int | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What happened at once. ``kind``: createSession, closeSession, multi, single or error. ``failed``: a multi that
    was refused, and wrote nothing. ``at_ms``: the server's clock."""

    zxid: int
    session: int
    at_ms: int
    kind: str
    ops: tuple[Op, ...] = ()

    @property
    def failed(self) -> bool:
        return any(op.op == "error" for op in self.ops)


class _Bytes:
    """Values of jute, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        assert len(found) == size, f"{size} bytes at {self._at} of {len(self._data)}"
        self._at += size
        return found

    def number(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def large(self) -> int:
        return int(struct.unpack(">q", self._take(8))[0])

    def flag(self) -> bool:
        return self._take(1) != b"\0"

    def buffer(self) -> bytes:
        size = self.number()
        return b"" if size < 0 else self._take(size)

    def text(self) -> str:
        return self.buffer().decode()

    def acls(self) -> None:
        for _ in range(max(0, self.number())):
            self.number()
            self.buffer()
            self.buffer()


def _op(kind: int, body: _Bytes) -> Op:
    if kind in CREATES:
        path, data = body.text(), body.buffer()
        body.acls()
        return Op(op="create", path=path, data=data, ephemeral=body.flag())
    if kind in DELETES:
        return Op(op="delete", path=body.text())
    if kind == SET_DATA:
        return Op(op="setData", path=body.text(), data=body.buffer(), version=body.number())
    if kind == SET_ACL:
        return Op(op="setACL", path=body.text())
    if kind == CHECK:
        return Op(op="check", path=body.text(), version=body.number() - 1)  # ZooKeeper writes the one after it
    if kind == FAILED:
        return Op(op="error", code=body.number())
    raise AssertionError(f"a transaction of type {kind}")


def _transaction(record: bytes) -> Transaction:
    body = _Bytes(record)
    session, _, zxid, at_ms, kind = body.large(), body.number(), body.large(), body.large(), body.number()
    ops: list[Op] = []
    if kind == CREATE_SESSION:
        name = "createSession"
    elif kind == CLOSE_SESSION:
        name = "closeSession"
    elif kind == MULTI:
        name = "multi"
        ops = [_op(body.number(), _Bytes(body.buffer())) for _ in range(body.number())]
    else:
        name = "error" if kind == FAILED else "single"
        ops = [_op(kind, body)]
    return Transaction(zxid=zxid, session=session, at_ms=at_ms, kind=name, ops=tuple(ops))


def read_file(path: Path) -> Iterator[Transaction]:
    """Those of one file; one that the server is in the middle of writing is the end of it."""
    with path.open("rb") as file:
        head = file.read(16)
        if len(head) < 16:
            return
        assert head[:4] == MAGIC, f"{path} is no transaction log: {head[:4]!r}"
        while len(prefix := file.read(12)) == 12:
            checksum, size = struct.unpack(">qi", prefix)
            if size <= 0:
                return
            record, end = file.read(size), file.read(1)
            if end != END_OF_RECORD or zlib.adler32(record) != checksum:
                return
            yield _transaction(record)


def read(folder: Path) -> list[Transaction]:
    """All of a server, oldest first. ``folder``: its dataDir."""
    files = sorted((folder / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    return [transaction for path in files for transaction in read_file(path)]


def below(chroot: str, transactions: list[Transaction]) -> list[Transaction]:
    """Those that concern nodes below ``chroot``, their paths without it; of sessions those that wrote there."""

    def own(path: str) -> bool:
        return path.startswith(chroot + "/") or path == chroot

    sessions = {t.session for t in transactions if any(own(op.path) for op in t.ops)}
    found = []
    for t in transactions:
        if t.kind in ("createSession", "closeSession"):
            if t.session in sessions:
                found.append(t)
        elif any(own(op.path) for op in t.ops) or (t.failed and t.session in sessions):
            ops = tuple(
                Op(op=op.op, path=op.path.removeprefix(chroot), data=op.data, ephemeral=op.ephemeral,
                   version=op.version, code=op.code)
                for op in t.ops
            )  # fmt: skip
            found.append(Transaction(zxid=t.zxid, session=t.session, at_ms=t.at_ms, kind=t.kind, ops=ops))
    return found
