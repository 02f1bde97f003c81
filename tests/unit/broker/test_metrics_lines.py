"""A page of metrics is made in pieces between which the event loop does other things: how it is written, and how large
a piece is with as many partitions as a broker has."""

import dataclasses
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.broker.metrics import BrokerReading, Reading, RequestsReading, TrafficReading
from holdfast.broker.metrics_lines import AT_ONCE, head, labels, line, pieces
from holdfast.broker.metrics_partitions import LEVELS, PartitionRow, TopicRow
from holdfast.broker.metrics_process import process_lines
from holdfast.broker.metrics_text import lines, text
from holdfast.broker.request_times import NO_STAGES, STAGES, ApiReading
from holdfast.model.histogram import Histogram
from holdfast.model.types import TopicPartition
from holdfast.replication.traffic import TopicCounts

PARTITIONS = 3_330
MOST_MS = 5.0
"""Of a piece, which takes a half and follows on others of a millisecond: the loop's turns have no more than that."""


def reading(level: str, *, partitions: int, of_topic: int) -> Reading:
    """What a broker with so many replicas tells at a level, with 25 APIs."""
    seen = Histogram()
    for us in (90, 800, 4_000, 300_000):
        seen.add(us)
    stages = (seen.now(),) * len(STAGES)
    apis = tuple(ApiReading(f"Api{number}", stages, NO_STAGES) for number in range(25))
    found = Reading(requests=RequestsReading(apis=apis), traffic=TrafficReading(), broker=BrokerReading())
    if level == "broker":
        return found
    names = [f"topic-{number:05}" for number in range(partitions // of_topic)]
    found = dataclasses.replace(
        found,
        traffic=TrafficReading(topics=tuple((name, TopicCounts(bytes_in=300)) for name in names)),
        topic_rows=tuple((name, TopicRow(of_topic, 3, 0, 1 << 30)) for name in names),
    )
    if level == "topic":
        return found
    places = [TopicPartition(names[number // of_topic], number % of_topic) for number in range(partitions)]
    rows = tuple(PartitionRow(tp, 1 << 30, 5, 1 << 20, 3, tp.partition % 3 == 0, 3, 3, 2, 0) for tp in places)
    lags = tuple((row.topic_partition, 7) for row in rows if not row.is_leader)
    return dataclasses.replace(found, partition_rows=rows, broker=BrokerReading(lags=lags))


def took_ms(of: Reading) -> list[float]:
    """CPU of each piece."""
    found, began_s = [], time.thread_time()
    for _ in pieces(lines(of)):
        now_s = time.thread_time()
        found.append((now_s - began_s) * 1000)
        began_s = now_s
    return found


@pytest.mark.parametrize("of_topic", [1, 10])
@pytest.mark.parametrize("level", LEVELS)
def test_no_piece_of_a_page_of_3330_partitions_takes_long(level: str, of_topic: int) -> None:
    page = reading(level, partitions=PARTITIONS, of_topic=of_topic)
    runs = [took_ms(page) for _ in range(3)]
    least = [min(times) for times in zip(*runs, strict=True)]  # what is there every time is the piece's own
    print(f"metrics.level={level}: {sum(least):.1f} ms in {len(least)} pieces, the longest {max(least):.2f} ms")
    assert max(least) < MOST_MS


def test_a_piece_has_only_so_many_lines_and_all_of_them_are_the_page() -> None:
    page = reading("partition", partitions=500, of_topic=5)
    some = list(pieces(lines(page)))
    assert len(some) > 10
    assert max(each.count(b"\n") for each in some) <= 2 * AT_ONCE  # what stands above a metric is two lines
    assert text(page).startswith(b"".join(some))


def test_what_has_made_no_line_counts_as_one() -> None:
    made = iter([""] * AT_ONCE + ["a 1\n"])
    assert list(pieces(made)) == [b"", b"a 1\n"]


def test_labels_are_sorted_and_quoted() -> None:
    marked = labels({"b": 'a "quoted" \\ path', "a": "two\nlines"})
    assert marked == r'{a="two\nlines",b="a \"quoted\" \\ path"}'
    told = head("x", "gauge", "a \\ and\na line") + line("x", marked, True) + line("x", labels({}), 1 << 40)
    (family,) = text_string_to_metric_families(told)
    assert family.documentation == "a \\ and\na line"
    one, other = family.samples
    assert (one.labels, one.value) == ({"a": "two\nlines", "b": 'a "quoted" \\ path'}, 1)
    assert (other.labels, other.value) == ({}, 1 << 40)


def test_the_process_is_told_as_prometheus_own_library_does() -> None:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    theirs = {each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())}
    ours = {each.name: each for each in text_string_to_metric_families("".join(process_lines()))}
    assert theirs.keys() == {name for name in ours if name.startswith("process_")}
    for name, family in theirs.items():
        mine = ours[name]
        assert (mine.type, mine.documentation) == (family.type, family.documentation)
        (one,), (other,) = family.samples, mine.samples
        assert one.name == other.name
        assert other.value == pytest.approx(one.value, rel=0.2, abs=1.0), name
