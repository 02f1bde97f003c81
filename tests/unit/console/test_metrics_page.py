"""The console's page for Prometheus: whose names, which series, and how many at most."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.views import CommittedOffset
from holdfast.console.metrics_page import PIECE_BYTES, LagOf, MetricsAbout, metrics_lines, packed_page, plain_pieces
from holdfast.console.metrics_routes import takes_gzip
from holdfast.console.snapshot import GroupPositions, Snapshot
from holdfast.model.types import TopicPartition
from tests.unit.console.snapshots import snapshot, topic

ABOUT = MetricsAbout(software="1.0", took_s=0.25)
EXPORTER = {
    "kafka_brokers", "kafka_broker_info", "kafka_topic_partitions", "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset", "kafka_topic_partition_in_sync_replica", "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred", "kafka_topic_partition_replicas",
    "kafka_topic_partition_under_replicated_partition", "kafka_consumergroup_current_offset",
    "kafka_consumergroup_current_offset_sum", "kafka_consumergroup_lag", "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_members",
}  # fmt: skip
"""All that kafka_exporter has of a cluster without ZooKeeper."""
BOARD = {
    "kafka_topic_partitions", "kafka_topic_partition_replicas", "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_under_replicated_partition", "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_current_offset", "kafka_topic_partition_oldest_offset", "kafka_consumergroup_current_offset",
    "kafka_consumergroup_lag", "kafka_broker_info",
}  # fmt: skip
"""The ten that Strimzi's board of kafka_exporter reads."""

Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def of(now: Snapshot, lag_of: LagOf = lambda tp, offset: None, about: MetricsAbout = ABOUT) -> dict[str, Series]:
    """Family -> its series, as Prometheus' own reader has them."""
    text = "".join(metrics_lines(now, lag_of, about))
    return {
        family.name: {(s.name, tuple(sorted(s.labels.items()))): s.value for s in family.samples}
        for family in text_string_to_metric_families(text)
    }


def value(found: Mapping[str, Series], name: str, **labels: str) -> float | None:
    return found[name].get((name, tuple(sorted(labels.items()))))


def readers(*offsets: tuple[str, int, int], members: int | None = 1) -> GroupPositions:
    """Of (topic, partition, offset)."""
    return GroupPositions(
        offsets={TopicPartition(t, p): CommittedOffset(offset=at) for t, p, at in offsets},
        told_ms=1_700_000_090_000,
        members=members,
    )


@pytest.fixture
def now() -> Snapshot:
    made = snapshot(
        topics=[topic("orders", (1, (1, 2), (1, 2)), (2, (1, 2), (2,))), topic("lost", (None, (1,), ()))],
        groups={"etl": "Stable", "old": "Empty"},
    )
    return replace(
        made,
        ends={TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 50},
        starts={TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 0},
        positions={
            "etl": readers(("orders", 0, 70), ("orders", 1, 50), ("gone", 0, 5), members=2),
            "old": readers(("lost", 0, 5)),
        },
    )


def test_names_and_labels_are_those_of_kafka_exporter(now: Snapshot) -> None:
    found = of(now)
    assert found.keys() >= EXPORTER >= BOARD
    assert len(BOARD) == 10
    assert value(found, "kafka_brokers") == 2
    assert value(found, "kafka_broker_info", id="1", address="127.0.0.1:9092") == 1
    assert value(found, "kafka_topic_partitions", topic="orders") == 2
    one, two = {"topic": "orders", "partition": "0"}, {"topic": "orders", "partition": "1"}
    assert value(found, "kafka_topic_partition_current_offset", **one) == 100
    assert value(found, "kafka_topic_partition_oldest_offset", **one) == 10
    assert [value(found, "kafka_topic_partition_leader", **each) for each in (one, two)] == [1, 2]
    assert [value(found, "kafka_topic_partition_leader_is_preferred", **each) for each in (one, two)] == [1, 0]
    assert [value(found, "kafka_topic_partition_replicas", **each) for each in (one, two)] == [2, 2]
    assert [value(found, "kafka_topic_partition_in_sync_replica", **each) for each in (one, two)] == [2, 1]
    assert [value(found, "kafka_topic_partition_under_replicated_partition", **each) for each in (one, two)] == [0, 1]
    assert value(found, "kafka_consumergroup_current_offset", consumergroup="etl", **one) == 70
    assert value(found, "kafka_consumergroup_lag", consumergroup="etl", **one) == 30
    assert value(found, "kafka_consumergroup_lag", consumergroup="etl", **two) == 0
    assert value(found, "kafka_consumergroup_lag_sum", consumergroup="etl", topic="orders") == 30
    assert value(found, "kafka_consumergroup_current_offset_sum", consumergroup="etl", topic="orders") == 120
    assert value(found, "kafka_consumergroup_members", consumergroup="etl") == 2


def test_what_is_not_known_has_no_series(now: Snapshot) -> None:
    found = of(now)
    lost = {"topic": "lost", "partition": "0"}
    assert value(found, "kafka_topic_partition_leader", **lost) is None
    assert value(found, "kafka_topic_partition_current_offset", **lost) is None
    assert value(found, "kafka_topic_partition_leader_is_preferred", **lost) == 0
    assert value(found, "kafka_consumergroup_lag", consumergroup="old", **lost) is None
    assert value(found, "kafka_consumergroup_lag_sum", consumergroup="old", topic="lost") is None
    assert value(found, "kafka_consumergroup_current_offset", consumergroup="old", **lost) == 5


def test_lag_in_seconds_is_told_by_partition_and_of_the_worst(now: Snapshot) -> None:
    ages = {("orders", 0, 70): 12.5, ("orders", 1, 50): 0.0}
    found = of(now, lambda tp, offset: ages.get((tp.topic, tp.partition, offset)))
    one = {"consumergroup": "etl", "topic": "orders"}
    assert value(found, "holdfast_consumergroup_lag_seconds", **one, partition="0") == 12.5
    assert value(found, "holdfast_consumergroup_lag_seconds", **one, partition="1") == 0
    assert value(found, "holdfast_consumergroup_lag_max_seconds", **one) == 12.5
    assert value(found, "holdfast_consumergroup_lag_max_seconds", consumergroup="old", topic="lost") is None


def test_nothing_is_told_of_what_is_gone(now: Snapshot) -> None:
    text = "".join(metrics_lines(now, lambda tp, offset: 1.0, ABOUT))
    assert 'topic="gone"' not in text
    left = replace(now, view=replace(now.view, topics={}), groups=now.groups[1:])
    text = "".join(metrics_lines(left, lambda tp, offset: 1.0, ABOUT))
    assert "orders" not in text
    assert "etl" not in text


def test_a_cluster_that_does_not_answer_has_no_numbers(now: Snapshot) -> None:
    assert value(of(now), "holdfast_console_cluster_reached") == 1
    found = of(replace(now, trouble="no broker can be reached"))
    assert value(found, "holdfast_console_cluster_reached") == 0
    assert not {name for name in found if name.startswith("kafka_")}


def test_there_is_a_limit_of_series_and_what_is_left_out_is_counted(now: Snapshot) -> None:
    topics = [topic(f"t{n:03}", *[(1, (1,), (1,))] * 10) for n in range(100)]
    many = replace(
        now,
        view=replace(now.view, topics={t.name: t for t in topics}),
        groups=tuple(replace(now.groups[0], group_id=f"g{n:03}") for n in range(100)),
        positions={f"g{n:03}": readers(*((f"t{n:03}", p, 1) for p in range(10))) for n in range(100)},
        ends={TopicPartition(t.name, p): 2 for t in topics for p in range(10)},
        starts={TopicPartition(t.name, p): 0 for t in topics for p in range(10)},
    )
    whole = of(many, lambda tp, offset: 1.0)
    assert value(whole, "holdfast_console_series_left_out", of="groups") == 0
    everything = 100 * 10 * 7 + 100 * (1 + 1 + 3 + 10 * 3)
    for most in (600, 3_000, 9_000):
        found = of(many, lambda tp, offset: 1.0, replace(ABOUT, most_series=most))
        limited = [family for name, family in found.items() if name.startswith(("kafka_topic", "kafka_consumer"))]
        limited.append(found["holdfast_consumergroup_lag_seconds"])
        limited.append(found["holdfast_consumergroup_lag_max_seconds"])
        there = sum(map(len, limited))
        left_out = sum(found["holdfast_console_series_left_out"].values())
        assert there <= most
        assert there + left_out == everything
        assert len(found["kafka_consumergroup_members"]) == 100
        parts = [dict(labels)["topic"] for _, labels in found["kafka_topic_partition_leader"]]
        assert all(parts.count(name) == 10 for name in parts), "topics are there as a whole"


def test_labels_are_escaped() -> None:
    nasty = 'a"b\\c\nd'
    now = snapshot(topics=[topic(nasty, (1, (1,), (1,)))])
    assert value(of(now), "kafka_topic_partitions", topic=nasty) == 1


def test_the_page_is_compressed_and_the_same(now: Snapshot) -> None:
    packed = packed_page(now, lambda tp, offset: None, ABOUT)
    assert b"".join(plain_pieces(packed)).decode() == "".join(metrics_lines(now, lambda tp, offset: None, ABOUT))


@pytest.mark.parametrize("size", [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 1_000_003])
def test_a_long_page_is_unpacked_in_pieces(size: int) -> None:
    page = bytes(n % 251 for n in range(size))
    for text in (page, b"x" * size):
        pieces = list(plain_pieces(gzip.compress(text)))
        assert b"".join(pieces) == text
        assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


def test_a_page_that_is_not_whole_is_not_told_as_one() -> None:
    with pytest.raises(ValueError, match="the end of the page"):
        list(plain_pieces(gzip.compress(b"x" * 1_000_000)[:-9]))


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip", True), ("deflate, gzip;q=1.0", True), ("*", True), ("GZIP ; q=0.5", True), ("gzip;q=0", False),
        ("gzip;q=0.000", False), ("identity", False), ("", False), ("br", False),
    ],
)  # fmt: skip
def test_who_takes_gzip(accepted: str, expected: bool) -> None:
    assert takes_gzip(accepted) is expected
