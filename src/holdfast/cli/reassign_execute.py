"""How a plan is begun: by ``holdfast reassign execute`` and ``holdfast reassign rebalance``."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import click

from holdfast.cli.failing import reason_of
from holdfast.cli.kafka_errors import Declined, DeclinedUse
from holdfast.cli.kafka_words import qualified, said
from holdfast.cli.reassign_lines import (
    PlanError,
    ReassignmentPlan,
    Replica,
    places,
    plan_json,
    shrinking_line,
    started,
    throttled,
)
from holdfast.client.admin import AdminClient
from holdfast.client.disks import alter_replica_log_dirs
from holdfast.client.reassignments import alter_reassignments, list_reassignments, throttle_moves, throttle_replication
from holdfast.client.views import ClusterMetadata
from holdfast.model.errors import HoldfastError, ReplicaNotAvailableError, UnknownTopicOrPartitionError
from holdfast.model.types import BrokerId, TopicPartition

MAX_NAMED = 5
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


@contextlib.contextmanager
def refusals(where: str = "") -> Iterator[None]:
    """Inside, what cannot be planned ends the command; ``where`` it stands is not in Kafka's words."""
    try:
        yield
    except PlanError as e:
        raise DeclinedUse(f"{where}{e}", f"Error: {e}") from e


def refuse_failed(outcomes: Mapping[TopicPartition, HoldfastError | None], kafkas: str) -> None:
    """Declined where one of them failed; ``kafkas``: what Kafka's tool says before them."""
    failed = {tp: error for tp, error in sorted(outcomes.items()) if error is not None}
    if failed:
        lines = [Declined(f"{tp}: {reason_of(error)}", f"{tp}: {said(error)}") for tp, error in failed.items()]
        raise Declined.several(lines, "\n".join((kafkas, *(line.kafkas for line in lines))))


class ThrottleLimits(NamedTuple):
    """Bytes a second; None: no limit. ``replication``: what each broker sends to new replicas and takes for them;
    ``moves``: what is copied between its log directories."""

    replication: int | None = None
    moves: int | None = None


def _qualified(message: str) -> str:
    return f"ERROR {qualified(UnknownTopicOrPartitionError(message))}"


async def known_topics(client: AdminClient, names: Iterable[str]) -> ClusterMetadata:
    """These topics; the error of one that is not there or cannot be seen."""
    view = await client.metadata(sorted(set(names)))
    for name, topic in view.topics.items():
        if topic.error is not None:
            missing = isinstance(topic.error, UnknownTopicOrPartitionError)
            raise (
                Declined(f"there is no topic '{name}'", _qualified(f"Topic {name} not found."))
                if missing
                else topic.error
            )
    return view


def _check(plan: ReassignmentPlan, view: ClusterMetadata) -> None:
    for tp, brokers in plan.replicas.items():
        for broker in brokers:
            if broker not in view.brokers:
                raise Declined(
                    f"{tp}: there is no broker {broker}: expected some of {', '.join(map(str, sorted(view.brokers)))}",
                    f"Error: Unknown broker id {broker}",
                )
        there = view.topics[tp.topic]
        if there.partition(tp.partition) is None:
            raise Declined(
                f"{tp}: {tp.topic} has partitions 0 to {len(there.partitions) - 1}",
                _qualified(f"Topic {tp.topic} has no partition {tp.partition}"),
            )


async def _check_dirs(client: AdminClient, plan: ReassignmentPlan) -> None:
    """Directories that the plan names have to be there before anything begins."""
    dirs = await client.describe_log_dirs(sorted({r.broker for r in plan.moves}), []) if plan.moves else {}
    for replica, path in sorted(plan.moves.items()):
        there = [d.path for d in dirs[replica.broker]]
        if path not in there:
            line = f"{path} is no log directory of broker {replica.broker}: expected one of {', '.join(there)}"
            raise Declined(line, f"Error: {line}")


def under_way(running: Iterable[TopicPartition]) -> str:
    """``3 reassignments are under way (t-0, t-1, ...)``. Pure."""
    names = sorted(map(str, running))
    more = ", ..." if len(names) > MAX_NAMED else ""
    return f"{len(names)} reassignments are under way ({', '.join(names[:MAX_NAMED])}{more})"


async def places_now(client: AdminClient, replicas: Mapping[TopicPartition, Iterable[BrokerId]]) -> dict[Replica, str]:
    """The log directories of replicas of live brokers."""
    live = (await client.metadata(())).brokers
    asked = sorted({broker for brokers in replicas.values() for broker in brokers if broker in live})
    return places(await client.describe_log_dirs(asked, list(replicas)))


async def begin(
    client: AdminClient, plan: ReassignmentPlan, *, additional: bool, limits: ThrottleLimits, timeout_s: float
) -> None:
    """Check a plan, print how it is taken back, begin it, and wait ``timeout_s`` for replicas that are to be in a given
    directory. ``additional``: although others are under way. What is refused ends the command."""
    view = await known_topics(client, (tp.topic for tp in plan.replicas))
    _check(plan, view)
    await _check_dirs(client, plan)
    running = await list_reassignments(client)
    if not additional and running:
        raise Declined(f"{under_way(running)}: expected none, or --additional", EXISTING)
    now = {tp: view.topics[tp.topic].partitions[tp.partition].replicas for tp in plan.replicas}
    click.echo(f"Current partition replica assignment\n\n{plan_json(now, await places_now(client, now))}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    shrinking = shrinking_line(plan.replicas, now)
    if shrinking is not None:
        click.echo(shrinking, err=True)
    if limits.replication is not None or limits.moves is not None:
        click.echo(WARNING)
    if limits.replication is not None:
        await throttle_replication(client, *throttled(plan.replicas, now, running), limits.replication)
        click.echo(f"The inter-broker throttle limit was set to {limits.replication} B/s")
    if limits.moves is not None:
        await throttle_moves(client, sorted({replica.broker for replica in plan.moves}), limits.moves)
        click.echo(f"The replica-alter-dir throttle limit was set to {limits.moves} B/s")
    if plan.moves:  # a broker remembers the wish for a replica that it has not got yet
        await begin_moves(client, plan.moves)
    outcomes = await alter_reassignments(client, plan.replicas)
    refuse_failed(outcomes, "Error reassigning partition(s):")
    click.echo(started(plan.replicas))
    await _moves(client, plan.moves, timeout_s)


async def begin_moves(client: AdminClient, moves: Mapping[Replica, str]) -> dict[Replica, HoldfastError | None]:
    """Tell each broker where its replicas shall be; its answer by replica."""
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
        for replica, error in (await begin_moves(client, left)).items():
            if error is None:
                path = left.pop(replica)
                click.echo(
                    f"Successfully started moving log directory to {path} for replica {replica.tp} with broker "
                    f"{replica.broker}"
                )
            elif not isinstance(error, ReplicaNotAvailableError):
                raise Declined(
                    f"{replica.tp} on broker {replica.broker} cannot be in {left[replica]}: {reason_of(error)}",
                    f"Error: Failed to alter dir for {replica}: {qualified(error, said(error))}",
                )
        if left and time.monotonic() > deadline:
            late = ", ".join(map(str, sorted(left)))
            raise Declined(
                f"not made within {limit_s:g} s, so not yet in its directory: {late}; --timeout MS waits longer",
                f"Error: Timed out waiting for replicas to be made: {late}",
            )
        if left:
            await asyncio.sleep(ASK_AGAIN_S)
