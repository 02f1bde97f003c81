"""Readers of a partition's directory: the recovery of its log, its indexes, its producer snapshots."""

import logging
from contextlib import suppress
from itertools import pairwise
from typing import Any

from holdfast.model.errors import HoldfastError
from tests.fuzz import archive, samples
from tests.fuzz.fixups import Fixup
from tests.fuzz.memory_files import MemoryFiles
from tests.fuzz.reader import Reader, Run
from tests.fuzz.readers.records import _made_batches

_NOW_MS = 1_700_000_600_000
_PATH = "/d/t-0"
_BASES = (0, 3, 9, 12)
INDEX, TIME_INDEX, EPOCHS, FLAGS, NAME, TXN_INDEX = 2, 3, 4, 5, 6, 7
"""Kinds of files in an archive besides batches and snapshots. FLAGS: how the last stop is told to have been. NAME: an
empty file of this name."""


# -- a log's directory -----------------------------------------------------------------------------------------


def directory_of(data: bytes) -> tuple[dict[str, bytearray], bytes]:
    """The files that an archive stands for, and its flags. The n-th file of a kind belongs to the n-th segment."""
    found: dict[str, bytearray] = {}
    counts = [0] * archive.KINDS
    flags = b""
    suffixes = {0: ".log", 1: ".snapshot", INDEX: ".index", TIME_INDEX: ".timeindex", TXN_INDEX: ".txnindex"}
    for kind, content in archive.unpack(data):
        if kind == EPOCHS:
            found[f"{_PATH}/leader-epoch-checkpoint"] = bytearray(content)
        elif kind == FLAGS:
            flags = content
        elif kind == NAME:
            name = content.decode(errors="replace").replace("/", "-")
            if name:
                found.setdefault(f"{_PATH}/{name}", bytearray())
        else:
            base = _BASES[counts[kind] & 3] + (counts[kind] >> 2) * 20
            counts[kind] += 1
            found[f"{_PATH}/{base:020d}{suffixes[kind]}"] = bytearray(content)
    return found, flags


def _make_logs() -> Run:
    """A log is opened whatever its directory holds; only a promise of a clean stop may turn out wrong, and then it is
    opened as after a crash, which never fails. What it says of itself then is true, and a second crash changes
    nothing."""
    from holdfast.model.config import LogConfig
    from holdfast.storage.recovery import LogParts, load_parts

    logging.getLogger("holdfast.storage").setLevel(logging.CRITICAL)
    config = LogConfig(index_interval_bytes=60)

    def check(parts: LogParts) -> None:
        segments = parts.segments
        bases = [s.base_offset for s in segments]
        assert bases == sorted(set(bases))
        assert parts.start_offset <= parts.end_offset and parts.recovery_point <= parts.end_offset
        assert bases[0] <= parts.start_offset and bases[-1] <= parts.end_offset
        epochs = parts.epochs.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(epochs))
        assert all(start < parts.end_offset or start == parts.start_offset for _, start in epochs)
        assert parts.producers.end_offset == parts.end_offset
        parts.producers.encode()

    def run(data: bytes) -> Any:
        contents, flags = directory_of(data)
        files = MemoryFiles(contents)
        flag = flags[0] if flags else 0
        point = flags[1] if len(flags) > 1 else 0
        clean, parts = bool(flag & 1), None
        start = flags[2] if len(flags) > 2 else None
        if clean or point:
            try:
                parts = load_parts(
                    files, _PATH, config, clean=clean, now_ms=_NOW_MS, recovery_point=point, log_start_offset=start
                )
            except HoldfastError:
                clean, point = False, 0
        if parts is None:  # as dir_load does then: nothing is promised, all is checked
            parts = load_parts(
                files, _PATH, config, clean=False, now_ms=_NOW_MS, recovery_point=0, log_start_offset=start
            )
            check(parts)
        if not clean and not point and flag & 6 == 6:
            again = load_parts(
                files, _PATH, config, clean=False, now_ms=_NOW_MS, recovery_point=0, log_start_offset=start
            )
            assert (again.end_offset, len(again.segments)) == (parts.end_offset, len(parts.segments))
            first, second = ([e for e in p.epochs.entries() if e[1] < p.end_offset] for p in (parts, again))
            assert first == second
        return clean, len(parts.segments), min(parts.end_offset, 16)

    return run


def _logs_corpus() -> list[bytes]:
    from holdfast.records.batch import parse_header, stamp

    def flags(clean: int, point: int = 0, *start: int) -> tuple[int, bytes]:
        return FLAGS, bytes((clean, point, *start))

    suffix_kinds = {"log": 0, "snapshot": 1, "index": INDEX, "timeindex": TIME_INDEX, "txnindex": TXN_INDEX}
    found = []
    for name in samples.recorded_directories():
        files = []
        for file, data in sorted(samples.recorded_files(name).items()):
            kind = suffix_kinds.get(file.rpartition(".")[2])
            if kind is not None:
                files.append((kind, data))
            elif file == "leader-epoch-checkpoint":
                files.append((EPOCHS, data))
        if files and sum(len(data) for _, data in files) < 560:
            found += [archive.pack([flags(how), *files]) for how in (0, 1, 6)]
    segments, offset, run = [], 0, b""
    for i, batch in enumerate(_made_batches()):
        if len(batch) > 110:
            continue
        one = bytearray(batch)
        stamp(one, 0, offset, i // 3)
        offset = parse_header(one).next_offset
        run += one
        if offset in (3, 9, 12):
            segments.append((0, run))
            run = b""
    found.append(archive.pack([flags(6, 0), *segments]))
    found.append(archive.pack([flags(6, 0, 3), *segments[:2], (EPOCHS, b"0\n1\n0 0\n")]))
    found.append(archive.pack([flags(1, 3), *segments[:1], (INDEX, b"\0\0\0\2\0\0\0\x47"), (NAME, b"x.log.deleted")]))
    found.append(archive.pack([flags(0), *segments[:1], (NAME, b"00000000000000000007.index"), (NAME, b"7.log")]))
    found.append(archive.pack([flags(7), *segments[:2], (1, _snapshot(1)), (EPOCHS, b"0\n2\n0 0\n1 3\n")]))
    return found


# -- indexes -----------------------------------------------------------------------------------------------------


def _make_indexes() -> Run:
    """An index file (the first byte: of offsets or of times) is read whole, or made again. What is read is in order and
    is written as it was."""
    from holdfast.storage.index import OffsetIndex, TimeIndex

    def run(data: bytes) -> Any:
        if not data:
            return None
        body = data[1:]
        if data[0] & 1:
            times = TimeIndex.decode(100, body)
            if times is None:
                return 1
            assert times.encode() == body[: 12 * len(times)] and not any(body[12 * len(times) :])
            last = times.last()
            times.maybe_append(2**62, 100 + 2**32 - 1)
            middle = 0 if last is None else last[0] // 2
            assert times.offset_before(middle) >= 100
            times.truncate_to_offset(100 + (0 if last is None else (last[1] - 100) // 2))
            return len(times) & 7
        offsets = OffsetIndex.decode(100, body)
        if offsets is None:
            return 2
        assert offsets.encode() == body[: 8 * len(offsets)] and not any(body[8 * len(offsets) :])
        middle = offsets.offsets[len(offsets) // 2] if len(offsets) else 0
        assert offsets.position_for(100 + middle) >= 0
        assert offsets.position_for(99) == 0
        offsets.truncate_to_position(offsets.position_at_most(1 << 31))
        return len(offsets) & 7

    return run


def _indexes_corpus() -> list[bytes]:
    found = []
    for name in samples.recorded_directories():
        for file, data in samples.recorded_files(name).items():
            if file.endswith(".index"):
                found.append(b"\0" + data)
            elif file.endswith(".timeindex"):
                found.append(b"\1" + data)
    rows = [i.to_bytes(4, "big") + (i * 4100).to_bytes(4, "big") for i in range(1, 40, 3)]
    times = [(_NOW_MS + i).to_bytes(8, "big") + i.to_bytes(4, "big") for i in range(1, 30, 2)]
    found += [b"\0" + b"".join(rows), b"\0" + b"".join(rows[:3]) + bytes(40)]
    found += [b"\1" + b"".join(times), b"\1" + b"".join(times[:3]) + bytes(60)]
    return sorted(set(found))


# -- producer snapshots --------------------------------------------------------------------------------------------


def _snapshot(count: int) -> bytes:
    from holdfast.storage.producer_state import ProducerEntry, ProducerStates, WrittenBatch

    states = ProducerStates(9)
    for i in range(count):
        states.entries[i * 7] = ProducerEntry(
            epoch=i,
            batches=[WrittenBatch(0, 4, 8, 4, _NOW_MS)] if i != 2 else [],
            last_timestamp=_NOW_MS,
            txn_first_offset=3 if i == 1 else None,
        )
    return states.encode()


def _make_snapshots() -> Run:
    """A producer snapshot is whole or none; what it says can be asked for, added to and written."""
    from holdfast.records.batch import parse_header
    from holdfast.storage.producer_state import ProducerStates

    batch = parse_header(next(b for b in _made_batches() if parse_header(b).producer_id == 7))

    def run(data: bytes) -> Any:
        states = ProducerStates.decode(data, 9)
        if states is None:
            return None
        assert ProducerStates.decode(states.encode(), 9) is not None
        states.first_open_transaction()
        with suppress(HoldfastError):
            states.check(batch)
        states.update(batch, 9)
        states.encode()
        states.expire(_NOW_MS, 1000)
        return len(states.entries) & 7

    return run


def _snapshots_corpus() -> list[bytes]:
    found = [_snapshot(count) for count in range(5)]
    for name in samples.recorded_directories():
        found += [d for file, d in samples.recorded_files(name).items() if file.endswith(".snapshot")]
    return found


READERS = (
    Reader(
        name="logs",
        reads="a partition's directory at start: segments, indexes, snapshots, epochs, names",
        make=_make_logs,
        corpus=_logs_corpus,
        refusals=(),
        fixup=Fixup.ARCHIVE,
        tokens=(b"\5\0\3", b"\4\0\x0d0\n1\n0 0\n", b"\6\0\5x.log", b".log", "²".encode(), b"\0\0\x47"),
        max_size=400,
        memory_base=2 << 20,
    ),
    Reader(
        name="indexes",
        reads="offset and time indexes",
        make=_make_indexes,
        corpus=_indexes_corpus,
        refusals=(),
        kinds=2,
        prefix=1,
        tokens=(bytes(8), bytes(12), b"\0\0\0\1"),
        max_size=400,
    ),
    Reader(
        name="snapshots",
        reads="producer snapshots",
        make=_make_snapshots,
        corpus=_snapshots_corpus,
        refusals=(),
        fixup=Fixup.SNAPSHOT,
        max_size=400,
    ),
)
