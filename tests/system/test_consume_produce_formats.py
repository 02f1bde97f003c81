"""``consume`` and ``produce`` on a real cluster: what stock clients write and read, the commands show and take."""

from __future__ import annotations

import array
import fcntl
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import wait_ended

pytestmark = pytest.mark.system

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
T0 = 1767225600000
"""2026-01-01T00:00:00 UTC."""
SETTINGS = {"default.replication.factor": "1", "log.retention.ms": "-1"}
"""Records of T0 are old enough for retention, which looks for the first time after half a minute."""
STRANGE: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"k", b"v", []),
    (None, None, []),
    (b"", b"", [("h", None), ("h", b""), ("h", b"a\nb")]),
    (b"\xff\x00", b"two\nlines\r\n", [("bin", b"\xfe")]),
    ("ключ".encode(), b'\xe2\x80\xa8 {"value":1} %s \\x', [("имя", "ü".encode())]),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, log_dirs=1, settings=SETTINGS) as cluster:
        yield cluster


def run(cluster: Cluster, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*HOLDFAST, *args], input=stdin, capture_output=True, timeout=60, env=environment(cluster), check=False
    )


def environment(cluster: Cluster) -> dict[str, str]:
    """With streams that are buffered, as they are for people."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return buffered | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}


def ok(cluster: Cluster, *args: str, stdin: bytes = b"") -> bytes:
    """Standard output of a command that has to end with 0."""
    done = run(cluster, *args, stdin=stdin)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def refused(cluster: Cluster, *args: str, stdin: bytes = b"") -> str:
    """The line on standard error of a command that ends with 1; of consume without how many there were."""
    done = run(cluster, *args, stdin=stdin)
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("Processed a total of ")]
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    return lines[0]


def create(cluster: Cluster, topic: str, partitions: int = 1, *config: str) -> str:
    configs = [part for one in config for part in ("--config", one)]
    ok(cluster, "topics", "create", topic, "--partitions", str(partitions), *configs)
    return topic


def stock_write(cluster: Cluster, topic: str, records: list[Any], partition: int = 0) -> None:
    """By a stock client, the n-th record at T0 + n seconds."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for n, (key, value, headers) in enumerate(records):
        producer.produce(topic, value, key, partition, headers=headers, timestamp=T0 + 1000 * n)
    assert producer.flush(60) == 0


def stock_read(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """(partition, timestamp, key, value, headers) as a stock client has them, by partition and offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"check-{topic}", "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    found: list[Any] = []
    try:
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])

        def more() -> bool:
            found.extend(consumer.consume(1000, 0.2))
            return len(found) >= count

        wait_for(more, f"{count} records of {topic}", timeout_s=60)
    finally:
        consumer.close()
    assert not any(message.error() for message in found)
    found.sort(key=lambda m: (m.partition(), m.offset()))
    return [(m.partition(), m.timestamp()[1], m.key(), m.value(), m.headers() or []) for m in found]


# -- consume -----------------------------------------------------------------------------------------------


def test_a_format_and_json_tell_null_empty_and_newlines_apart(cluster: Cluster) -> None:
    topic = create(cluster, "strange")
    stock_write(cluster, topic, STRANGE)
    sizes = ok(cluster, "consume", topic, "--from-beginning", "-e", "--format", "%t-%p@%o %T %K %S|")
    assert sizes.decode() == "".join(
        f"{topic}-0@{n} {T0 + 1000 * n} {-1 if key is None else len(key)} {-1 if value is None else len(value)}|"
        for n, (key, value, _) in enumerate(STRANGE)
    )
    raw = ok(cluster, "consume", topic, "--from-beginning", "-e", "--format", r"%k\x00\x01%s\x00\x02")
    assert raw == b"".join((key or b"") + b"\x00\x01" + (value or b"") + b"\x00\x02" for key, value, _ in STRANGE)
    objects = [
        json.loads(line) for line in ok(cluster, "consume", topic, "--from-beginning", "-e", "--json").splitlines()
    ]
    assert [one["offset"] for one in objects] == list(range(len(STRANGE)))
    assert [one.get("value") for one in objects[:3]] == ["v", None, ""]
    assert objects[3]["keyBase64"] == "/wA=" and objects[3]["value"] == "two\nlines\r\n"
    assert {one["timestampType"] for one in objects} == {"CreateTime"}
    console = ok(cluster, "consume", topic, "-e", "--offset", "-4", "--max-messages", "1", "--print-timestamp",
                 "--print-partition", "--print-offset", "--print-headers", "--print-key")  # fmt: skip
    assert console.decode() == f"CreateTime:{T0 + 1000}\tPartition:0\tOffset:1\tNO_HEADERS\tnull\tnull\n"
    appended = create(cluster, "stamped", 1, "message.timestamp.type=LogAppendTime")
    ok(cluster, "produce", appended, stdin=b"x\n")
    (line,) = ok(cluster, "consume", appended, "--from-beginning", "-e", "--json").splitlines()
    assert json.loads(line)["timestampType"] == "LogAppendTime"


def test_where_to_begin_and_the_end(cluster: Cluster) -> None:
    topic = create(cluster, "places", 2)
    for partition in (0, 1):
        stock_write(cluster, topic, [(None, b"%d-%d" % (partition, n), []) for n in range(10)], partition)

    def read(*args: str) -> list[str]:
        return sorted(ok(cluster, "consume", topic, "-e", *args).decode().split())

    assert len(read("--from-beginning")) == 20
    assert read() == []  # begins at the end
    assert read("--offset", "-2") == ["0-8", "0-9", "1-8", "1-9"]
    assert read("--offset", "-99", "--partition", "1") == [f"1-{n}" for n in range(10)]
    late = ["0-7", "0-8", "0-9", "1-7", "1-8", "1-9"]
    for when in ("@2026-01-01T00:00:07", "@2026-01-01T01:00:06.001+01:00", f"@{T0 + 7000}"):
        assert read("--offset", when) == late
    assert read("--from-time", "2026-01-01T00:00:07Z") == late
    assert read("--from-time", "2200-01-01") == []
    assert read("--partition", "0", "--offset", "9") == ["0-9"]
    assert read("--partition", "0", "--offset", "9", "--max-messages", "0") == []


def test_operator_C6_an_offset_that_is_not_there_is_told_with_what_is(cluster: Cluster) -> None:
    topic = create(cluster, "away")
    ok(cluster, "produce", topic, stdin=b"a\nb\nc\nd\ne\n")
    after = run(cluster, "consume", topic, "--partition", "0", "--offset", "9999", "-e")
    assert (after.returncode, after.stdout) == (0, b"")
    told = "holdfast consume: away-0 has no offset 9999 yet: it ends at 5, and is read from there"
    assert told in after.stderr.decode().splitlines()


def test_operator_C4_what_does_not_exist_is_named(cluster: Cluster) -> None:
    assert refused(cluster, "consume", "nope") == "holdfast consume: topic 'nope' does not exist: holdfast topics list"
    nothing = refused(cluster, "consume", "--include", "no.*such")
    assert nothing.startswith("holdfast consume: --include 'no.*such': none of the ")
    topic = create(cluster, "two", 2)
    told = f"--partition 7: topic '{topic}' has partitions 0 to 1"
    assert refused(cluster, "consume", topic, "--partition", "7") == f"holdfast consume: {told}"
    assert refused(cluster, "produce", topic, "--partition", "7", stdin=b"x\n") == f"holdfast produce: {told}"


def test_several_topics_and_an_expression(cluster: Cluster) -> None:
    for name in ("logs.a", "logs.b", "logsxb", "logs.ab"):
        ok(cluster, "produce", create(cluster, name), stdin=f"{name}\n".encode())
    both = ok(cluster, "consume", "logs.a", "--topic", "logs.b", "--topic", "logs.a", "--from-beginning", "-e")
    assert sorted(both.split()) == [b"logs.a", b"logs.b"]
    matching = ok(cluster, "consume", "--include", r"logs\.[ab]", "--from-beginning", "-e", "--format", r"%t\n")
    assert sorted(matching.split()) == [b"logs.a", b"logs.b"]
    grouped = ok(cluster, "consume", "--include", r"logs\..*", "--group", "several", "--from-beginning", "-e")
    assert sorted(grouped.split()) == [b"logs.a", b"logs.ab", b"logs.b"]
    everything = ok(cluster, "consume", "--include", ".*", "--from-beginning", "-e", "--format", r"%t\n").split()
    assert b"__consumer_offsets" not in everything and b"logsxb" in everything


def test_operator_C7_a_group_that_reads_to_the_end_goes_on_there(cluster: Cluster) -> None:
    topic = create(cluster, "turns", 2)
    args = ("consume", topic, "--group", "turns", "--from-beginning", "-e")
    assert ok(cluster, *args) == b""
    for turn in range(2):
        lines = [f"{turn}-{n}" for n in range(100)]
        ok(cluster, "produce", topic, "--key-separator", "-", stdin="\n".join(lines).encode())
        assert sorted(ok(cluster, *args, "--key-separator", "-").decode().split()) == sorted(lines)
    assert ok(cluster, *args) == b""


def test_a_group_s_position_goes_over_what_does_not_count(cluster: Cluster) -> None:
    """An aborted transaction and its marker: nothing of it is written, and nothing of it is left to be read."""
    topic = create(cluster, "aborted")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "away"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    assert producer.flush(60) == 0
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, b"counts")
    producer.commit_transaction(60)
    wait_ended(cluster.bootstrap, "away")
    committed = ("--group", "over", "--isolation-level", "read_committed")
    assert ok(cluster, "consume", topic, *committed, "--from-beginning", "-e") == b"counts\n"
    table = ok(cluster, "groups", "describe", "over").decode().splitlines()[2].split()
    assert table[3:6] == ["4", "4", "0"]  # two records and two markers, all of them passed
    assert ok(cluster, "consume", topic, "--from-beginning", "-e") == b"never\ncounts\n"


# -- produce -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_consume_and_produce_by_json_copy_a_topic(cluster: Cluster, partitions: int) -> None:
    old, new = create(cluster, f"old-{partitions}", partitions), create(cluster, f"new-{partitions}", partitions)
    for partition in range(partitions):
        stock_write(cluster, old, STRANGE, partition)
    lines = ok(cluster, "consume", old, "--from-beginning", "-e", "--json")
    ok(cluster, "produce", new, "--json", "--keep-partitions", stdin=lines)
    count = len(STRANGE) * partitions
    copied = stock_read(cluster, new, count)
    assert copied == stock_read(cluster, old, count)
    assert len(copied) == count and {record[0] for record in copied} == set(range(partitions))
    assert ok(cluster, "consume", new, "--from-beginning", "-e", "--json", "--partition", "0") == ok(
        cluster, "consume", old, "--from-beginning", "-e", "--json", "--partition", "0"
    ).replace(b'"topic":"old', b'"topic":"new')


def test_lines_with_headers_tombstones_and_a_time(cluster: Cluster) -> None:
    topic = create(cluster, "lines")
    ok(cluster, "produce", topic, "--parse-headers", "--key-separator", r"\t", "--null-marker", "NULL", "--timestamp",
       str(T0), "--header", "by=me", stdin=b"a:1,b:NULL\tk\tv\n\tNULL\tNULL\nNULL\t\t\n")  # fmt: skip
    me = ("by", b"me")
    assert stock_read(cluster, topic, 3) == [
        (0, T0, b"k", b"v", [("a", b"1"), ("b", None), me]),
        (0, T0, None, None, [me]),
        (0, T0, b"", b"", [me]),
    ]
    other = create(cluster, "signs")
    ok(cluster, "produce", other, "--parse-headers", "--headers-delimiter", "|", "--headers-separator", ";",
       "--headers-key-separator", "=", "--no-idempotence", stdin=b"a=1;b=2|v:w\n")  # fmt: skip
    ((_, stamp, key, value, headers),) = stock_read(cluster, other, 1)
    assert (key, value, headers) == (None, b"v:w", [("a", b"1"), ("b", b"2")])
    assert stamp > T0
    batch = cluster.folder_of(1, other, 0) / "00000000000000000000.log"
    assert batch.read_bytes()[43:51] == b"\xff" * 8  # no producer id
    assert (cluster.folder_of(1, topic, 0) / batch.name).read_bytes()[43:51] != b"\xff" * 8


def test_records_behind_their_lengths_and_in_files(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    pairs = [(key, value) for key, value, _ in STRANGE]
    topic = create(cluster, "lengths")
    packed = b"".join(
        struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
        for pair in pairs
        for part in pair
    )
    ok(cluster, "produce", topic, "--length-prefixed", "key-value", stdin=packed)
    assert [(key, value) for _, _, key, value, _ in stock_read(cluster, topic, len(pairs))] == pairs
    told = refused(cluster, "produce", topic, "--length-prefixed", "value", stdin=b"\0\0\0\1x\0\0\0\5y")
    assert told == "holdfast produce: record 2: standard input ends within it, after 5 bytes"
    assert [record[3] for record in stock_read(cluster, topic, len(pairs) + 1)][-1] == b"x"

    files = [tmp_path / name for name in ("a", "b")]
    for number, file in enumerate(files):
        file.write_bytes(b"line\n\0" * (1 + number * 50_000))
    other = create(cluster, "files")
    given = [word for file in files for word in ("--file", str(file))]
    properties = ["compression.type=zstd", "enable.idempotence=false", "acks=1", "client.id=x"]
    ok(cluster, "produce", other, *given, *(w for p in properties for w in ("--producer-property", p)))
    assert [record[3] for record in stock_read(cluster, other, 2)] == [file.read_bytes() for file in files]
    batch = (cluster.folder_of(1, other, 0) / "00000000000000000000.log").read_bytes()
    assert (batch[22] & 7, batch[43:51]) == (4, b"\xff" * 8)  # zstd, and no producer id
    told = refused(cluster, "produce", other, "--file", str(files[0]), "--file", str(tmp_path / "none"))
    assert told == f"holdfast produce: {tmp_path}/none: No such file or directory"
    assert len(stock_read(cluster, other, 3)) == 3


def test_a_line_that_is_no_record_is_refused_by_number_and_what_stood_before_is_written(cluster: Cluster) -> None:
    topic = create(cluster, "wrong")
    lines = b'{"value":"one","timestamp":5}\n{"value":"two"}\n{"value":"three","colour":1}\n{"value":"four"}\n'
    told = refused(cluster, "produce", topic, "--json", stdin=lines)
    assert told.startswith("holdfast produce: line 3: unknown field 'colour', expected headers, key, ")
    assert ok(cluster, "consume", topic, "--from-beginning", "-e") == b"one\ntwo\n"
    told = refused(cluster, "produce", topic, "--json", "--keep-partitions", stdin=b'{"value":"v","partition":3}\n')
    assert told == "holdfast produce: line 1: partition 3: topic 'wrong' has partitions 0 to 0"
    told = refused(cluster, "produce", topic, "--json", "--keep-partitions", stdin=b'{"value":"v"}\n')
    assert told == "holdfast produce: line 1: no partition, expected one with --keep-partitions"
    told = refused(cluster, "produce", topic, "--parse-headers", stdin=b"a:b\tv\nnone\n")
    assert told.startswith("holdfast produce: no headers delimiter on line 2: 'none', expected HEADERS")
    told = refused(cluster, "produce", topic, stdin=b"x" * (2 << 20))
    assert told.startswith("holdfast produce: 1 of 1 records not written: ") and "kafka" not in told


def test_operator_C8_produce_says_that_it_waits_and_writes_when_the_broker_is_back(
    own_cluster: Callable[..., Cluster], tmp_path: pathlib.Path
) -> None:
    alone = own_cluster(brokers=1, log_dirs=1, settings={"default.replication.factor": "1"})
    topic = create(alone, "patient")
    said = tmp_path / "stderr"
    with (
        open(said, "wb") as errors,
        subprocess.Popen(
            [*HOLDFAST, "produce", topic], stdin=subprocess.PIPE, stderr=errors, env=environment(alone)
        ) as writer,
    ):
        assert writer.stdin is not None
        writer.stdin.write(b"before\n")
        writer.stdin.flush()
        wait_for(
            lambda: ok(alone, "consume", topic, "--from-beginning", "-e") == b"before\n", "the first", timeout_s=30
        )
        alone.kill(1)
        writer.stdin.write(b"meanwhile\n")
        writer.stdin.flush()
        told = b"holdfast produce: 1 records wait for their leaders to acknowledge them\n"
        wait_for(lambda: said.read_bytes() == told, "the word about what waits", timeout_s=30)
        alone.revive()
        writer.stdin.write(b"after\n")
        writer.stdin.flush()
        wait_for(
            lambda: ok(alone, "consume", topic, "--from-beginning", "-e") == b"before\nmeanwhile\nafter\n",
            "all of them", timeout_s=60,
        )  # fmt: skip
        writer.terminate()
        assert writer.wait(30) == 143
    assert said.read_bytes() == told


# -- how commands end --------------------------------------------------------------------------------------


def test_operator_C5_output_that_cannot_be_written_is_one_line(cluster: Cluster) -> None:
    topic = create(cluster, "full")
    ok(cluster, "produce", topic, stdin=b"x\n" * 1000)
    ok(cluster, "consume", topic, "--from-beginning", "-e", "--group", "full")
    for args in (["topics", "list"], ["log-dirs", "describe"], ["groups", "list"],
                 ["consume", topic, "--from-beginning", "-e"]):  # fmt: skip
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*HOLDFAST, *args],
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment(cluster),
                timeout=60,
                check=False,
            )
        first, *rest = done.stderr.decode().splitlines()
        assert (done.returncode, first) == (1, f"holdfast {args[0]}: standard output: No space left on device")
        assert all(line.startswith("Processed a total of ") for line in rest)


@pytest.mark.parametrize("args", [["topics", "describe"], ["log-dirs", "describe"], ["topics", "list"]])
def test_a_reader_that_goes_away_is_no_failure_of_a_listing(cluster: Cluster, args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*HOLDFAST, *args],
            stdout=writing,
            stderr=subprocess.PIPE,
            env=environment(cluster),
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_while_nobody_reads_the_pipe_ends_consume(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """It waits in the middle of a write that does not end. It used to abort, as the interpreter flushed the stream."""
    topic = create(cluster, "stuffed")
    ok(cluster, "produce", topic, stdin=b"x" * 1000 + b"\n" + b"y\n" * 500_000)
    args = [*HOLDFAST, "consume", topic, "--from-beginning"]
    with (
        open(tmp_path / "stderr", "w+") as errors,
        subprocess.Popen(args, stdout=subprocess.PIPE, stderr=errors, env=environment(cluster)) as reader,
    ):
        assert reader.stdout is not None
        assert reader.stdout.read(1) == b"x"
        wait_for(lambda: unread(reader) >= 65_536 - 4096, "a full pipe", timeout_s=30)
        reader.send_signal(signal.SIGINT)
        assert reader.wait(30) == 130
    told = (tmp_path / "stderr").read_text().splitlines()
    assert len(told) == 1 and told[0].startswith("Processed a total of "), told


def unread(process: subprocess.Popen[bytes]) -> int:
    """Bytes in the pipe from a process."""
    assert process.stdout is not None
    waiting = array.array("i", [0])
    fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, waiting)
    return waiting[0]
