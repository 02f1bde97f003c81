"""Records of ``__transaction_state`` against those that Apache Kafka 4.3.0 wrote, and what is refused."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import TopicPartition
from holdfast.records.record import decode_batch
from holdfast.transactions.records import StoredTransaction, decode_record, encode_key, encode_value
from holdfast.transactions.states import NUMBERS, TransactionState
from holdfast.transactions.types import Transaction

GOLDEN = Path(__file__).parents[2] / "golden/disk/4.3.0/__transaction_state-0.json"
_NEVER = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


def golden() -> list[tuple[bytes, bytes]]:
    files = json.loads(GOLDEN.read_text())["files_after_clean_shutdown"]
    raw = bytes.fromhex(files["d1/__transaction_state-0/00000000000000000000.log"]["hex"])
    found, at = [], 0
    while at < len(raw):
        size = 12 + int.from_bytes(raw[at + 8 : at + 12])
        found += [(r.key or b"", r.value or b"") for r in decode_batch(raw[at : at + size])]
        at += size
    return found


def test_kafkas_records_are_read_and_written_byte_for_byte() -> None:
    records = golden()
    assert len(records) == 13
    for key, value in records:
        found = decode_record(key, value)
        assert found is not None
        assert encode_key(found.transactional_id) == key
        assert encode_value(found.transaction, compact=True) == value


def test_kafkas_records_tell_a_commit_and_an_abort() -> None:
    found = [decode_record(key, value) for key, value in golden()]
    states = [each.transaction.state.value for each in found if each is not None]
    once = ["Ongoing", "PrepareCommit", "CompleteCommit"], ["Ongoing", "PrepareAbort", "CompleteAbort"]
    assert states == ["Empty", *once[0], *once[1], *once[1], *once[0]]
    assert found[1] is not None
    assert found[1].transactional_id == "tx1"
    assert found[1].transaction.partitions == {TopicPartition("txn", 0)}


_IDS = st.integers(0, 2**63 - 1)
_TRANSACTIONS = st.builds(
    Transaction,
    producer_id=_IDS,
    previous_producer_id=st.none() | _IDS,
    next_producer_id=st.none() | _IDS,
    epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([s for s in TransactionState if s not in _NEVER]),
    partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=300), st.integers(0, 2**31 - 1)), max_size=200),
    start_ms=st.none() | st.integers(0, 2**62),
    update_ms=st.integers(0, 2**62),
    version=st.integers(0, 2),
)


@given(name=st.text(max_size=500), transaction=_TRANSACTIONS)
def test_what_is_written_is_read(name: str, transaction: Transaction) -> None:
    if transaction.state is TransactionState.EMPTY:
        transaction = _without_partitions(transaction)
    value = encode_value(transaction, compact=True)
    found = decode_record(encode_key(name), value)
    assert found is not None
    assert StoredTransaction(name, replace(found.transaction, last_epoch=None)) == StoredTransaction(name, transaction)


@pytest.mark.parametrize(
    ("state", "version", "epoch", "previous", "last"),
    [
        (TransactionState.COMPLETE_ABORT, 2, 4, 7, 3),
        (TransactionState.PREPARE_COMMIT, 2, 2**15 - 1, 7, 2**15 - 2),
        (TransactionState.COMPLETE_COMMIT, 2, 0, 6, 2**15 - 2),
        (TransactionState.COMPLETE_COMMIT, 2, 0, 7, None),
        (TransactionState.COMPLETE_ABORT, 1, 4, 7, None),
        (TransactionState.EMPTY, 2, 4, 7, None),
        (TransactionState.ONGOING, 2, 4, 7, None),
    ],
)
def test_the_epoch_before_an_end_that_raised_it_is_known(
    state: TransactionState, version: int, epoch: int, previous: int, last: int | None
) -> None:
    written = Transaction(
        producer_id=7, previous_producer_id=previous, epoch=epoch, timeout_ms=1, state=state, update_ms=1,
        version=version,
    )  # fmt: skip
    found = decode_record(encode_key("tx"), encode_value(written, compact=True))
    assert found is not None
    assert found.transaction.last_epoch == last


def _without_partitions(t: Transaction) -> Transaction:
    return Transaction(
        producer_id=t.producer_id, previous_producer_id=t.previous_producer_id, next_producer_id=t.next_producer_id,
        epoch=t.epoch, timeout_ms=t.timeout_ms, state=t.state, start_ms=t.start_ms, update_ms=t.update_ms,
        version=t.version,
    )  # fmt: skip


def test_the_plain_form_is_for_clusters_without_transaction_version() -> None:
    partitions = frozenset((TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 7)))
    t = Transaction(
        producer_id=5, epoch=3, timeout_ms=60000, state=TransactionState.ONGOING, partitions=partitions, start_ms=8,
        update_ms=9,
    )  # fmt: skip
    value = encode_value(t, compact=False)
    assert value.hex() == (
        "0000" "0000000000000005" "0003" "0000ea60" "01" "00000002"
        "000161" "00000002" "00000000" "00000001" "000162" "00000001" "00000007"
        "0000000000000009" "0000000000000008"
    )  # fmt: skip
    assert decode_record(encode_key("x"), value) == StoredTransaction("x", t)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "ends at byte 0"),
        (b"\x00\x02", "version 2, expected 0 or 1"),
        (b"\x00\x01" + bytes(14) + b"\x06", "state 6, expected 0 to 5"),
        (b"\x00\x01" + bytes(14) + b"\x07", "state 7"),
        (b"\x00\x01" + bytes(14) + b"\x09", "state 9"),
        (b"\x00\x01" + bytes(14) + b"\x01\x02\x03\xff\xfe", "UTF-8"),
    ],
)
def test_what_makes_no_sense_is_refused(value: bytes, says: str) -> None:
    with pytest.raises(CorruptRecordError, match=says):
        decode_record(encode_key("x"), value)


def test_a_key_of_another_kind_is_passed_over() -> None:
    assert decode_record(b"\x00\x01\x00\x01x", b"") is None


def test_every_state_has_kafkas_number() -> None:
    assert [state.value for state in NUMBERS] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(CorruptRecordError):
        decode_record(encode_key("x"), raw)
