"""``holdfast reassign``: replicas move between brokers, and to the log directories that the plan names.

kafka-reassign-partitions.sh with an action as a subcommand: its plans and its lines; it asks any Kafka cluster. What it
means is reassign_lines.py's; what is done about it the controller's.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.completing import complete_broker_lists
from holdfast.cli.connecting import bootstrap_option, json_option
from holdfast.cli.kafka_errors import Declined, DeclinedUse, KafkaErrorsGroup, run
from holdfast.cli.reassign_execute import (
    ThrottleLimits,
    begin,
    begin_moves,
    known_topics,
    places_now,
    refusals,
    refuse_failed,
)
from holdfast.cli.reassign_lines import (
    PlanError,
    ReassignmentPlan,
    list_document,
    list_lines,
    move_lines,
    parse_brokers,
    parse_plan,
    parse_topics,
    places,
    plan_json,
    reassignment_lines,
    refuse_unknown_brokers,
)
from holdfast.cli.rebalance import rebalance
from holdfast.client.admin import AdminClient
from holdfast.client.reassignments import (
    alter_reassignments,
    clear_broker_throttles,
    clear_topic_throttles,
    list_reassignments,
)
from holdfast.controller.placement import Place, place
from holdfast.model.types import BrokerId, TopicPartition


@click.group(cls=KafkaErrorsGroup)
def reassign() -> None:
    """Move replicas between brokers, as kafka-reassign-partitions.sh does."""


reassign.add_command(rebalance)


def plan_option(command: Any) -> Any:
    """``--reassignment-json-file``."""
    return click.option(
        "--reassignment-json-file", "plan", required=True, metavar="FILE", callback=_read_plan,
        help="The plan: which replicas each partition shall have.",
    )(command)  # fmt: skip


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as e:
        raise Declined(f"{path}: {e.strerror}", f"Error: Unable to read file {path}") from e
    except UnicodeDecodeError as e:
        raise DeclinedUse(f"{path} is no text: {e}", f"Error: {path} is no text: {e}") from e


def _read_plan(_: Any, __: Any, path: str) -> ReassignmentPlan:
    try:
        return parse_plan(_read(path))
    except PlanError as e:
        raise DeclinedUse(f"{path}: {e}", f"Error: {path}: {e}") from e


# -- generate --------------------------------------------------------------------------------------------------


@reassign.command()
@bootstrap_option
@click.option("--topics-to-move-json-file", "topics", required=True, metavar="FILE", help="Which topics.")
@click.option(
    "--broker-list",
    required=True,
    metavar="ID,...",
    shell_complete=complete_broker_lists,
    help="The brokers that shall have them.",
)
def generate(bootstrap: str, topics: str, broker_list: str) -> None:
    """Print where topics are now, and a plan for other brokers."""
    with refusals(f"{topics}: "):
        names = parse_topics(_read(topics))
    with refusals("--broker-list: "):
        brokers = parse_brokers(broker_list)

    async def work(client: AdminClient) -> None:
        view = await known_topics(client, names)
        everyone = (await client.metadata(())).brokers
        with refusals():
            refuse_unknown_brokers(brokers, everyone)
        there = [Place(id=broker, rack=everyone[broker].rack) for broker in brokers]
        now = {TopicPartition(name, p.partition): p.replicas for name in names for p in view.topics[name].partitions}
        wanted: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        for at, name in enumerate(names):
            partitions = view.topics[name].partitions
            lists = place(there, len(partitions), len(partitions[0].replicas), start=at, shift=at)
            wanted |= {TopicPartition(name, number): replicas for number, replicas in enumerate(lists)}
        click.echo(f"Current partition replica assignment\n{plan_json(now, await places_now(client, now))}\n")
        click.echo(f"Proposed partition reassignment configuration\n{plan_json(wanted)}")

    run(bootstrap, work)


# -- execute ---------------------------------------------------------------------------------------------------


@reassign.command()
@bootstrap_option
@plan_option
@click.option("--additional", is_flag=True, help="Although others are under way.")
@click.option(
    "--throttle", type=click.IntRange(1), metavar="BYTES/S",
    help="Limit of what brokers send to new replicas, each, until verify finds all over. Again with --additional: "
    "another limit.",
)  # fmt: skip
@click.option(
    "--replica-alter-log-dirs-throttle", "moves_throttle", type=click.IntRange(1), metavar="BYTES/S",
    help="Limit of moves between log directories, until verify finds all over.",
)  # fmt: skip
@click.option("--timeout", type=click.IntRange(0), default=10_000, show_default=True, metavar="MS",
              help="How long to wait for replicas that are to be in a given directory.")  # fmt: skip
def execute(
    bootstrap: str,
    plan: ReassignmentPlan,
    additional: bool,
    throttle: int | None,
    moves_throttle: int | None,
    timeout: int,
) -> None:
    """Begin what a plan says."""

    limits = ThrottleLimits(replication=throttle, moves=moves_throttle)
    run(
        bootstrap,
        lambda client: begin(client, plan, additional=additional, limits=limits, timeout_s=timeout / 1000),
        timeout_s=30.0 + timeout / 1000,
    )


# -- verify, cancel, list --------------------------------------------------------------------------------------


@reassign.command()
@bootstrap_option
@plan_option
@click.option("--preserve-throttles", is_flag=True, help="Leave the throttles as they are.")
def verify(bootstrap: str, plan: ReassignmentPlan, preserve_throttles: bool) -> None:
    """Say how far a plan is; when all of it is over, remove the throttles."""

    async def work(client: AdminClient) -> None:
        running = await list_reassignments(client)
        view = await client.metadata(sorted({tp.topic for tp in plan.replicas}))
        lines, over = reassignment_lines(plan, running, view)
        click.echo("\n".join(lines))
        brokers = sorted((await client.metadata(())).brokers)
        moves_over = True
        if plan.moves:
            hosts = sorted({replica.broker for replica in plan.moves}.intersection(brokers))
            dirs = await client.describe_log_dirs(hosts, list(plan.replicas))
            lines, moves_over = move_lines(plan.moves, places(dirs), places(dirs, future=True))
        click.echo("\n".join(lines if plan.moves else []))
        if over and moves_over and not preserve_throttles:
            await _clear_throttles(client, brokers, plan)

    run(bootstrap, work)


async def _clear_throttles(client: AdminClient, brokers: Sequence[BrokerId], plan: ReassignmentPlan) -> None:
    click.echo(f"Clearing broker-level throttles on broker{'s' * (len(brokers) > 1)} {_named(brokers)}")
    await clear_broker_throttles(client, brokers)
    view = await client.metadata(sorted({tp.topic for tp in plan.replicas}))
    topics = sorted(name for name, topic in view.topics.items() if topic.error is None)
    if topics:
        click.echo(f"Clearing topic-level throttles on topic{'s' * (len(topics) > 1)} {','.join(topics)}")
        await clear_topic_throttles(client, topics)


@reassign.command()
@bootstrap_option
@plan_option
@click.option("--preserve-throttles", is_flag=True, help="Leave the throttles as they are.")
def cancel(bootstrap: str, plan: ReassignmentPlan, preserve_throttles: bool) -> None:
    """Take back what a plan has begun: partitions get the replicas that they had."""

    async def work(client: AdminClient) -> None:
        running = await list_reassignments(client, plan.replicas)
        outcomes = await alter_reassignments(client, dict.fromkeys(running)) if running else {}
        refuse_failed(outcomes, "Error cancelling partition reassignment(s):")
        if running:
            names = ",".join(sorted(map(str, running)))
            click.echo(f"Successfully cancelled partition reassignment{'s' * (len(running) > 1)} for: {names}")
        else:
            click.echo("None of the specified partition reassignments are active.")
        await _cancel_moves(client, plan)
        if not preserve_throttles:
            await _clear_throttles(client, sorted((await client.metadata(())).brokers), plan)

    run(bootstrap, work)


async def _cancel_moves(client: AdminClient, plan: ReassignmentPlan) -> None:
    live = (await client.metadata(())).brokers
    hosts = sorted({replica.broker for replica in plan.moves}.intersection(live))
    dirs = await client.describe_log_dirs(hosts, list(plan.replicas)) if hosts else {}
    now, future = places(dirs), places(dirs, future=True)
    active = {r: now[r] for r, path in plan.moves.items() if future.get(r) == path and r in now}
    await begin_moves(client, active)  # to where it is: that is how a move is cancelled
    if active:
        names = ",".join(sorted(map(str, active)))
        click.echo(f"Successfully cancelled moves for: {names}")
    else:
        click.echo("None of the specified partition moves are active.")


@reassign.command(name="list")
@bootstrap_option
@json_option()
def list_(bootstrap: str, as_json: bool) -> None:
    """Print every reassignment that is under way."""

    async def work(client: AdminClient) -> None:
        found = await list_reassignments(client)
        click.echo(list_document(found) if as_json else "\n".join(list_lines(found)))

    run(bootstrap, work)


def _named(brokers: Iterable[BrokerId]) -> str:
    return ",".join(map(str, brokers))
