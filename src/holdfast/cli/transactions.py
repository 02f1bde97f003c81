"""``holdfast transactions``: what kafka-transactions.sh does, with its lines."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import click

from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import bootstrap_option, json_option
from holdfast.cli.failing import reason_of
from holdfast.cli.kafka_errors import Declined, DeclinedUse, KafkaErrorsGroup, in_kafkas_words, run
from holdfast.cli.kafka_words import said
from holdfast.cli.transaction_lines import (
    describe_lines,
    document,
    hanging_document,
    hanging_lines,
    list_lines,
    producer_lines,
)
from holdfast.client.admin import AdminClient
from holdfast.client.transactions import (
    ProducerView,
    abort_hanging,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from holdfast.model.errors import HoldfastError, TransactionalIdNotFoundError
from holdfast.model.types import BrokerId, TopicPartition

_T = TypeVar("_T")
_MS_PER_MINUTE = 60_000


@click.group(cls=KafkaErrorsGroup)
def transactions() -> None:
    """List, describe, find hanging, abort transactions."""


@transactions.command(name="list")
@bootstrap_option
@click.option("--duration-filter", type=int, default=-1, help="Only those open for longer, milliseconds.")
@click.option("--transactional-id-pattern", help="Only ids that match this regular expression as a whole.")
@json_option()
def list_command(bootstrap: str, duration_filter: int, transactional_id_pattern: str | None, as_json: bool) -> None:
    """List transactional ids with their coordinators."""

    async def work(client: AdminClient) -> None:
        longer_than_ms = max(-1, duration_filter)
        found = await list_transactions(client, longer_than_ms=longer_than_ms, pattern=transactional_id_pattern)
        _print([document("transactions", found)] if as_json else list_lines(found))

    _run(bootstrap, work, "Failed to list transactions")


@transactions.command()
@bootstrap_option
@click.option("--transactional-id", required=True, help="Transactional id.")
@json_option()
def describe(bootstrap: str, transactional_id: str, as_json: bool) -> None:
    """What the coordinator knows of a transactional id."""

    async def work(client: AdminClient) -> None:
        found = await describe_transaction(client, transactional_id)
        _print([document("transactions", [found])] if as_json else describe_lines(found, _now_ms()))

    _run(
        bootstrap,
        work,
        f"Failed to describe transaction state of transactional-id `{transactional_id}`",
        f"transactional id '{transactional_id}'",
    )


@transactions.command(name="describe-producers")
@bootstrap_option
@click.option("--broker-id", type=int, help="The replica of this broker, in place of the leader.")
@click.option("--topic", required=True, shell_complete=complete_topics, help="Topic.")
@click.option("--partition", required=True, type=int, help="Number of the partition.")
@json_option()
def describe_producers_command(
    bootstrap: str, broker_id: int | None, topic: str, partition: int, as_json: bool
) -> None:
    """What a partition remembers of its producers."""
    tp = TopicPartition(topic, partition)

    async def work(client: AdminClient) -> None:
        found = await describe_producers(client, tp, broker_id=broker_id)
        _print([document("producers", found)] if as_json else producer_lines(found))

    where = "leader" if broker_id is None else f"broker {broker_id}"
    _run(bootstrap, work, f"Failed to describe producers for partition {tp} on {where}", str(tp))


@transactions.command()
@bootstrap_option
@click.option("--topic", required=True, shell_complete=complete_topics, help="Topic.")
@click.option("--partition", required=True, type=int, help="Number of the partition.")
@click.option("--start-offset", type=int, help="Where the transaction begins; the rest is then looked up.")
@click.option("--producer-id", type=int, help="With --producer-epoch and --coordinator-epoch, in place of the offset.")
@click.option("--producer-epoch", type=int, help="Epoch of the producer.")
@click.option("--coordinator-epoch", type=int, help="Epoch of the coordinator.")
def abort(
    bootstrap: str,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a transaction that hangs: no coordinator will end it."""
    tp = TopicPartition(topic, partition)
    if start_offset is None and producer_id is None:
        raise DeclinedUse(
            "expected --start-offset, or --producer-id with --producer-epoch and --coordinator-epoch",
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)",
        )
    for name, value in (("--producer-epoch", producer_epoch), ("--coordinator-epoch", coordinator_epoch)):
        if start_offset is None and value is None:
            raise DeclinedUse(f"--producer-id: expected {name} with it", f"Missing required argument {name}")

    async def find(client: AdminClient) -> list[ProducerView]:
        return await describe_producers(client, tp)

    spec: Sequence[int]
    if start_offset is None:
        spec = (producer_id or 0, producer_epoch or 0, max(0, coordinator_epoch or 0))
    else:
        known = _run(bootstrap, find, f"Failed to validate producer state for partition {tp}", str(tp))
        found = [p for p in known if p.start_offset == start_offset]
        if not found:
            raise Declined(
                f"{tp} has no open transaction that starts at offset {start_offset}",
                f"Could not find any open transactions starting at offset {start_offset} on partition {tp}",
            )
        spec = (found[0].producer_id, found[0].producer_epoch, found[0].coordinator_epoch or 0)
    named = "AbortTransactionSpec(topicPartition={}, producerId={}, producerEpoch={}, coordinatorEpoch={})"
    _run(
        bootstrap,
        lambda client: abort_hanging(client, tp, spec),
        f"Failed to abort transaction {named.format(tp, *spec)}",
        f"the transaction of producer {spec[0]} on {tp} is not aborted",
    )


@transactions.command(name="find-hanging")
@bootstrap_option
@click.option("--broker-id", type=int, help="Only partitions that this broker has.")
@click.option("--topic", shell_complete=complete_topics, help="Only this topic.")
@click.option("--partition", type=int, help="Only this partition of it.")
@click.option(
    "--max-transaction-timeout", type=int, default=15, show_default=True, help="Minutes; what is younger does not hang."
)
@json_option()
def find_hanging(
    bootstrap: str,
    broker_id: int | None,
    topic: str | None,
    partition: int | None,
    max_transaction_timeout: int,
    as_json: bool,
) -> None:
    """Open transactions in partitions that no coordinator will end."""
    if topic is None and broker_id is None:
        raise DeclinedUse(
            "expected --topic or --broker-id, as the whole cluster is not searched",
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
        )
    if partition is not None and topic is None:
        raise DeclinedUse(
            "--partition: expected --topic with it", "The --partition argument requires --topic to be provided"
        )
    now_ms = _now_ms()

    async def work(client: AdminClient) -> None:
        tps = await _partitions(client, topic, partition, broker_id)
        oldest_ms = now_ms - max_transaction_timeout * _MS_PER_MINUTE
        candidates = [
            (tp, p)
            for tp in tps
            for p in await describe_producers(client, tp, broker_id=broker_id)
            if p.start_offset is not None and p.last_timestamp_ms < oldest_ms
        ]
        found = await _hanging(client, candidates)
        _print([hanging_document(found)] if as_json else hanging_lines(found, now_ms))

    _run(bootstrap, work, "Failed to find hanging transactions")


async def _partitions(
    client: AdminClient, topic: str | None, partition: int | None, broker_id: BrokerId | None
) -> list[TopicPartition]:
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = [await client.topic(topic)] if topic is not None else (await client.metadata()).topics.values()
    return [
        TopicPartition(each.name, p.partition)
        for each in topics
        for p in each.partitions
        if broker_id is None or broker_id in p.replicas
    ]


async def _hanging(
    client: AdminClient, candidates: Sequence[tuple[TopicPartition, ProducerView]]
) -> list[tuple[TopicPartition, ProducerView]]:
    """Those that are in no transaction that a coordinator knows."""
    if not candidates:
        return []
    ids = {p.producer_id for _, p in candidates}
    names = {t.producer_id: t.transactional_id for t in await list_transactions(client, producer_ids=ids)}
    awaited: dict[int, tuple[TopicPartition, ...]] = {}
    for producer_id, name in names.items():
        try:
            awaited[producer_id] = (await describe_transaction(client, name)).partitions
        except TransactionalIdNotFoundError:
            continue
    return [(tp, p) for tp, p in candidates if tp not in awaited.get(p.producer_id, ())]


def _run(bootstrap: str, work: Callable[[AdminClient], Awaitable[_T]], kafkas: str, thing: str = "") -> _T:
    """``thing``: what errors are of; ``kafkas``: what Kafka's tool says that it could not do."""
    try:
        return run(bootstrap, work)
    except HoldfastError as e:
        if not in_kafkas_words() and not thing:
            raise
        raise Declined(
            f"{thing}: {reason_of(e)}", f"{kafkas}: {said(e)}. Enable debug logging for additional detail."
        ) from e


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _now_ms() -> int:
    return int(time.time() * 1000)
