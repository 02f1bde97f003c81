"""``holdfast log-dirs describe``: every log directory, its state and its room.

``--kafka-json`` is kafka-log-dirs.sh with its lines, and asks any Kafka broker; the rest asks Holdfast brokers what
Kafka has no words for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from holdfast.cli.columns import terminal_width
from holdfast.cli.completing import complete_broker_lists, complete_topic_lists
from holdfast.cli.connecting import UsageError, bootstrap_option
from holdfast.cli.failing import Failed, text_of
from holdfast.cli.kafka_errors import KafkaErrorsCommand, run
from holdfast.cli.log_dir_lines import chosen_brokers, replica_lines
from holdfast.cli.log_dir_lines import kafka_json as kafka_lines
from holdfast.cli.log_dir_table import (
    GOOD,
    STATES,
    chosen_disks,
    count_line,
    disk_lines,
    disks_document,
    of_topics,
    reason_lines,
)
from holdfast.client.admin import AdminClient
from holdfast.client.disks import describe_disks
from holdfast.client.views import DisksView
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId


def parse_states(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """``offline,degraded``."""
    if value is None:
        return None
    states = tuple(part.strip().lower() for part in value.split(","))
    wrong = [state for state in states if state not in STATES]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r}: expected some of {', '.join(STATES)}", ctx, param)
    return states


@click.command(cls=KafkaErrorsCommand)
@bootstrap_option
@click.option("--broker-list", metavar="ID,...", shell_complete=complete_broker_lists, help="Only these brokers.")
@click.option(
    "--topic-list", metavar="TOPIC,...", shell_complete=complete_topic_lists, help="Only replicas of these topics."
)
@click.option("--state", "states", metavar="STATE,...", callback=parse_states, help="Only directories of these states.")
@click.option("--problems", is_flag=True, help="Only directories that are not simply online.")
@click.option("--replicas", is_flag=True, help="Every replica, one a line: broker, directory, replica, bytes.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON document.")
@click.option("--kafka-json", is_flag=True, help="kafka-log-dirs.sh's lines and JSON, which have no states.")
def describe(
    bootstrap: str,
    broker_list: str | None,
    topic_list: str | None,
    states: tuple[str, ...] | None,
    problems: bool,
    replicas: bool,
    as_json: bool,
    kafka_json: bool,
) -> None:
    """Show log directories: state and reason, since when, room, replicas, moves.

    \b
    holdfast log-dirs describe --problems
    holdfast log-dirs describe --state offline,degraded --json
    """
    if [as_json, replicas, kafka_json].count(True) > 1:
        raise UsageError("--json, --kafka-json and --replicas: expected one of them, as all have every replica")
    if problems and states is not None:
        raise UsageError("--problems and --state: expected one of them")
    if kafka_json and (problems or states is not None):
        raise UsageError("--kafka-json has no states: expected it without --state and --problems")
    topics = None if topic_list is None else [t.strip() for t in topic_list.split(",") if t.strip()]
    wanted = tuple(state for state in STATES if state != GOOD) if problems else states
    run(bootstrap, lambda client: Description(client, broker_list, topics, wanted).tell(as_json, replicas, kafka_json))


class Description:
    """What was asked for: brokers, topics, states; None: all of them."""

    def __init__(
        self,
        client: AdminClient,
        broker_list: str | None,
        topics: Sequence[str] | None,
        states: Sequence[str] | None,
    ) -> None:
        self._client, self._broker_list, self._topics, self._states = client, broker_list, topics, states

    async def tell(self, as_json: bool, replicas: bool, kafka_json: bool) -> None:
        """In one of the three forms, or as a table. Failed where a broker could not be asked."""
        view = await self._client.metadata(self._topics)
        brokers = chosen_brokers(self._broker_list, view.brokers)
        if kafka_json:
            await self._tell_as_kafka(brokers)
            return
        missing = [t for t in self._topics or () if t not in view.topics or view.topics[t].error is not None]
        if missing:
            raise Failed(*(f"--topic-list: there is no topic '{topic}'" for topic in missing))
        views, silent = await self._ask(brokers)
        shown = chosen_disks(views, self._states)
        if as_json:
            click.echo(disks_document(shown, silent))
        elif replicas:
            for line in replica_lines(shown, self._topics):
                click.echo(line)
        else:
            for line in (*disk_lines(shown, terminal_width()), *reason_lines(shown), count_line(views)):
                click.echo(line)
        if silent:
            raise Failed(*(f"broker {broker}: {why}" for broker, why in silent.items()))

    async def _ask(self, brokers: Sequence[BrokerId]) -> tuple[dict[BrokerId, DisksView], dict[BrokerId, str]]:
        """What each told, and why others did not."""
        views, silent = {}, {}
        for broker in brokers:
            try:
                view = await describe_disks(self._client, broker)
            except HoldfastError as e:
                if len(brokers) == 1:
                    raise
                silent[broker] = text_of(e)
            else:
                views[broker] = view if self._topics is None else of_topics(view, self._topics)
        return views, silent

    async def _tell_as_kafka(self, brokers: Sequence[BrokerId]) -> None:
        click.echo("Querying brokers for log directories information")
        found = await self._client.describe_log_dirs(brokers)
        click.echo(f"Received log directory information from brokers {','.join(map(str, brokers))}")
        if self._topics is not None:
            found = {
                broker: tuple(
                    replace(d, replicas=tuple(r for r in d.replicas if r.tp.topic in self._topics)) for d in dirs
                )
                for broker, dirs in found.items()
            }
        click.echo(kafka_lines(found))
