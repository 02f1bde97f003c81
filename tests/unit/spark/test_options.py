"""Options of the data source: what is taken, and that each complaint names option and value."""

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.security_options import SECURITY_KEYS
from holdfast.spark.option_names import (
    FORBIDDEN_READ,
    FORBIDDEN_WRITE,
    KAFKA_READ,
    KAFKA_WRITE,
    NO_EFFECT_READ,
    NO_EFFECT_WRITE,
    READ_OPTIONS,
)
from holdfast.spark.options import WRITE_OPTIONS, AtOffsets, AtTimestamps, Named, OptionError, parse_read, parse_write

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def read(streaming: bool = False, **given: str) -> Any:
    return parse_read(BASE | {name.replace("__", "."): value for name, value in given.items()}, streaming=streaming)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.start, batch.end, stream.start) == (Named.EARLIEST, Named.LATEST, Named.LATEST)
    assert batch.fail_on_data_loss and not batch.include_headers and batch.poll_timeout_s == 120
    assert batch.subscription.topics == ("t",) and batch.max_offsets is None and batch.min_partitions is None


def test_names_are_case_insensitive() -> None:
    options = parse_read(
        {"KAFKA.BOOTSTRAP.SERVERS": "a:1", "SUBSCRIBE": "x , y", "FailOnDataLoss": "FALSE"}, streaming=True
    )
    assert options.subscription.topics == ("x", "y")
    assert not options.fail_on_data_loss


def test_topics_by_pattern_and_by_assignment() -> None:
    servers = {"kafka.bootstrap.servers": "a:1"}
    assert parse_read(servers | {"subscribePattern": "a.*"}, streaming=False).subscription.pattern == "a.*"
    assigned = parse_read(servers | {"assign": '{"t":[1,0]}'}, streaming=False).subscription
    assert assigned.assigned == {"t": (0, 1)}
    assert str(assigned).startswith("assign=")


def test_a_timestamp_goes_before_timestamps_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert read(**given).start == AtTimestamps(
        timestamps={"t": {0: 5}}, everywhere=None, option="startingOffsetsByTimestamp"
    )
    assert read(**given, startingTimestamp="9").start == AtTimestamps(
        timestamps=None, everywhere=9, option="startingTimestamp"
    )


def test_offsets_as_json() -> None:
    assert read(startingOffsets='{"t":{"0":23,"1":-2}}').start == AtOffsets(
        offsets={"t": {0: 23, 1: -2}}, option="startingOffsets"
    )
    assert read(endingOffsets='{"t":{"0":-1}}').end == AtOffsets(offsets={"t": {0: -1}}, option="endingOffsets")
    assert read(True, startingOffsets='{"t":{"0":-1}}').start == AtOffsets(
        offsets={"t": {0: -1}}, option="startingOffsets"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingoffset; did you mean startingOffsets"),
        ({"colour": "red"}, "unknown option colour; there are subscribe"),
        ({"kafka__bootstrap__servers": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"kafka__bootstrap__servers": ""}, "kafka.bootstrap.servers is missing"),
        (
            {"kafka__auto__offset__reset": "latest"},
            "kafka.auto.offset.reset is not allowed: use the option startingOff",
        ),
        ({"kafka__key__deserializer": "x"}, "kafka.key.deserializer is not allowed"),
        ({"kafka__enable__auto__commit": "true"}, "kafka.enable.auto.commit is not allowed"),
        ({"kafka__security__protocol": "TLS"}, "kafka.security.protocol='TLS': expected PLAINTEXT or SSL"),
        ({"kafka__ssl__truststore": "x"}, "kafka.ssl.truststore is not supported; did you mean kafka.ssl.truststore."),
        ({"assign": '{"t":[0]}'}, "assign and subscribe are given"),
        ({"subscribe": " , "}, "option subscribe is empty"),
        ({"subscribe": "a b"}, "option subscribe='a b'"),
        ({"startingOffsets": "latest"}, "startingOffsets='latest': a batch read cannot start at the end"),
        ({"endingOffsets": "earliest"}, "endingOffsets='earliest': a batch read cannot end at the start"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets: -1 for t-0"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets: -2 for t-0"),
        ({"startingOffsets": "soon"}, "startingOffsets='soon' is neither a word"),
        ({"startingOffsets": "[1]"}, "startingOffsets='[1]': expected JSON"),
        ({"startingOffsets": '{"t":3}'}, "expected JSON like"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "t-0 has -3"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "t-0 has True"),
        ({"startingOffsets": "group:"}, "startingOffsets='group:': expected a group's name after group:"),
        ({"endingOffsets": "group:g"}, "endingOffsets='group:g' is neither a word"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': expected true or false"),
        ({"minPartitions": "0"}, "minPartitions='0': expected a whole number of 1 or more"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many'"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger=5 is more than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': expected a time like 15m"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "'guess': expected error or latest"),
        ({"pushDownFilters": "once"}, "pushDownFilters='once': expected true or false"),
        ({"kafka__isolation__level": "snapshot"}, "expected read_uncommitted or read_committed"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as raised:
        read(**given)
    assert words in str(raised.value)


def test_one_way_to_name_topics_is_needed() -> None:
    with pytest.raises(OptionError, match="none is given"):
        parse_read({"kafka.bootstrap.servers": "a:1"}, streaming=False)
    for given, words in (
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": '{"t":"0"}'}, "expected JSON like"),
        ({"assign": "{"}, "nor JSON"),
    ):
        with pytest.raises(OptionError, match=words):
            parse_read({"kafka.bootstrap.servers": "a:1", **given}, streaming=False)


def test_a_stream_has_no_end() -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        with pytest.raises(OptionError, match=f"option {name} is not allowed in a stream"):
            read(True, **{name: "latest"})
    with pytest.raises(OptionError, match="pushDownFilters=true is not allowed in a stream"):
        read(True, pushDownFilters="true")


def test_durations() -> None:
    for text, seconds in (("15m", 900), ("500ms", 0.5), ("2 h", 7200), ("250", 0.25)):
        assert read(True, maxTriggerDelay=text).max_trigger_delay_s == seconds


def test_settings_that_change_nothing_of_what_is_read_are_taken_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    read(kafka__max__poll__records="50000", maxOffsetsPerTrigger="5", onTopicRecreated="fail", checkpointLocation="/c")
    assert [record.getMessage() for record in caplog.records] == [
        "option kafka.max.poll.records has no effect here: records come by the batch",
        "option maxOffsetsPerTrigger has no effect in a batch read",
        "option onTopicRecreated has no effect in a batch read",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka.group.id", "kafka.group.id is not allowed: no group is joined"),
        ("kafka.colour", "kafka.colour is not supported; there are kafka.bootstrap"),
        ("kafka.fetch.max.byte", "is not supported; did you mean kafka.fetch.max.bytes"),
    ],
)
def test_spark_D28_what_has_no_effect_and_is_not_in_the_table_is_refused(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_read(BASE | {name: "x"}, streaming=False)
    parse_read(BASE | {"kafka.security.protocol": "PLAINTEXT"}, streaming=False)


def test_spark_D28_the_table_of_settings_without_effect_is_that_of_the_docs() -> None:
    """docs/spark.md has each of them with its reason."""
    page = (Path(__file__).parents[3] / "docs/spark.md").read_text()
    table = dict(re.findall(r"^\| `kafka\.([a-z0-9.]+)` \| (read|write|both) \|", page, re.MULTILINE))
    both = NO_EFFECT_READ.keys() & NO_EFFECT_WRITE.keys()
    where = dict.fromkeys(NO_EFFECT_READ, "read") | dict.fromkeys(NO_EFFECT_WRITE, "write")
    assert table == where | dict.fromkeys(both, "both")
    assert not (NO_EFFECT_READ.keys() & {*KAFKA_READ, *FORBIDDEN_READ})
    assert not (NO_EFFECT_WRITE.keys() & {*KAFKA_WRITE, *FORBIDDEN_WRITE})


def options_in(text: str) -> set[str]:
    """Those of the first column of each table of options."""
    tables = re.findall(r"^\| option \| default \| meaning \|\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [line.split("|")[1] for table in tables for line in table.splitlines()]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_tables_of_options_in_the_docs_are_those_that_are_taken() -> None:
    """What is behind ``value.`` and ``key.`` stands there once, as ``value.``."""
    page = (Path(__file__).parents[3] / "docs/spark.md").read_text()
    reading, _, rest = page.partition("\n## Writing\n")
    taken = {*READ_OPTIONS, *(f"kafka.{name}" for name in KAFKA_READ)}
    assert options_in(reading) == {name for name in taken if not name.startswith("key.") or name == "key.format"}
    writing, _, security = rest.partition("\n## Security\n")
    assert options_in(writing) == {*WRITE_OPTIONS, *(f"kafka.{name}" for name in KAFKA_WRITE)}
    assert options_in(security) == {f"kafka.{name}" for name in SECURITY_KEYS}


def test_spark_D10_order_is_kept_in_streams_and_not_in_batches_unless_said() -> None:
    assert (read().ordered, read(True).ordered) == (False, True)
    assert (read(ordering="partition").ordered, read(True, ordering="none").ordered) == (True, False)
    with pytest.raises(OptionError, match="ordering='key': expected partition or none"):
        read(ordering="key")


def test_write_options() -> None:
    servers = {"kafka.bootstrap.servers": "a:1"}
    options = parse_write(servers | {"topic": "t", "kafka.compression.type": "zstd"})
    assert (options.topic, options.acks, options.idempotent, options.compression) == ("t", -1, True, "zstd")
    assert parse_write(servers | {"kafka.acks": "1"}).idempotent is False
    for given, words in (
        ({"kafka.acks": "2"}, "kafka.acks='2': expected all or -1 or 0 or 1"),
        ({"topic": "no/slash"}, "option topic='no/slash'"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer is not allowed"),
        ({"subscribe": "t"}, "unknown option subscribe"),
    ):
        with pytest.raises(OptionError, match=words):
            parse_write(servers | given)


@pytest.mark.parametrize("name", ["kafka.linger.ms", "kafka.request.timeout.ms"])
def test_an_option_of_kafka_that_nothing_goes_by_is_warned_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", name: "5000"}
    parse_write(given)
    assert f"option {name} has no effect here" in caplog.text
