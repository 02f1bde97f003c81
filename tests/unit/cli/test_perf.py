"""``holdfast perf``: its batches, its schedule, its numbers; nothing here needs a cluster."""

from __future__ import annotations

import random

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.cli.perf_lines import CONSUMER_HEADER, Latencies, Sent, consumed_line
from holdfast.cli.perf_load import MAX_RECORDS, MAX_UNACKNOWLEDGED, BatchSource, Schedule, lanes_of
from holdfast.records.batch import crc_ok, parse_header
from holdfast.records.compression import Codec
from holdfast.records.record import decode_batch


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("records", [1, 2, 57])
def test_a_batch_is_the_beginning_of_the_block(codec: Codec, records: int) -> None:
    source = BatchSource(100, 16384, codec)
    batch = source.batch(records, 1_700_000_000_000)
    header = parse_header(batch)
    found = decode_batch(batch)
    assert crc_ok(batch, 0, header) and header.size == len(batch)
    assert (header.record_count, header.last_offset, header.compression) == (records, records - 1, codec)
    assert [len(r.value or b"") for r in found] == [100] * records
    assert {r.timestamp for r in found} == {1_700_000_000_000}
    assert len({r.value for r in found}) == records, "no codec finds the same value twice"


def test_a_batch_has_its_producer_and_its_place_in_the_row() -> None:
    source = BatchSource(100, 16384, Codec.LZ4)
    batch = source.batch(7, 0, (4711, 3), 2**31 - 2)
    header = parse_header(batch)
    assert crc_ok(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 2**31 - 2)
    bare = parse_header(source.batch(7, 0))
    assert (bare.producer_id, bare.producer_epoch, bare.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("size", "batch_bytes", "most"),
    [(100, 16384, 150), (20_000, 16384, 1), (0, 16384, 2000), (0, 1 << 25, MAX_RECORDS)],
)
def test_the_largest_batch_is_as_large_as_it_may_be(size: int, batch_bytes: int, most: int) -> None:
    source = BatchSource(size, batch_bytes, Codec.NONE)
    assert source.most == pytest.approx(most, rel=0.2)
    assert source.most == 1 or len(source.batch(source.most, 0)) <= batch_bytes
    assert source.most <= MAX_RECORDS


def test_without_a_rate_all_is_due_at_once() -> None:
    schedule = Schedule(25, None, 100.0)
    assert schedule.wait_s(100.0, 10, 5.0) == 0.0
    assert [schedule.take(100.0 + i, 10) for i in range(3)] == [(10, 100.0), (10, 101.0), (5, 102.0)]
    assert schedule.wait_s(103.0, 10, 5.0) is None


def test_with_a_rate_each_record_has_its_time() -> None:
    schedule = Schedule(100, 10.0, 0.0)
    assert schedule.wait_s(0.0, 10, 0.0) == 0.0
    assert schedule.take(0.0, 10) == (1, 0.0)
    assert schedule.wait_s(0.02, 10, 0.0) == pytest.approx(0.08)
    assert schedule.wait_s(0.02, 10, 0.5) == pytest.approx(0.58), "the first one waits for others"
    assert schedule.wait_s(0.02, 3, 5.0) == pytest.approx(0.28), "and no longer than until the batch is full"
    assert schedule.take(0.55, 10) == (5, pytest.approx(0.1))
    # Brokers were slow: what is late counts from when it was due.
    assert schedule.take(5.05, 10) == (10, pytest.approx(0.6))
    assert schedule.wait_s(5.05, 10, 0.0) == 0.0


def test_latencies_are_what_they_would_be_sorted() -> None:
    chance = random.Random(1)
    seen = sorted(int(chance.lognormvariate(8, 2)) for _ in range(20_000))
    found = Latencies()
    for us in seen:
        found.add(us, 1)
    for percent in (50.0, 95.0, 99.0, 99.9):
        exact = seen[max(0, round(len(seen) * percent / 100) - 1)] / 1000
        assert found.percentile_ms(percent) == pytest.approx(exact, rel=0.003, abs=0.002)
    assert found.average_ms == pytest.approx(sum(seen) / len(seen) / 1000)
    assert found.max_ms == found.percentile_ms(100) == seen[-1] / 1000


@pytest.mark.parametrize("us", [0, 1, 511, 512, 1023, 1024, 10**6, 10**10, 1 << 41, 1 << 60])
def test_one_latency_is_all_percentiles(us: int) -> None:
    found = Latencies()
    found.add(us, 1000)
    assert found.percentile_ms(50) == pytest.approx(us / 1000, rel=0.002) or us > 1 << 41
    assert (found.max_ms, found.count) == (us / 1000, 1000)


def test_lines_are_those_of_kafkas_tools() -> None:
    sent = Sent()
    sent.add(1000, 1000 * 1048, 2_000)
    sent.add(1, 1048, 900_000)
    assert sent.line(2.0) == (
        "1001 records sent, 500.5 records/sec (0.50 MB/sec), 2.9 ms avg latency, 900.0 ms max latency."
    )
    assert sent.line(2.0, final=True) == (
        "1001 records sent, 500.5 records/sec (0.50 MB/sec), 2.90 ms avg latency, 900.00 ms max latency, "
        "2 ms 50th, 2 ms 95th, 2 ms 99th, 2 ms 99.9th."
    )
    document = sent.document(2.0)
    assert (document["records"], document["latency_ms"]["max"], document["mb_per_s"]) == (1001, 900.0, 0.5)
    assert Sent().line(0.0, final=True).startswith("0 records sent, 0.0 records/sec (0.00 MB/sec), 0.00 ms avg")
    cells = consumed_line(1_700_000_000_123, 1_700_000_002_123, 4000, 2 << 20).split(", ")
    assert len(cells) == len(CONSUMER_HEADER.split(", ")) == 10
    assert cells[0].endswith(":123") and cells[2:] == [
        "2.0000", "1.0000", "4000", "2000.0000", "0", "2000", "1.0000", "2000.0000"
    ]  # fmt: skip


def test_what_is_unacknowledged_has_a_limit() -> None:
    assert lanes_of(3, 5, 16384) == 15
    assert lanes_of(1000, 5, 1 << 20) * (1 << 20) <= MAX_UNACKNOWLEDGED
    assert lanes_of(1, 1, MAX_UNACKNOWLEDGED * 2) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["produce", "--topic", "t", "--records", "0"], "Invalid value for '--records'"),
        (
            ["produce", "--topic", "t", "--records", "1", "--throughput", "0"],
            "--throughput 0: expected records a second",
        ),
        (["produce", "--topic", "t", "--records", "1", "--acks", "2"], "Invalid value for '--acks'"),
        (
            ["produce", "--topic", "t", "--records", "1", "--acks", "1", "--idempotence"],
            "--idempotence, --acks 1, --in-flight 5: expected acks all and 5 at most with it",
        ),
        (
            ["produce", "--topic", "t", "--records", "1", "--producer-property", "retries=5"],
            "--producer-property retries: expected one of acks, batch.size, buffer.memory, ",
        ),
        (
            ["produce", "--topic", "t", "--records", "1", "--linger-ms", "1", "--producer-property", "linger.ms=1"],
            "--linger-ms and linger.ms of --producer-property: expected one of them",
        ),
        (["consume"], "Missing option '--topic'"),
        (["consume", "--topic", "t", "--bootstrap-server", "x:y"], "bootstrap server 'x:y': expected HOST:PORT"),
    ],
)
def test_what_cannot_be_meant_is_one_line(given: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["perf", *given], prog_name="holdfast")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith(f"holdfast perf: {said}")
