"""``holdfast elect``: what kafka-leader-election.sh does, with its lines.

An unclean election gives up records, so it says first what may be lost, and asks. The election is the controller's.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import UsageError, bootstrap_option, confirmed
from holdfast.cli.failing import reason_of
from holdfast.cli.kafka_errors import Declined, DeclinedUse, KafkaErrorsCommand, in_kafkas_words, run
from holdfast.cli.kafka_words import qualified, said
from holdfast.client.admin import AdminClient
from holdfast.client.elections import elect_leaders
from holdfast.client.views import ClusterMetadata, PartitionMetadata
from holdfast.model.errors import ElectionNotNeededError, HoldfastError
from holdfast.model.types import TopicPartition


@click.command(cls=KafkaErrorsCommand)
@bootstrap_option
@click.argument("kind", type=click.Choice(["preferred", "unclean"], case_sensitive=False))
@click.option("--topic", shell_complete=complete_topics, help="Partitions of this topic.")
@click.option("--partition", "numbers", type=click.IntRange(0), multiple=True, help="Only these; repeatable.")
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All that have something to elect.")
@click.option("--path-to-json-file", "path", metavar="FILE", help='{"partitions": [{"topic": "t", "partition": 0}]}')
@click.option("--yes", "-y", is_flag=True, help="Do not ask before records may be lost.")
def elect(
    bootstrap: str,
    kind: str,
    topic: str | None,
    numbers: tuple[int, ...],
    everything: bool,
    path: str | None,
    yes: bool,
) -> None:
    """Elect leaders by hand.

    preferred: the first replica of each partition leads again, if it is in sync. unclean: partitions without a leader
    get one of the replicas that are alive, the one with the longest log where that is known; records that only others
    have are lost.
    """
    if [topic is not None, everything, path is not None].count(True) != 1:
        raise UsageError(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
            if in_kafkas_words()
            else "expected one of --topic, --all-topic-partitions, --path-to-json-file"
        )
    if numbers and topic is None:
        raise UsageError("--partition: expected with --topic")
    unclean = kind == "unclean"
    named = None if path is None else parse_partitions(path)

    async def work(client: AdminClient) -> Mapping[TopicPartition, HoldfastError | None]:
        view = await client.metadata()
        wanted = None if everything else named or chosen(view, topic or "", numbers)
        if unclean:
            warn(view, wanted, yes=yes)
        return await elect_leaders(client, wanted, unclean=unclean)

    outcomes = run(bootstrap, work)
    lines, failed = outcome_lines(kind.upper(), outcomes)
    if in_kafkas_words():
        lines += failure_lines(kind.upper(), failed)
    for line in lines:
        click.echo(line)
    if failed:
        each = [Declined(f"no leader was elected for {tp}: {reason_of(e)}") for tp, e in failed.items()]
        raise Declined.several(each, f"{len(failed)} replica(s) could not be elected")


def chosen(view: ClusterMetadata, topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """All partitions of the topic, or those; one that is not there is the controller's to refuse."""
    there = view.topics.get(topic)
    every = [p.partition for p in there.partitions] if there is not None else [0]
    return [TopicPartition(topic, number) for number in dict.fromkeys(numbers) or every]


def parse_partitions(path: str) -> list[TopicPartition]:
    """Of Kafka's JSON file. Declined."""
    try:
        found: Any = json.loads(Path(path).read_text())
        return [TopicPartition(str(p["topic"]), int(p["partition"])) for p in found["partitions"]]
    except OSError as e:
        raise Declined(f"{path}: {e.strerror}", f"Error: {path}: {e.strerror}") from e
    except (ValueError, TypeError, KeyError) as e:
        line = f'{path}: {e}: expected {{"partitions": [{{"topic": "t", "partition": 0}}]}}'
        raise DeclinedUse(line, f"Error: {line}") from e


def warn(view: ClusterMetadata, wanted: Iterable[TopicPartition] | None, *, yes: bool) -> None:
    """What an unclean election may lose, and whether it shall be."""
    asked = None if wanted is None else set(wanted)
    lines = [
        loss_line(tp, partition)
        for topic in sorted(view.topics.values(), key=lambda t: t.name)
        for partition in topic.partitions
        if (tp := TopicPartition(topic.name, partition.partition)) and partition.leader is None
        if asked is None or tp in asked
    ]
    for line in lines:
        click.echo(line, err=True)
    if lines:
        confirmed("give up what the new leaders do not have in", [f"{len(lines)} partitions"], yes=yes)


def loss_line(tp: TopicPartition, partition: PartitionMetadata) -> str:
    """``t-0 has no leader: ...``: who has everything, who could lead, what is lost by that. Pure."""
    alive = [r for r in partition.replicas if r not in partition.offline]
    if not alive:
        return f"{tp} has no leader, and none of its replicas is alive ({_ids(partition.replicas)}): nobody to elect"
    whole = [r for r in partition.isr if r in partition.offline]
    if whole:
        lost = f"broker {_ids(whole)} had everything and is away: what only {_ids(whole)} has is lost"
    else:
        lost = "no replica is known to have everything: what none of the live ones has is lost"
    return f"{tp} has no leader; {lost}. Alive: {_ids(alive)}"


def outcome_lines(
    kind: str, outcomes: Mapping[TopicPartition, HoldfastError | None]
) -> tuple[list[str], dict[TopicPartition, HoldfastError]]:
    """Kafka's lines of what is as it shall be, and the elections that failed, in order. Pure."""
    elected = [tp for tp, error in outcomes.items() if error is None]
    noop = [tp for tp, error in outcomes.items() if isinstance(error, ElectionNotNeededError)]
    failed = {tp: e for tp, e in sorted(outcomes.items()) if e is not None and tp not in noop}
    lines = []
    if elected:
        lines.append(f"Successfully completed leader election ({kind}) for partitions {_names(elected)}")
    if noop:
        lines.append(f"Valid replica already elected for partitions {_names(noop)}")
    return lines, failed


def failure_lines(kind: str, failed: Mapping[TopicPartition, HoldfastError]) -> list[str]:
    """Kafka's lines of elections that failed. Pure."""
    return [
        f"Error completing leader election ({kind}) for partition: {tp}: {qualified(error, said(error))}"
        for tp, error in failed.items()
    ]


def _names(tps: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps)))


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
