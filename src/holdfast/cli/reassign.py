"""``holdfast reassign``: replicas move between brokers, and to the log directories that the plan names.

kafka-reassign-partitions.sh with an action as a subcommand: its plans, its lines, its exit codes; it asks any Kafka
cluster. What it means is reassign_lines.py's; what is done about it the controller's.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.kafka_words import qualified, said
from holdfast.cli.log_dirs import fail, run
from holdfast.cli.reassign_lines import (
    Plan,
    PlanError,
    Replica,
    list_lines,
    move_lines,
    parse_brokers,
    parse_plan,
    parse_topics,
    places,
    plan_json,
    reassignment_lines,
    refuse_unknown_brokers,
    shrinking_line,
    started,
    throttled,
)
from holdfast.client.admin import AdminClient
from holdfast.client.disks import alter_replica_log_dirs
from holdfast.client.reassignments import (
    alter_reassignments,
    clear_broker_throttles,
    clear_topic_throttles,
    list_reassignments,
    throttle_moves,
    throttle_replication,
)
from holdfast.client.views import ClusterView
from holdfast.controller.placement import Place, place
from holdfast.model.errors import HoldfastError, ReplicaNotAvailableError, UnknownTopicOrPartitionError
from holdfast.model.types import BrokerId, TopicPartition

ASK_AGAIN_S = 0.1
"""Pause before a broker is asked again for a replica that it has not made yet."""
WARNING = (
    "Warning: You must run verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)


@click.group()
def reassign() -> None:
    """Move replicas between brokers, as kafka-reassign-partitions.sh does."""


def plan_option(command: Any) -> Any:
    """``--reassignment-json-file``."""
    return click.option(
        "--reassignment-json-file", "plan", required=True, metavar="FILE", callback=_read_plan,
        help="The plan: which replicas each partition shall have.",
    )(command)  # fmt: skip


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        fail(f"Error: Unable to read file {path}")
    except UnicodeDecodeError as e:
        fail(f"Error: {path} is no text: {e}")


def _read_plan(_: Any, __: Any, path: str) -> Plan:
    try:
        return parse_plan(_read(path))
    except PlanError as e:
        fail(f"Error: {path}: {e}")


async def _known_topics(client: AdminClient, names: Iterable[str]) -> ClusterView:
    view = await client.metadata(sorted(set(names)))
    for name, topic in view.topics.items():
        if topic.error is not None:
            missing = isinstance(topic.error, UnknownTopicOrPartitionError)
            raise UnknownTopicOrPartitionError(f"Topic {name} not found.") if missing else topic.error
    return view


def _check(plan: Plan, view: ClusterView) -> None:
    for tp, brokers in plan.replicas.items():
        for broker in brokers:
            if broker not in view.brokers:
                fail(f"Error: Unknown broker id {broker}")
        if view.topics[tp.topic].partition(tp.partition) is None:
            raise UnknownTopicOrPartitionError(f"Topic {tp.topic} has no partition {tp.partition}")


async def _check_dirs(client: AdminClient, plan: Plan) -> None:
    """Directories that the plan names have to be there before anything begins."""
    dirs = await client.describe_log_dirs(sorted({r.broker for r in plan.moves}), []) if plan.moves else {}
    for replica, path in sorted(plan.moves.items()):
        there = [d.path for d in dirs[replica.broker]]
        if path not in there:
            fail(f"Error: {path} is no log directory of broker {replica.broker}: expected one of {', '.join(there)}")


# -- generate --------------------------------------------------------------------------------------------------


@reassign.command()
@bootstrap_option
@click.option("--topics-to-move-json-file", "topics", required=True, metavar="FILE", help="Which topics.")
@click.option("--broker-list", required=True, metavar="ID,...", help="The brokers that shall have them.")
def generate(bootstrap: str, topics: str, broker_list: str) -> None:
    """Print where topics are now, and a plan for other brokers."""
    try:
        names, brokers = parse_topics(_read(topics)), parse_brokers(broker_list)
    except PlanError as e:
        fail(f"Error: {e}")

    async def work(client: AdminClient) -> None:
        view = await _known_topics(client, names)
        everyone = (await client.metadata(())).brokers
        try:
            refuse_unknown_brokers(brokers, everyone)
        except PlanError as e:
            fail(f"Error: {e}")
        there = [Place(id=broker, rack=everyone[broker].rack) for broker in brokers]
        now = {TopicPartition(name, p.partition): p.replicas for name in names for p in view.topics[name].partitions}
        wanted: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        for at, name in enumerate(names):
            partitions = view.topics[name].partitions
            lists = place(there, len(partitions), len(partitions[0].replicas), start=at, shift=at)
            wanted |= {TopicPartition(name, number): replicas for number, replicas in enumerate(lists)}
        click.echo(f"Current partition replica assignment\n{plan_json(now, await _places(client, now))}\n")
        click.echo(f"Proposed partition reassignment configuration\n{plan_json(wanted)}")

    run(bootstrap, work)


async def _places(client: AdminClient, replicas: Mapping[TopicPartition, Iterable[BrokerId]]) -> dict[Replica, str]:
    live = (await client.metadata(())).brokers
    asked = sorted({broker for brokers in replicas.values() for broker in brokers if broker in live})
    return places(await client.describe_log_dirs(asked, list(replicas)))


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
    bootstrap: str, plan: Plan, additional: bool, throttle: int | None, moves_throttle: int | None, timeout: int
) -> None:
    """Begin what a plan says."""

    async def work(client: AdminClient) -> None:
        view = await _known_topics(client, (tp.topic for tp in plan.replicas))
        _check(plan, view)
        await _check_dirs(client, plan)
        running = await list_reassignments(client)
        if not additional and running:
            fail(EXISTING)
        now = {tp: view.topics[tp.topic].partitions[tp.partition].replicas for tp in plan.replicas}
        click.echo(f"Current partition replica assignment\n\n{plan_json(now, await _places(client, now))}\n")
        click.echo("Save this to use as the --reassignment-json-file option during rollback")
        shrinking = shrinking_line(plan.replicas, now)
        if shrinking is not None:
            click.echo(shrinking, err=True)
        if throttle is not None or moves_throttle is not None:
            click.echo(WARNING)
        if throttle is not None:
            await throttle_replication(client, *throttled(plan.replicas, now, running), throttle)
            click.echo(f"The inter-broker throttle limit was set to {throttle} B/s")
        if moves_throttle is not None:
            await throttle_moves(client, sorted({replica.broker for replica in plan.moves}), moves_throttle)
            click.echo(f"The replica-alter-dir throttle limit was set to {moves_throttle} B/s")
        if plan.moves:  # a broker remembers the wish for a replica that it has not got yet
            await _begin_moves(client, plan.moves)
        outcomes = await alter_reassignments(client, plan.replicas)
        refused = [f"{tp}: {said(error)}" for tp, error in sorted(outcomes.items()) if error is not None]
        if refused:
            fail("Error reassigning partition(s):\n" + "\n".join(refused))
        click.echo(started(plan.replicas))
        await _moves(client, plan.moves, timeout / 1000)

    run(bootstrap, work, timeout_s=30.0 + timeout / 1000)


async def _begin_moves(client: AdminClient, moves: Mapping[Replica, str]) -> dict[Replica, HoldfastError | None]:
    outcomes: dict[Replica, HoldfastError | None] = {}
    for broker in sorted({replica.broker for replica in moves}):
        wishes = {replica.tp: path for replica, path in moves.items() if replica.broker == broker}
        answers = await alter_replica_log_dirs(client, broker, wishes)
        outcomes |= {Replica(tp, broker): error for tp, error in answers.items()}
    return outcomes


async def _moves(client: AdminClient, moves: Mapping[Replica, str], limit_s: float) -> None:
    """Until each broker has begun, or has the replica there; those that are not made yet are asked for again."""
    left, deadline = dict(moves), time.monotonic() + limit_s
    while left:
        for replica, error in (await _begin_moves(client, left)).items():
            if error is None:
                path = left.pop(replica)
                click.echo(
                    f"Successfully started moving log directory to {path} for replica {replica.tp} with broker "
                    f"{replica.broker}"
                )
            elif not isinstance(error, ReplicaNotAvailableError):
                fail(f"Error: Failed to alter dir for {replica}: {qualified(error, said(error))}")
        if left and time.monotonic() > deadline:
            fail(f"Error: Timed out waiting for replicas to be made: {', '.join(map(str, sorted(left)))}")
        if left:
            await asyncio.sleep(ASK_AGAIN_S)


# -- verify, cancel, list --------------------------------------------------------------------------------------


@reassign.command()
@bootstrap_option
@plan_option
@click.option("--preserve-throttles", is_flag=True, help="Leave the throttles as they are.")
def verify(bootstrap: str, plan: Plan, preserve_throttles: bool) -> None:
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


async def _clear_throttles(client: AdminClient, brokers: Sequence[BrokerId], plan: Plan) -> None:
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
def cancel(bootstrap: str, plan: Plan, preserve_throttles: bool) -> None:
    """Take back what a plan has begun: partitions get the replicas that they had."""

    async def work(client: AdminClient) -> None:
        running = await list_reassignments(client, plan.replicas)
        outcomes = await alter_reassignments(client, dict.fromkeys(running)) if running else {}
        refused = [f"{tp}: {said(error)}" for tp, error in sorted(outcomes.items()) if error is not None]
        if refused:
            fail("Error cancelling partition reassignment(s):\n" + "\n".join(refused))
        if running:
            names = ",".join(sorted(map(str, running)))
            click.echo(f"Successfully cancelled partition reassignment{'s' * (len(running) > 1)} for: {names}")
        else:
            click.echo("None of the specified partition reassignments are active.")
        await _cancel_moves(client, plan)
        if not preserve_throttles:
            await _clear_throttles(client, sorted((await client.metadata(())).brokers), plan)

    run(bootstrap, work)


async def _cancel_moves(client: AdminClient, plan: Plan) -> None:
    live = (await client.metadata(())).brokers
    hosts = sorted({replica.broker for replica in plan.moves}.intersection(live))
    dirs = await client.describe_log_dirs(hosts, list(plan.replicas)) if hosts else {}
    now, future = places(dirs), places(dirs, future=True)
    active = {r: now[r] for r, path in plan.moves.items() if future.get(r) == path and r in now}
    await _begin_moves(client, active)  # to where it is: that is how a move is cancelled
    if active:
        names = ",".join(sorted(map(str, active)))
        click.echo(f"Successfully cancelled moves for: {names}")
    else:
        click.echo("None of the specified partition moves are active.")


@reassign.command(name="list")
@bootstrap_option
def list_(bootstrap: str) -> None:
    """Print every reassignment that is under way."""

    async def work(client: AdminClient) -> None:
        click.echo("\n".join(list_lines(await list_reassignments(client))))

    run(bootstrap, work)


def _named(brokers: Iterable[BrokerId]) -> str:
    return ",".join(map(str, brokers))
