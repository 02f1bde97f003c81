"""``holdfast reassign rebalance``: a plan that gives every broker its share again, and its beginning (R-08, R-09).

What moves is decided in controller/rebalance.py; how a plan is begun is reassign_execute.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from holdfast.cli.columns import table_lines
from holdfast.cli.completing import complete_broker_lists, complete_topic_lists
from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.kafka_errors import Declined, KafkaErrorsCommand, run
from holdfast.cli.reassign_execute import ThrottleLimits, begin, known_topics, refusals, under_way
from holdfast.cli.reassign_lines import ReassignmentPlan, parse_brokers, plan_json, refuse_unknown_brokers
from holdfast.client.admin import AdminClient
from holdfast.client.reassignments import list_reassignments
from holdfast.controller.placement import Place
from holdfast.controller.rebalance import Assignment, counts, full, minimal, moved
from holdfast.model.errors import InvalidReplicationFactorError
from holdfast.model.types import BrokerId, TopicPartition

TIMEOUT_S = 60.0


@click.command(cls=KafkaErrorsCommand)
@bootstrap_option
@click.option("--minimal", "way", flag_value="minimal", default="minimal",
              help="Copy as little as makes the brokers even.  [default]")  # fmt: skip
@click.option("--full", "way", flag_value="full", help="Place everything anew, as if it were made today.")
@click.option(
    "--broker-list",
    metavar="ID,...",
    shell_complete=complete_broker_lists,
    help="The brokers that shall have it all.  [default: all that live]",
)
@click.option("--drain", metavar="ID,...", shell_complete=complete_broker_lists,
              help="The brokers that shall have nothing any more; all others that live shall have it.")  # fmt: skip
@click.option(
    "--topics",
    "names",
    metavar="TOPIC,...",
    shell_complete=complete_topic_lists,
    help="Only these topics.  [default: all]",
)
@click.option("--plan", "path", required=True, metavar="FILE", type=click.Path(dir_okay=False, writable=True),
              help="A new file for the plan; `reassign verify` and `reassign cancel` take it.")  # fmt: skip
@click.option("--execute", "begins", is_flag=True, help="Begin it; otherwise it is only written down.")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES/S",
              help="With --execute: as of `reassign execute`.")  # fmt: skip
def rebalance(
    bootstrap: str,
    way: str,
    broker_list: str | None,
    drain: str | None,
    names: str | None,
    path: str,
    begins: bool,
    throttle: int | None,
) -> None:
    """Make the brokers even, after some were added or before some go."""
    if throttle is not None and not begins:
        raise click.UsageError("--throttle: expected --execute beside it")
    if drain is not None and broker_list is not None:
        raise click.UsageError("--drain and --broker-list: expected one of them")

    async def work(client: AdminClient) -> None:
        there = (await client.metadata(())).brokers
        with refusals():
            leaving = [] if drain is None else parse_brokers(drain)
            brokers = sorted(set(there) - set(leaving)) if broker_list is None else parse_brokers(broker_list)
            refuse_unknown_brokers(brokers if drain is None else leaving, there)
        view = await known_topics(client, names.split(",")) if names else await client.metadata()
        now = {
            TopicPartition(name, partition.partition): tuple(partition.replicas)
            for name, topic in view.topics.items()
            for partition in topic.partitions
        }
        if running := await list_reassignments(client):  # a list of replicas has those that come and go in it
            raise Declined(f"{under_way(running)}: expected none", f"Error: {under_way(running)}: expected none")
        places = [Place(id=broker, rack=there[broker].rack) for broker in brokers]
        try:
            wanted = (full if way == "full" else minimal)(now, places)
        except InvalidReplicationFactorError as e:
            raise Declined(str(e), f"Error: {e}") from e
        _show(now, wanted, brokers)
        if not wanted:
            click.echo("The brokers are even: there is no plan to write.")
            return
        _write(Path(path), plan_json(wanted))
        if begins:
            limits = ThrottleLimits(replication=throttle)
            await begin(client, ReassignmentPlan(wanted, {}), additional=False, limits=limits, timeout_s=0)

    run(bootstrap, work, timeout_s=TIMEOUT_S)


def _write(path: Path, plan: str) -> None:
    try:
        with path.open("x") as file:
            file.write(plan + "\n")
    except OSError as e:
        line = f"{path}: {e.strerror}: expected a new file"
        raise Declined(line, f"Error: {line}") from e
    click.echo(f"The plan is in {path}.")


def _show(now: Mapping[TopicPartition, Sequence[BrokerId]], wanted: Assignment, brokers: Sequence[BrokerId]) -> None:
    after = {**now, **wanted}
    (held, led), (held_then, led_then) = counts(now.values()), counts(after.values())
    rows = [
        tuple(map(str, (broker, held[broker], held_then[broker], led[broker], led_then[broker])))
        for broker in sorted({*brokers, *held})
    ]
    header = ("BROKER", "REPLICAS", "THEN", "PREFERRED LEADER OF", "THEN")
    click.echo("\n".join(table_lines(header, rows, right=range(5))))
    copied = moved(now, wanted)
    click.echo(
        f"{copied} of {sum(held.values())} replicas are copied to another broker; {len(wanted)} partitions change."
    )
