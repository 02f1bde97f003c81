"""Offsets and cuts of logs against what Apache Kafka 4.3.0 printed, and how options are read and refused."""

import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.failing import Failed, Misused
from holdfast.cli.offset_lines import (
    cut_lines,
    low_watermark_lines,
    offset_lines,
    parse_cuts,
    span_json,
    span_lines,
    total,
)
from holdfast.cli.partition_words import matching, parse_patterns
from holdfast.client.log_cuts import Cut
from holdfast.client.offset_resets import LogSpan
from holdfast.client.views import ClusterMetadata, OffsetAt, PartitionMetadata, TopicView
from holdfast.model.errors import LeaderNotAvailableError
from holdfast.model.types import TopicPartition

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0"
NOBODY = ["--bootstrap-server", "127.0.0.1:1"]
T0, T1 = TopicPartition("t1", 0), TopicPartition("t1", 1)


def records(file: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / file).read_text())
    return found


def holdfast(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(entry.main, args, prog_name="holdfast")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("record", [r for r in records("kafka-get-offsets.json") if not r["exit"]])
def test_offsets_are_printed_as_kafka_prints_them(record: dict[str, Any]) -> None:
    found = {}
    for line in reversed(record["stdout"].splitlines()):
        topic, partition, offset = line.split(":")
        found[TopicPartition(topic, int(partition))] = OffsetAt(offset=int(offset))
    found[TopicPartition("empty", 0)] = OffsetAt(offset=None)
    assert "".join(f"{line}\n" for line in offset_lines(found)) == record["stdout"]


def view(**counts: int) -> ClusterMetadata:
    def topic(name: str, count: int) -> TopicView:
        partitions = tuple(
            PartitionMetadata(partition=n, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=())
            for n in range(count)
        )
        return TopicView(name=name, topic_id=None, internal=name.startswith("__"), partitions=partitions)

    return ClusterMetadata(
        cluster_id=None, controller_id=None, brokers={}, topics={n: topic(n, count) for n, count in counts.items()}
    )


def recorded_patterns() -> list[dict[str, Any]]:
    return [r for r in records("kafka-get-offsets.json") if "--topic-partitions" in r["command"]]


@pytest.mark.parametrize("record", recorded_patterns())
def test_patterns_choose_what_they_choose_for_kafkas_tool(record: dict[str, Any]) -> None:
    there = view(t1=4, t2=2, under_score=1)
    chosen = matching(there, parse_patterns(record["command"][-1]))
    assert [f"{tp.topic}:{tp.partition}" for tp in chosen] == [
        line.rpartition(":")[0] for line in record["stdout"].splitlines()
    ]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("a", ["a-0", "a-1", "a-2"]),
        ("a:1", ["a-1"]),
        ("a:1-", ["a-1", "a-2"]),
        ("a:-2", ["a-0", "a-1"]),
        (":2", ["a-2", "ab-2"]),
        ("a.*:0", ["a-0", "ab-0"]),
        ("a:0,ab:1-3", ["a-0", "ab-1", "ab-2"]),
    ],
)
def test_patterns(text: str, chosen: list[str]) -> None:
    assert list(map(str, matching(view(a=3, ab=3, __b=1), parse_patterns(text)))) == chosen


def test_internal_topics_and_numbers_may_be_left_out() -> None:
    there = view(a=3, __b=2)
    assert list(map(str, matching(there, parse_patterns(".*"), exclude_internal=True, numbers=[0, 2]))) == [
        "a-0",
        "a-2",
    ]
    with pytest.raises(Failed, match="Could not match any topic-partitions with the specified filters"):
        matching(there, parse_patterns("a:7"))
    for text in ("a:", "a:x", "a:-", "a:1-2-3", "("):
        with pytest.raises(Misused, match="--topic-partitions"):
            parse_patterns(text)


def test_a_table_has_what_is_between() -> None:
    found = {T1: LogSpan(start=7, end=1234), T0: LogSpan(start=0, end=0)}
    assert list(span_lines(found)) == [
        "TOPIC  PARTITION  EARLIEST  LATEST  RECORDS",
        "t1             0         0       0        0",
        "t1             1         7    1234     1227",
    ]


def test_the_document_says_what_cannot_be_told() -> None:
    document = json.loads(span_json({T1: LogSpan(start=7, end=9)}, {T0: LeaderNotAvailableError("no leader")}))
    assert document == {
        "partitions": [
            {"topic": "t1", "partition": 0, "error": "no leader"},
            {"topic": "t1", "partition": 1, "earliest": 7, "latest": 9, "records": 2},
        ]
    }


def test_what_goes_is_said_before_it_goes() -> None:
    cuts = {
        T0: Cut(before=20, log=LogSpan(start=5, end=30)),
        T1: Cut(before=3, log=LogSpan(start=5, end=30)),
    }
    assert list(cut_lines(cuts)) == ["t1-0: 15 of 25 records go: offsets 5 to 19", "t1-1: nothing goes: it begins at 5"]
    assert total(cuts) == "15 records of 1 partition"
    assert total({T0: Cut(before=6, log=LogSpan(start=5, end=6)), T1: cuts[T0]}) == "16 records of 2 partitions"
    assert total({T0: Cut(before=6, log=LogSpan(start=5, end=6))}) == "1 record of 1 partition"


def test_low_watermarks_are_printed_as_kafka_prints_them() -> None:
    first = records("kafka-delete-records.json")[0]["stdout"].splitlines()
    assert ["Executing records delete operation", *low_watermark_lines({T0: 3})] == first


def test_kafkas_file_is_read() -> None:
    text = (
        '{"partitions": [{"topic": "t1", "partition": 0, "offset": 3}, {"topic": "t1", "partition": 1, "offset": -1}]}'
    )
    assert parse_cuts(text) == parse_cuts(text[:-1] + ', "version": 1}') == {T0: 3, T1: -1}


ONE = '{{"partitions": [{{"topic": "t1", "partition": 0, "offset": {}}}{}]}}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", 'Expecting value: line 1 column 1 (char 0): expected {"partitions": [{"topic": "t", "partition": 0, '),
        ("[]", ": expected {"),
        ("{}", "KeyError 'partitions': expected {"),
        ("[" * 100_000, ": expected {"),
        ('{"partitions": [], "version": 2}', "version 2: expected 1"),
        (ONE.format('"3"', ""), "a number that is none: expected {"),
        (ONE.format("-2", ""), "t1-0: offset -2: expected -1 (its end) or more"),
        (
            ONE.format("3", ', {"topic": "t1", "partition": 0, "offset": 4}'),
            "Offset json file contains duplicate topic partitions: t1-0",
        ),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_cuts(text)
    assert says in str(refused.value)


# -- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("offsets", "t", "--topic", "u"), "names, --topic and --topic-partitions: expected one of them"),
        (("offsets", "--topic-partitions", "t", "--partitions", "0"), "cannot be used with --partitions"),
        (("offsets", "--table", "--json"), "--table, --json and --time: expected one of them"),
        (("offsets", "--json", "--time", "-1"), "--table, --json and --time: expected one of them"),
        (
            ("offsets", "--time", "abc"),
            "--time 'abc': expected latest, earliest, max-timestamp, milliseconds since 1970",
        ),
        (("offsets", "--time", "-4"), "--time '-4': expected latest, earliest, max-timestamp, "),
        (("offsets", "--partitions", "a"), "--partitions 'a': expected numbers of partitions"),
        (("offsets", "--topic", "("), "--topic '(' is no regular expression"),
        (("trim", "t"), "expected one of --before-offset, --before-time, --to-latest, --offset-json-file"),
        (("trim", "t", "--to-latest", "--before-offset", "3"), "expected one of --before-offset, "),
        (("trim", "--to-latest"), "Missing argument NAME"),
        (("trim", "t", "--before-offset", "-1"), "-1 is not in the range x>=0"),
        (("trim", "t", "--before-time", "latest"), "--before-time 'latest': expected milliseconds since 1970, or "),
        (("trim", "t", "--offset-json-file", "f"), "expected it without NAME and --partition"),
        (("trim", "t", "u", "--to-latest"), "unexpected extra argument"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(args: tuple[str, ...], says: str) -> None:
    code, out, err = holdfast("topics", *args, *NOBODY)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("holdfast topics: ")
    assert says in err


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "delete.json"
    trim = ("topics", "trim", "--offset-json-file", str(path), *NOBODY)
    assert holdfast(*trim) == (1, "", f"holdfast topics: --offset-json-file {path}: No such file or directory\n")
    path.write_bytes(b"\xff")
    assert holdfast(*trim) == (1, "", f"holdfast topics: --offset-json-file {path} is no text: expected JSON\n")
    path.write_text("{")
    code, _, err = holdfast(*trim)
    assert (code, err.startswith(f"holdfast topics: --offset-json-file {path}: ")) == (1, True)


def test_an_unreachable_cluster_is_one_line() -> None:
    for args in (("offsets",), ("trim", "t", "--to-latest", "--yes")):
        code, out, err = holdfast("topics", *args, *NOBODY)
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert err.startswith("holdfast topics: no broker can be reached: cannot connect to 127.0.0.1:1: ")
