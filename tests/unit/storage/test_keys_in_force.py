"""Each key of a topic does what it says: from the text of its value to what lies on the disk.

A key that is not shown here names the test that shows it (SHOWN_ELSEWHERE), or has no effect and is listed as such.
"""

import re
from pathlib import Path

import pytest

from holdfast.model.config import BrokerConfig, LogConfig
from holdfast.model.config_topic_keys import TOPIC_KEYS
from holdfast.model.errors import MessageTooLargeError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.compression import Codec
from holdfast.records.record import decode_batches
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.validation import RejectedTimestampsError
from tests.unit.storage.conftest import NOW_MS, TOPIC_ID, make_batch

UNIT = Path(__file__).parents[1]
SMALL = {"internal.segment.bytes": "300"}
SHOWN_ELSEWHERE = {
    "min.insync.replicas": ("replication/test_produce.py", "the_isr_shrinks_below_the_limit_after_the_append"),
    "unclean.leader.election.enable": (
        "controller/test_min_isr.py",
        "H_26_a_cluster_that_allows_unclean_elections_has_leaders_at_once",
    ),
    "leader.replication.throttled.replicas": (
        "replication/test_throttle.py",
        "C_2_the_leader_limits_what_it_sends_to_a_follower_out_of_sync",
    ),
    "follower.replication.throttled.replicas": (
        "replication/test_throttle.py",
        "C_2_the_follower_limits_what_it_fetches",
    ),
}
OF_THE_CLEANER = {"delete.retention.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms"}
"""Shown by the tests of compaction."""


def open_with(log_dir: LogDir, overrides: dict[str, str], topic: str = "topic") -> Log:
    config = LogConfig.of(BrokerConfig(), overrides)
    tp = TopicPartition(topic, 0)
    return Log.open(log_dir, tp, TOPIC_ID, config, clean_shutdown=True, now_ms=NOW_MS)


def stored(log: Log) -> bytes:
    data = log.read(0, 2**31, 2**62, blocking=True)
    assert data is not None
    return bytes(data.read())


def shown_here() -> set[str]:
    """The keys that a test of this file sets."""
    return set(re.findall(r'"([a-z0-9.]+)":', Path(__file__).read_text().partition("# -- tests")[2])) & set(TOPIC_KEYS)


def test_every_key_in_force_is_shown() -> None:
    in_force = {name for name, item in TOPIC_KEYS.items() if item.key.inert is None}
    assert shown_here() | SHOWN_ELSEWHERE.keys() | OF_THE_CLEANER == in_force
    for path, test in SHOWN_ELSEWHERE.values():
        assert f"def test_{test}(" in (UNIT / path).read_text()


# -- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compression_type(log_dir: LogDir, codec: str) -> None:
    log = open_with(log_dir, {"compression.type": codec})
    batch = make_batch(*(b"the same again " * 50,) * 20)
    sent = list(decode_batches(bytes(batch)))
    log.append_as_leader(batch, 0, NOW_MS)
    [(_, header)] = iter_headers(stored(log))
    assert header.compression == Codec.named(codec)
    assert [(r.key, r.value, r.timestamp) for r in decode_batches(stored(log))] == [
        (r.key, r.value, r.timestamp) for r in sent
    ]


@pytest.mark.parametrize(
    ("quick", "thorough"),
    [
        ({"compression.gzip.level": "1"}, {"compression.gzip.level": "9"}),
        ({"compression.lz4.level": "3"}, {"compression.lz4.level": "17"}),
        ({"compression.lz4.level": "9"}, {"compression.lz4.level": "12"}),
        ({"compression.zstd.level": "-5"}, {"compression.zstd.level": "19"}),
    ],
)
def test_compression_levels(log_dir: LogDir, quick: dict[str, str], thorough: dict[str, str]) -> None:
    codec = next(iter(quick)).split(".")[1]
    values = [b'{"user":%d,"name":"abc%d","x":%d}' % (i * 7919 % 1000, i % 17, i * i % 10007) for i in range(8000)]
    sizes = []
    for number, level in enumerate((quick, thorough)):
        log = open_with(log_dir, {"compression.type": codec, **level}, f"topic{number}")
        log.append_as_leader(make_batch(*values), 0, NOW_MS)
        sizes.append(log.view.size)
        assert [r.value for r in decode_batches(stored(log))] == values
    assert sizes[1] < 0.97 * sizes[0]


def test_what_the_producer_compressed_alike_is_not_compressed_again(log_dir: LogDir) -> None:
    first = open_with(log_dir, {"compression.type": "zstd", "compression.zstd.level": "-100"}, "a")
    first.append_as_leader(make_batch(b"x" * 1000), 0, NOW_MS)
    again = bytearray(stored(first))
    second = open_with(log_dir, {"compression.type": "zstd", "compression.zstd.level": "22"}, "b")
    second.append_as_leader(again, 0, NOW_MS)
    assert stored(second) == stored(first)


def test_max_message_bytes(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"max.message.bytes": "200"})
    log.append_as_leader(make_batch(b"x" * 100), 0, NOW_MS)
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes=200"):
        log.append_as_leader(make_batch(b"x" * 200), 0, NOW_MS)


def test_max_message_bytes_holds_for_what_is_stored(log_dir: LogDir) -> None:
    packed = open_with(log_dir, {"compression.type": "gzip"}, "a")
    packed.append_as_leader(make_batch(bytes(100_000)), 0, NOW_MS)
    plain = open_with(log_dir, {"compression.type": "uncompressed", "max.message.bytes": "90000"}, "b")
    with pytest.raises(MessageTooLargeError):
        plain.append_as_leader(bytearray(stored(packed)), 0, NOW_MS)
    assert plain.view.end_offset == 0


def test_message_timestamp_type(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"message.timestamp.type": "LogAppendTime"})
    assert log.append_as_leader(make_batch(b"a", b"b", timestamp=5), 0, NOW_MS).log_append_time_ms == NOW_MS
    assert {r.timestamp for r in decode_batches(stored(log))} == {NOW_MS}


@pytest.mark.parametrize(
    ("overrides", "good", "bad"),
    [
        ({"message.timestamp.before.max.ms": "1000"}, NOW_MS - 1000, NOW_MS - 1001),
        ({"message.timestamp.after.max.ms": "1000"}, NOW_MS + 1000, NOW_MS + 1001),
    ],
)
def test_message_timestamp_limits(log_dir: LogDir, overrides: dict[str, str], good: int, bad: int) -> None:
    log = open_with(log_dir, overrides)
    log.append_as_leader(make_batch(b"a", timestamp=good), 0, NOW_MS)
    with pytest.raises(RejectedTimestampsError):
        log.append_as_leader(make_batch(b"a", timestamp=bad), 0, NOW_MS)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.view.segments]


def test_segment_bytes(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"segment.bytes": "1048576", "max.message.bytes": "2000000"})
    for _ in range(3):
        log.append_as_leader(make_batch(b"x" * 500_000), 0, NOW_MS)
    assert bases(log) == [0, 2]
    small = open_with(log_dir, {"segment.bytes": "1048576", "internal.segment.bytes": "300"}, "small")
    for _ in range(3):
        small.append_as_leader(make_batch(b"x" * 150), 0, NOW_MS)
    assert bases(small) == [0, 1, 2]


def test_segment_ms(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"segment.ms": "1000"})
    for when in (0, 1000, 1001):
        log.append_as_leader(make_batch(b"x", timestamp=NOW_MS + when), 0, NOW_MS + when)
    assert bases(log) == [0, 2]


def test_max_compaction_lag_ms(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"cleanup.policy": "compact", "max.compaction.lag.ms": "500"})
    log.append_as_leader(make_batch(b"x"), 0, NOW_MS)
    assert not log.roll_if_due(NOW_MS + 500)
    assert log.roll_if_due(NOW_MS + 501)


def test_segment_jitter_ms(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"segment.ms": "100000", "segment.jitter.ms": "100000"})
    log.append_as_leader(make_batch(b"x"), 0, NOW_MS)
    rolled_ms = next(ms for ms in range(0, 200_000, 100) if log.roll_if_due(NOW_MS + ms))
    assert 0 < rolled_ms < 99_000


def test_segment_index_bytes(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"segment.index.bytes": "36", "index.interval.bytes": "1"})
    for _ in range(9):
        log.append_as_leader(make_batch(b"x"), 0, NOW_MS)
    assert len(bases(log)) > 1


def test_index_interval_bytes(log_dir: LogDir) -> None:
    entries = []
    for number, overrides in enumerate(({"index.interval.bytes": "100"}, {"index.interval.bytes": "1000"})):
        log = open_with(log_dir, overrides, f"t{number}")
        for _ in range(40):
            log.append_as_leader(make_batch(b"x" * 40), 0, NOW_MS)
        offsets = log.view.segments[-1].offsets
        assert offsets is not None
        entries.append(len(offsets))
    assert entries[0] > 3 * entries[1] > 0


def test_retention_ms(log_dir: LogDir) -> None:
    log = open_with(log_dir, {**SMALL, "retention.ms": "1000"})
    for when in (0, 900, 2000):
        log.append_as_leader(make_batch(b"x" * 150, timestamp=NOW_MS + when), 0, NOW_MS + when)
    assert log.delete_old_segments(NOW_MS + 1500, 3) == 1
    assert log.view.start_offset == 1


def test_retention_bytes(log_dir: LogDir) -> None:
    log = open_with(log_dir, {**SMALL, "retention.bytes": "500"})
    for _ in range(5):
        log.append_as_leader(make_batch(b"x" * 150), 0, NOW_MS)
    assert log.delete_old_segments(NOW_MS, 5) == 2
    assert 500 <= log.view.size < 800


def test_file_delete_delay_ms(log_dir: LogDir) -> None:
    log = open_with(log_dir, {**SMALL, "retention.ms": "1", "file.delete.delay.ms": "70"})
    for _ in range(2):
        log.append_as_leader(make_batch(b"x" * 150), 0, NOW_MS)
    log.delete_old_segments(NOW_MS + 10, 1)
    assert not log.take_retired(NOW_MS + 79)
    assert log.take_retired(NOW_MS + 80)


def test_flush_messages(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"flush.messages": "3"})
    log.append_as_leader(make_batch(b"a", b"b"), 0, NOW_MS)
    assert log.recovery_point == 0
    log.append_as_leader(make_batch(b"c"), 0, NOW_MS)
    assert log.recovery_point == 3


def test_flush_ms(log_dir: LogDir) -> None:
    log = open_with(log_dir, {"flush.ms": "100"})
    log.flush_if_due(NOW_MS)
    log.append_as_leader(make_batch(b"a"), 0, NOW_MS)
    log.flush_if_due(NOW_MS + 99)
    assert log.recovery_point == 0
    log.flush_if_due(NOW_MS + 100)
    assert log.recovery_point == 1


@pytest.mark.parametrize(("policy", "deleted"), [("delete", 1), ("compact,delete", 1), ("compact", 0), ("", 0)])
def test_cleanup_policy(log_dir: LogDir, policy: str, deleted: int) -> None:
    log = open_with(log_dir, {**SMALL, "retention.ms": "1", "cleanup.policy": policy})
    for _ in range(2):
        log.append_as_leader(make_batch(b"x" * 150), 0, NOW_MS)
    assert log.delete_old_segments(NOW_MS + 10, 1) == deleted
