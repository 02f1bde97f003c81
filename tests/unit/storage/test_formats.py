"""The small files: indexes, epochs, checkpoints, snapshots, names."""

from uuid import UUID

import pytest

from holdfast.model.types import TopicPartition
from holdfast.records.batch import parse_header
from holdfast.records.markers import EndMarker
from holdfast.storage import checkpoints, partition_metadata
from holdfast.storage.dir_scan import DELETE_SUFFIX, NameKind, classify, marked_name
from holdfast.storage.index import OffsetIndex, TimeIndex, write_index
from holdfast.storage.leader_epochs import LeaderEpochs
from holdfast.storage.producer_state import ProducerStates
from holdfast.storage.txn_index import AbortedTxn


def test_offset_index():
    index = OffsetIndex(100)
    assert (index.position_for(500), index.position_at_most(10**6)) == (0, 0)
    for i in range(40):
        index.append(110 + 10 * i, 1000 + 100 * i)
    assert len(index) == 40
    assert index.position_for(109) == 0
    assert index.position_for(110) == 1000
    assert index.position_for(125) == 1100
    assert index.position_for(10**6) == 4900
    assert index.position_at_most(999) == 0
    assert index.position_at_most(1050) == 1000
    data = index.encode()
    assert index.encode(30) == data[30 * 8 :]
    assert data[:8] == bytes.fromhex("0000000a000003e8")
    for padding in (0, 8, 800):
        again = OffsetIndex.decode(100, data + bytes(padding))
        assert (again.offsets, again.positions, again.written) == (index.offsets, index.positions, 40)
    index.truncate_to_position(1200)
    assert index.encode() == data[:16]
    for bad in (data[:12], data[8:16] + data[:8], data[:8] * 2, b"\xff" * 5):
        assert OffsetIndex.decode(100, bad) is None
    assert len(OffsetIndex.decode(100, b"")) == 0


def test_an_entry_that_ends_in_zero_bytes_is_whole():
    index = OffsetIndex(0)
    index.append(5, 0x100)
    index.append(0x10000, 0x10000)
    assert OffsetIndex.decode(0, index.encode() + bytes(64)).encode() == index.encode()


def test_time_index():
    index = TimeIndex(100)
    assert index.last() is None
    assert index.offset_before(5) == 100
    index.maybe_append(1000, 105)
    index.maybe_append(1000, 106)
    index.maybe_append(900, 107)
    index.maybe_append(2000, 110)
    assert index.last() == (2000, 110)
    assert [index.offset_before(t) for t in (999, 1000, 1001, 2000, 2001)] == [100, 100, 105, 105, 110]
    data = index.encode()
    assert data == bytes.fromhex("00000000000003e800000005" + "00000000000007d00000000a")
    assert TimeIndex.decode(100, data + bytes(24)).encode() == data
    for bad in (data[:23], data[12:] + data[:12]):
        assert TimeIndex.decode(100, bad) is None
    index.truncate_to_offset(110)
    assert index.last() == (1000, 105)
    index.truncate_to_offset(50)
    assert len(index) == 0


def test_index_files_grow_by_what_is_new(tmp_path, files):
    path = str(tmp_path / "x.index")
    index = OffsetIndex(0)
    index.append(1, 100)
    write_index(files, path, index, max_bytes=100)
    data = (tmp_path / "x.index").read_bytes()
    assert data == index.encode() + bytes(88)  # a whole number of entries
    index.append(2, 200)
    files.calls.clear()
    write_index(files, path, index, max_bytes=100, durable=True)
    assert [c[0] for c in files.calls if c[0] in ("pwritev", "fsync")] == ["pwritev", "fsync"]
    assert (tmp_path / "x.index").read_bytes() == index.encode() + bytes(80)
    index.truncate_to_position(200)
    write_index(files, path, index, max_bytes=None)
    assert (tmp_path / "x.index").read_bytes() == index.encode()
    (tmp_path / "x.index").unlink()  # somebody removed it
    write_index(files, path, index, max_bytes=None)
    assert (tmp_path / "x.index").read_bytes() == index.encode()


@pytest.fixture
def epochs(tmp_path, files):
    epochs = LeaderEpochs(files, str(tmp_path / "leader-epoch-checkpoint"))
    for epoch, start in ((1, 0), (3, 10), (4, 25)):
        assert epochs.assign(epoch, start)
    return epochs


def test_epochs_end_where_the_next_one_begins(epochs):
    assert epochs.latest == 4
    assert epochs.end_offset(0, 40) == (0, 0)  # KIP-101: older than all we know: cut at our start
    assert epochs.end_offset(1, 40) == (1, 10)
    assert epochs.end_offset(2, 40) == (1, 10)  # KIP-279: the epoch that we do know, and its end
    assert epochs.end_offset(3, 40) == (3, 25)
    assert epochs.end_offset(4, 40) == (4, 40)
    assert epochs.end_offset(5, 40) is None
    assert [epochs.epoch_at(o) for o in (0, 9, 10, 24, 25, 99)] == [1, 1, 3, 3, 4, 4]


def test_epochs_only_grow(epochs):
    assert not epochs.assign(4, 30)
    assert not epochs.assign(2, 30)
    assert epochs.assign(7, 25)  # epoch 4 wrote nothing
    assert epochs.entries() == [(1, 0), (3, 10), (7, 25)]
    assert epochs.assign(9, 5)
    assert epochs.entries() == [(1, 0), (9, 5)]


def test_epochs_are_cut_with_the_log(epochs, files):
    assert not epochs.truncate_from_end(26)
    assert epochs.truncate_from_end(25)
    assert epochs.entries() == [(1, 0), (3, 10)]
    assert epochs.truncate_from_start(4)
    assert epochs.entries() == [(1, 4), (3, 10)]
    assert not epochs.truncate_from_start(4)
    assert not epochs.truncate_from_start(0)
    assert epochs.truncate_from_start(12)
    assert epochs.entries() == [(3, 12)]
    again = LeaderEpochs.load(files, epochs._path)
    assert again.entries() == [(3, 12)]
    epochs.clear()
    epochs.clear()
    assert (epochs.latest, epochs.epoch_at(5), epochs.end_offset(1, 1)) == (None, None, None)


def test_epochs_are_synced_once(epochs, files):
    files.calls.clear()
    epochs.flush()
    epochs.flush()
    assert [c[0] for c in files.calls if "fsync" in c[0]] == ["fsync", "fsync_dir"]
    epochs.rewrite()
    epochs.moved("/nowhere")
    with pytest.raises(FileNotFoundError):
        epochs.flush()


@pytest.mark.parametrize(
    "text",
    [b"1\n0\n", b"0\n", b"0\n1\n", b"0\n1\nt 0\n", b"0\n1\nt 0 1", b"0\nx\nt 0 1\n", b"0\n1\nt 0 x\n", b"\xff\n0\n"],
)
def test_what_is_no_checkpoint(text, tmp_path, files):
    with pytest.raises(ValueError):
        checkpoints.decode_offsets(text)
    (tmp_path / "c").write_bytes(text)
    assert checkpoints.read_offsets(files, str(tmp_path / "c")) == {}


def test_checkpoints(tmp_path, files):
    path = str(tmp_path / "c")
    assert checkpoints.read_offsets(files, path) == {}
    offsets = {TopicPartition("a.b-c", 0): 5, TopicPartition("x", 12): 2**40}
    checkpoints.write_offsets(files, path, offsets)
    assert checkpoints.read_offsets(files, path) == offsets


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, (False, None)),
        (b'{"version":0,"brokerEpoch":7}', (True, 7)),
        (b'{"version":0,"brokerEpoch":-1}', (True, None)),
        (b"", (True, None)),
        (b"[]", (True, None)),
        (b"{}", (True, None)),
    ],
)
def test_mark_of_a_clean_stop(text, found, tmp_path, files):
    if text is not None:
        (tmp_path / "m").write_bytes(text)
    assert checkpoints.read_clean_shutdown(files, str(tmp_path / "m")) == found
    assert checkpoints.encode_clean_shutdown(None) == b'{"version":0,"brokerEpoch":-1}'


def test_ids_in_kafkas_text():
    value = UUID(bytes=bytes(range(16)))
    text = partition_metadata.encode_uuid(value)
    assert len(text) == 22
    assert partition_metadata.decode_uuid(text) == value
    for bad in ("short", "!" * 22):
        with pytest.raises(ValueError, match="22 characters"):
            partition_metadata.decode_uuid(bad)


def test_producer_snapshots(batch):
    states = ProducerStates(5)
    states.update(parse_header(batch(b"a", b"b", producer_id=1, producer_epoch=2, sequence=2**31 - 1)), 10)
    states.update(parse_header(batch(b"a", producer_id=7, producer_epoch=0, sequence=0, attributes=0x10)), 12)
    assert states.first_open_transaction() == 12
    assert states.expire(10**18, 1) == 1
    again = ProducerStates.decode(states.encode(), 13)
    assert again.entries == states.entries
    control = parse_header(batch(b"a", producer_id=7, producer_epoch=0, attributes=0x30))
    again.update(control, 13)  # an empty one, which says nothing
    assert again.first_open_transaction() == 12
    assert again.update(control, 13, EndMarker(False, 4)) == AbortedTxn(7, 12, 13, 14)
    assert again.first_open_transaction() is None
    assert again.entries[7].batches == states.entries[7].batches
    marker_only = ProducerStates(0)
    control = parse_header(batch(b"a", producer_id=3, producer_epoch=1, attributes=0x30))
    assert marker_only.update(control, 0, EndMarker(False, 4)) is None, "a transaction without records"
    assert ProducerStates.decode(marker_only.encode(), 1).entries == marker_only.entries
    data = states.encode()
    for bad in (b"", data[:9], data[:-1], b"\0\2" + data[2:], data[:-1] + b"x"):
        assert ProducerStates.decode(bad, 1) is None
    states.clear(99)
    assert (states.entries, states.end_offset) == ({}, 99)


def test_names():
    tp = TopicPartition("a-b.c_D", 12)
    assert classify("a-b.c_D-12") == ("a-b.c_D-12", NameKind.REPLICA, tp)
    assert classify(marked_name(tp, "0" * 32, DELETE_SUFFIX))[1:] == (NameKind.DELETED, tp)
    for name in (
        "t",
        "t-",
        "-1",
        "t-01",
        "t-99999999999",
        "t-4294967296",
        "t-0.abc-delete",
        "t-0." + "0" * 32 + "-x",
        "é-0",
    ):
        assert classify(name).kind is NameKind.UNKNOWN, name
    for name in (".lock", "meta.properties", "x.tmp", "__cluster_metadata-0", ".probe", ".probe-3"):
        assert classify(name).kind is NameKind.OWN
