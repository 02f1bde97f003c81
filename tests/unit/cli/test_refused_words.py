"""What commands say when a broker refuses one of their requests and gives no word beside the code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from tests.unit.client.fakes import FakeBroker
from tests.unit.client.refusing import handlers

TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED = 29, 30, 31


@contextmanager
def broker_refusing(key: int, code: int) -> Iterator[str]:
    """The address of one, on a loop of its own: commands have theirs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begun() -> FakeBroker:
        broker = FakeBroker({})
        broker.handlers |= handlers(key, code, lambda: broker.port)
        return await broker.__aenter__()

    try:
        broker = asyncio.run_coroutine_threadsafe(begun(), loop).result(10)
        yield f"127.0.0.1:{broker.port}"
        asyncio.run_coroutine_threadsafe(broker.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("command", "key", "code", "said"),
    [
        (
            "produce orders", 22, CLUSTER_REFUSED,
            "no producer id: Cluster authorization failed. Expected IdempotentWrite on the cluster, or Write on any "
            "topic.",
        ),
        (
            "perf produce --topic orders --records 1 --idempotence", 22, CLUSTER_REFUSED,
            "no producer id: Cluster authorization failed. Expected IdempotentWrite on the cluster, or Write on any "
            "topic.",
        ),
        (
            "perf produce --topic orders --records 1", 0, TOPIC_REFUSED,
            "produce to orders-0: Topic authorization failed.",
        ),
        (
            "consume orders --group g1 --exit-eof", 11, GROUP_REFUSED,
            "joining group 'g1': Group authorization failed.",
        ),
        ("elect preferred --all-topic-partitions", 43, CLUSTER_REFUSED, "election: Cluster authorization failed."),
        (
            "log-dirs move orders-0 --broker 1 --to /d", 35, CLUSTER_REFUSED,
            "log directories of broker 1: Cluster authorization failed.",
        ),
        ("groups delete g1", 42, GROUP_REFUSED, "group 'g1': Group authorization failed."),
        ("topics offsets orders", 2, TOPIC_REFUSED, "offsets of orders-0 cannot be told: Topic authorization failed."),
        (
            "topics delete orders --yes", 20, TOPIC_REFUSED,
            "topic 'orders' was not deleted: Topic authorization failed.",
        ),
        ("configs describe --topic orders", 32, TOPIC_REFUSED, "topic orders: Topic authorization failed."),
        (
            "transactions abort --topic orders --partition 0 --producer-id 1 --producer-epoch 0 --coordinator-epoch 0",
            27, CLUSTER_REFUSED, "Cluster authorization failed.",
        ),
    ],
)  # fmt: skip
def test_a_refusal_says_what_was_asked_and_why_not(command: str, key: int, code: int, said: str) -> None:
    with broker_refusing(key, code) as address:
        name, *rest = command.split()
        done = CliRunner().invoke(main, [name, *rest, "-b", address], prog_name="holdfast", input="x\n")
    assert done.exit_code == 1, done.output
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(f"holdfast {name}: "))
    assert line.endswith(said)
    assert done.stderr.count("authorization failed") == 1


def test_in_kafkas_words_it_is_what_kafka_says_of_the_code() -> None:
    with broker_refusing(43, CLUSTER_REFUSED) as address:
        args = ["elect", "preferred", "--all-topic-partitions", "--kafka-errors", "-b", address]
        done = CliRunner().invoke(main, args, prog_name="holdfast")
    assert done.exit_code == 1
    expected = "ERROR org.apache.kafka.common.errors.ClusterAuthorizationException: Cluster authorization failed.\n"
    assert done.stderr == expected
