"""Coordinators load the same state whatever a cleaner has made of their logs (log compaction).

Two cleaners: the one of this system, on a real log with passes between the writes; and one that does whatever Kafka's
rules allow, with a batch, a record, a tombstone or a marker more or less by chance, for logs that others cleaned.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.coordinators.replay import KeyedReplay
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import parse_header
from holdfast.storage.cleaning_filter import emptied
from holdfast.storage.cleaning_plan import CleanerSettings
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.published import PublishedReader, published_files
from holdfast.transactions.records import decode_record
from tests.property.coordinator_logs import GROUP_LOG, NOW_MS, TRANSACTION_LOG, Batch, End, groups_of
from tests.unit.storage.cleaning import clean_log

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), retention_ms=None, segment_bytes=900, index_interval_bytes=100,
    delete_retention_ms=1000,
)  # fmt: skip
EXAMPLES = settings(max_examples=100)


@pytest.fixture(scope="module")
def scratch() -> Iterator[LogDir]:
    """A directory for many logs."""
    root = tempfile.mkdtemp()
    yield LogDir(root, OsFiles(), InlineQueue())
    shutil.rmtree(root)


def transactions_of(data: bytes, piece: int = 1 << 20) -> Any:
    replay = KeyedReplay(decode_record)
    assert replay.feed(data) == len(data)
    while replay.unfold(2):
        pass
    found: dict[str, Any] = {}
    while some := replay.pieces(2):
        found |= dict(some)
    return found


# -- our cleaner -------------------------------------------------------------------------------------------------

CLEANINGS = st.tuples(st.just("clean"), st.floats(0, 1), st.sampled_from((0, 500, 2000)), st.sampled_from((1, 3, 99)))


def cleaned_and_not(scratch: LogDir, steps: list[Any], load: Any, piece: int) -> None:
    """After every cleaning the log says what all that was ever written to it says."""
    shutil.rmtree(f"{scratch.path}/__log-0", ignore_errors=True)
    log = Log.open(scratch, TopicPartition("__log", 0), UUID(int=1), CONFIG, clean_shutdown=True, now_ms=NOW_MS)
    everything, now_ms = b"", NOW_MS
    for step in steps:
        if isinstance(step, Batch | End):
            batch = step.encode()
            trusted = {"trusted": True} if isinstance(step, End) or step.producer is not None else {}
            log.append_as_leader(batch, 0, now_ms, **trusted)
            everything += batch
            continue
        _, mark, later_ms, keys = step
        now_ms += later_ms
        high_watermark = int(mark * log.view.end_offset)
        clean_log(log, now_ms, high_watermark, CleanerSettings(160 * keys, 1.0, 64))
        reader = PublishedReader(log.dir.files, published_files(log), log.view.start_offset)
        data = b""
        while some := reader.read(1 << 20):
            reader.took(len(some), some)
            data += some
        reader.close()
        assert load(data, piece) == load(everything)
    log.close(clean=True)


@EXAMPLES
@given(steps=st.lists(GROUP_LOG | GROUP_LOG | GROUP_LOG | CLEANINGS, max_size=40), piece=st.integers(60, 400))
def test_groups_load_the_same_from_a_cleaned_log(scratch: LogDir, steps: list[Any], piece: int) -> None:
    cleaned_and_not(scratch, [*steps, ("clean", 1.0, 2000, 99), ("clean", 1.0, 2000, 99)], groups_of, piece)


@EXAMPLES
@given(steps=st.lists(TRANSACTION_LOG | TRANSACTION_LOG | TRANSACTION_LOG | CLEANINGS, max_size=40))
def test_transactions_load_the_same_from_a_cleaned_log(scratch: LogDir, steps: list[Any]) -> None:
    cleaned_and_not(scratch, [*steps, ("clean", 1.0, 2000, 99), ("clean", 1.0, 2000, 99)], transactions_of, 1)


# -- any cleaner -------------------------------------------------------------------------------------------------


def any_compaction(steps: list[Batch | End], chance: random.Random) -> bytes:
    """A prefix without some of what is superseded in it, and then the rest. No prefix reaches into an open
    transaction."""
    ends = _outcomes(steps)
    opened = (i for i, s in enumerate(steps) if isinstance(s, Batch) and s.producer and ends[i] is None)
    cut = chance.randint(0, next(opened, len(steps)))
    newest: dict[bytes, tuple[int, int]] = {}
    for number, step in enumerate(steps[:cut]):
        if isinstance(step, Batch) and (step.producer is None or ends[number]):
            newest |= {key: (number, i) for i, (key, _) in enumerate(step.records)}
    lazy = frozenset(key for key in newest if chance.random() < 0.2)  # of these, older ones stay
    out, left = b"", set[int]()
    for number, step in enumerate(steps):
        if number >= cut:
            out += step.encode()
        elif isinstance(step, End):
            if step.producer in left or chance.random() < 0.3:
                out += step.encode()
            elif chance.random() < 0.3:
                out += _emptied(step)
            left.discard(step.producer)
        else:
            aborted = ends[number] is False
            kept = tuple(
                (key, value)
                for i, (key, value) in enumerate(step.records)
                if not aborted
                and (key in lazy or (newest[key] == (number, i) and (value is not None or chance.random() < 0.5)))
            )
            if aborted and chance.random() < 0.2:
                kept = step.records
            if kept:
                out += step._replace(records=kept).encode()
            elif chance.random() < 0.3:
                out += _emptied(step)
            if kept and step.producer is not None:
                left.add(step.producer)
    return out


def _outcomes(steps: list[Batch | End]) -> dict[int, bool | None]:
    """Of each batch in a transaction: committed, aborted, or None: open."""
    found: dict[int, bool | None] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Batch):
            ends = (s.commit for s in steps[number:] if isinstance(s, End) and s.producer == step.producer)
            found[number] = next(ends, None)
    return found


def _emptied(step: Batch | End) -> bytes:
    batch = step.encode()
    return emptied(parse_header(batch))


@EXAMPLES
@given(steps=st.lists(GROUP_LOG, max_size=30), chance=st.randoms(use_true_random=False), piece=st.integers(60, 400))
def test_groups_load_the_same_after_any_legal_compaction(steps: list[Any], chance: random.Random, piece: int) -> None:
    compacted = any_compaction(steps, chance)
    assert groups_of(compacted, piece) == groups_of(b"".join(step.encode() for step in steps))


@EXAMPLES
@given(steps=st.lists(TRANSACTION_LOG, max_size=30), chance=st.randoms(use_true_random=False))
def test_transactions_load_the_same_after_any_legal_compaction(steps: list[Any], chance: random.Random) -> None:
    compacted = any_compaction(steps, chance)
    assert transactions_of(compacted) == transactions_of(b"".join(step.encode() for step in steps))
