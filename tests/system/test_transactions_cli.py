"""``holdfast transactions`` against real brokers: what is open, what hangs, and its end by hand."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, create

pytestmark = pytest.mark.system
GOLDEN = pathlib.Path(__file__).parents[1] / "golden/cli/4.3.0/kafka-transactions.json"


def run(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    command = [sys.executable, "-m", "holdfast.cli.main", "transactions", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def cells(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The rows below the header."""
    assert done.returncode == 0, done.stderr
    return [[cell.strip() for cell in line.split("\t")][:-1] for line in done.stdout.splitlines()[1:]]


def test_an_open_transaction_is_listed_described_and_ended_by_hand(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1]])
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-tx", **QUIET}
    )
    producer.init_transactions(TIMEOUT_S)
    before = cells(run(cluster, "describe", "--transactional-id", f"{topic}-tx"))
    assert [(row[4], row[6], row[8]) for row in before] == [("Empty", "None", "")]  # none is open
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    listed = [row for row in cells(run(cluster, "list")) if row[0] == f"{topic}-tx"]
    assert [row[3] for row in listed] == ["Ongoing"]
    assert cells(run(cluster, "list", "--transactional-id-pattern", f"{topic}-t.")) == listed
    assert cells(run(cluster, "list", "--transactional-id-pattern", topic)) == []
    refused = run(cluster, "list", "--transactional-id-pattern", "(")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1), refused.stderr
    assert refused.stderr.startswith("holdfast transactions: ")
    kafkas = run(cluster, "list", "--transactional-id-pattern", "(", "--kafka-errors")
    assert (kafkas.returncode, "Failed to list transactions" in kafkas.stderr) == (1, True), kafkas.stderr
    [described] = cells(run(cluster, "describe", "--transactional-id", f"{topic}-tx"))
    assert described[:5] == [listed[0][1], f"{topic}-tx", listed[0][2], "0", "Ongoing"]
    assert described[8] == f"{topic}-0"
    where = ("--topic", topic, "--partition", "0")
    [found] = cells(run(cluster, "describe-producers", *where))
    assert (found[0], found[5]) == (listed[0][2], "0")
    # It is known to its coordinator, so it does not hang.
    assert cells(run(cluster, "find-hanging", *where, "--max-transaction-timeout", "0")) == []
    assert run(cluster, "abort", *where, "--start-offset", "0").returncode == 0
    [ended] = cells(run(cluster, "describe-producers", *where))
    assert ended[5] == "None"
    again = run(cluster, "abort", *where, "--start-offset", "0")
    assert again.returncode == 1
    assert again.stderr == f"holdfast transactions: {topic}-0 has no open transaction that starts at offset 0\n"
    again = run(cluster, "abort", *where, "--start-offset", "0", "--kafka-errors")
    assert again.stderr == f"Could not find any open transactions starting at offset 0 on partition {topic}-0\n"


def test_a_transaction_that_no_coordinator_knows_hangs_until_it_is_aborted(cluster: Cluster, topic: str) -> None:
    """As after the loss of what a coordinator wrote: the partition was never added where it is asked for now."""
    create(cluster, topic, [[1, 2]])
    name = f"{topic}-tx"
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, **QUIET})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.delete_topics(["__transaction_state"])["__transaction_state"].result(TIMEOUT_S)
    where = ("--topic", topic, "--partition", "0")

    def hanging() -> Any:
        return cells(run(cluster, "find-hanging", *where, "--max-transaction-timeout", "0"))

    wait_for(hanging, "the transaction to hang", timeout_s=TIMEOUT_S)
    for broker in ("1", "2"):  # each replica tells of its own log, the follower's too
        on_broker = ("--broker-id", broker, "--max-transaction-timeout", "0")
        wait_for(
            lambda args=on_broker: [row[0] for row in cells(run(cluster, "find-hanging", *args))] == [topic],
            f"broker {broker} to tell of it",
            timeout_s=TIMEOUT_S,
        )
    [row] = hanging()
    assert (row[0], row[1], row[5]) == (topic, "0", "0")
    spec = ("--producer-id", row[2], "--producer-epoch", row[3], "--coordinator-epoch", row[4])
    assert run(cluster, "abort", *where, *spec).returncode == 0
    assert hanging() == []


def test_refusals_are_kafkas(cluster: Cluster) -> None:
    [recorded] = [r for r in json.loads(GOLDEN.read_text()) if r["exit"]]
    done = run(cluster, "--kafka-errors", *recorded["command"][3:])
    assert (done.returncode, done.stdout, done.stderr) == (1, "", recorded["stderr"])
    for args, says in (
        (("find-hanging",), "requires either --topic or --broker-id"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "requires --topic to be provided"),
        (("abort", "--topic", "t", "--partition", "0"), "must be identified either with --start-offset"),
        (("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"), "argument --producer-epoch"),
    ):
        done = run(cluster, *args, "--kafka-errors")
        assert (done.returncode, says in done.stderr) == (1, True), done.stderr
        done = run(cluster, *args)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith("holdfast transactions: ") and "expected " in done.stderr
