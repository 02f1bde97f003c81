"""Transactions in the lines of Kafka's tool."""

import json
import pathlib

from holdfast.cli.transaction_lines import describe_lines, hanging_lines, list_lines, producer_lines
from holdfast.client.transactions import ProducerView, TransactionListing, TransactionView
from holdfast.model.types import TopicPartition

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0/kafka-transactions.json"


def recorded(command: str) -> str:
    found = [r for r in json.loads(GOLDEN.read_text()) if r["command"][3] == command]
    assert len(found) == 1
    return str(found[0]["stdout"])


def text(lines: object) -> str:
    return "".join(f"{line}\n" for line in lines)  # type: ignore[attr-defined]


def test_headers_are_kafkas() -> None:
    assert text(list_lines([])) == recorded("list")
    assert text(producer_lines([])) == recorded("describe-producers")


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    found = [
        TransactionListing(transactional_id="a-rather-long-id", coordinator=1, producer_id=7, state="Ongoing"),
        TransactionListing(transactional_id="b", coordinator=2, producer_id=1000, state="CompleteCommit"),
    ]
    assert list(list_lines(found)) == [
        "TransactionalId \tCoordinator\tProducerId\tTransactionState\t",
        "a-rather-long-id\t1          \t7         \tOngoing         \t",
        "b               \t2          \t1000      \tCompleteCommit  \t",
    ]


def test_a_transaction_with_and_without_a_start() -> None:
    t = TransactionView(
        transactional_id="tx", coordinator=3, producer_id=7, producer_epoch=2, state="Ongoing", timeout_ms=60000,
        start_ms=1000, partitions=(TopicPartition("t", 0), TopicPartition("t", 1)),
    )  # fmt: skip
    header, row = describe_lines(t, 2500)
    assert row.split("\t")[:9] == [
        cell.ljust(len(name))
        for cell, name in zip(["3", "tx", "7", "2", "Ongoing", "60000", "1000", "1500", "t-0,t-1"], header.split("\t"),
                              strict=False)
    ]  # fmt: skip
    idle = TransactionView(
        transactional_id="tx", coordinator=3, producer_id=7, producer_epoch=2, state="Empty", timeout_ms=60000,
        start_ms=None, partitions=(),
    )  # fmt: skip
    assert [cell.strip() for cell in list(describe_lines(idle, 2500))[1].split("\t")[6:9]] == ["None", "None", ""]


def test_producers_and_what_hangs() -> None:
    p = ProducerView(
        producer_id=7, producer_epoch=0, last_sequence=4, last_timestamp_ms=60_000, coordinator_epoch=None,
        start_offset=None,
    )  # fmt: skip
    assert [cell.strip() for cell in list(producer_lines([p]))[1].split("\t")] == [
        "7",
        "0",
        "-1",
        "4",
        "60000",
        "None",
        "",
    ]
    row = list(hanging_lines([(TopicPartition("t", 1), p)], 200_000))[1]
    assert [cell.strip() for cell in row.split("\t")] == ["t", "1", "7", "0", "-1", "-1", "60000", "2", ""]
