"""``holdfast groups``: what kafka-consumer-groups.sh does, with its lines.

With --kafka-errors, a group that is not there is told on standard output and is no failure of the command, as with
Kafka's tool, unless it is asked for JSON.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable

import click

from holdfast.cli.completing import complete_groups
from holdfast.cli.connecting import UsageError, bootstrap_option, with_cluster
from holdfast.cli.documents import GroupDocument, described_groups_document, groups_document
from holdfast.cli.failing import Failed, Misused, asked, failing
from holdfast.cli.group_lines import list_lines, member_lines, offset_lines, state_lines
from holdfast.cli.group_offsets import delete_offsets_command, reset_offsets
from holdfast.cli.kafka_errors import KafkaErrorsGroup, in_kafkas_words
from holdfast.cli.kafka_words import qualified, said
from holdfast.client.admin import AdminClient
from holdfast.client.views import GroupListing, GroupView, OffsetSpec
from holdfast.model.errors import HoldfastError, NetworkError
from holdfast.model.group_errors import GroupError, GroupIdNotFoundError, NonEmptyGroupError
from holdfast.model.types import Offset, TopicPartition

STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")


@click.group(cls=KafkaErrorsGroup)
def groups() -> None:
    """List, describe, delete consumer groups; reset and delete their offsets."""


groups.add_command(reset_offsets)
groups.add_command(delete_offsets_command)


def parse_states(ctx: click.Context, param: click.Parameter, value: str | None) -> frozenset[str] | None:
    """None: not asked for; empty: all."""
    if value is None:
        return None
    names = {name.lower(): name for name in STATES}
    given = [part.strip() for part in value.split(",") if part.strip()]
    if wrong := [part for part in given if part.lower() not in names]:
        raise click.BadParameter(f"{wrong[0]!r}: expected some of {', '.join(STATES)}", ctx, param)
    return frozenset(names[part.lower()] for part in given)


def parse_types(ctx: click.Context, param: click.Parameter, value: str | None) -> frozenset[str] | None:
    """``none`` is that of groups without a protocol."""
    if value is None:
        return None
    return frozenset("" if part.strip() == "none" else part.strip() for part in value.split(","))


def chosen_groups(
    found: Iterable[GroupListing], states: frozenset[str] | None, types: frozenset[str] | None
) -> list[GroupListing]:
    """Those of one of the states and of one of the types; None or empty: whatever they are. Pure."""
    return [g for g in found if (not states or g.state in states) and (types is None or g.protocol_type in types)]


@groups.command(name="list")
@bootstrap_option
@click.option(
    "--state", "states", is_flag=False, flag_value="", metavar="[STATE,...]", callback=parse_states,
    help="With the state of each; only groups of these states, if some are given.",
)  # fmt: skip
@click.option(
    "--type", "types", metavar="TYPE,...", callback=parse_types,
    help="Only groups of these protocol types: consumer, connect, ...; none: what only commits offsets.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_groups(bootstrap: str, states: frozenset[str] | None, types: frozenset[str] | None, as_json: bool) -> None:
    """List groups, one a line."""

    async def chosen(client: AdminClient) -> list[GroupListing]:
        return chosen_groups(await client.list_groups(), states, types)

    if as_json:
        with failing("groups"):
            click.echo(groups_document(asked(bootstrap, chosen)))
        return

    async def work(client: AdminClient) -> None:
        for line in list_lines(await chosen(client), state=states is not None):
            click.echo(line)

    run(bootstrap, work)


@groups.command()
@bootstrap_option
@click.argument("names", nargs=-1, shell_complete=complete_groups)
@click.option(
    "--group", "group_options", multiple=True, shell_complete=complete_groups, help="Name of a group; repeatable."
)
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@click.option("--members", is_flag=True, help="Who is in it, instead of its offsets.")
@click.option("--verbose", is_flag=True, help="With --members: what each member reads.")
@click.option("--state", is_flag=True, help="Coordinator and state, instead of its offsets.")
@click.option("--offsets", is_flag=True, help="Offsets and lag of every partition; the default.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON document.")
def describe(
    bootstrap: str,
    names: tuple[str, ...],
    group_options: tuple[str, ...],
    all_groups: bool,
    members: bool,
    verbose: bool,
    state: bool,
    offsets: bool,
    as_json: bool,
) -> None:
    """Describe consumer groups: offsets and lag, members, or state."""
    chosen = (*names, *group_options)
    if as_json:
        with failing("groups"):
            describe_as_json(bootstrap, None if all_groups else chosen, members or verbose or state or offsets)
        return
    if not chosen and not all_groups:
        raise missing_group("Option [describe] takes one of these options: [group], [all-groups]", ", or --all-groups")
    if members + state + offsets > 1:
        raise UsageError("--members, --state and --offsets: expected one of them")

    failed: dict[str, HoldfastError] = {}

    async def work(client: AdminClient) -> None:
        for name in [g.group_id for g in await client.list_groups()] if all_groups else chosen:
            try:
                view = await client.describe_group(name)
            except GroupError as e:
                failed[name] = e
                if in_kafkas_words():
                    click.echo(f"\nError: Executing consumer group command failed due to {qualified(e, said(e))}")
                continue
            if members or state:
                lines = member_lines(view, verbose=verbose) if members else state_lines(view)
                click.echo("\n".join(lines))
            else:
                await describe_offsets(client, view)

    run(bootstrap, work)
    if failed and not in_kafkas_words():
        raise Failed(*(group_words(name, error) for name, error in failed.items()))


def missing_group(kafkas: str, more: str = "") -> UsageError:
    return UsageError(kafkas if in_kafkas_words() else f"expected names of groups{more}")


def group_words(name: str, error: HoldfastError) -> str:
    """What is wrong with a group, which it names. Pure."""
    if isinstance(error, GroupIdNotFoundError):
        return f"there is no group '{name}'"
    if isinstance(error, NonEmptyGroupError):
        return f"group '{name}' has members: expected one without"
    return f"group '{name}': {said(error)}"


def describe_as_json(bootstrap: str, chosen: Iterable[str] | None, wants_a_part: bool) -> None:
    """One document of all groups, or of those; where some of them cannot be described it is printed and a failure."""
    if wants_a_part:
        raise Misused("--json has offsets, members and state: expected it without --offsets, --members and --state")
    if chosen is not None and not chosen:
        raise Misused("expected names of groups, or --all-groups")
    failed: dict[str, str] = {}

    async def work(client: AdminClient) -> list[GroupDocument]:
        found = []
        for name in [g.group_id for g in await client.list_groups()] if chosen is None else dict.fromkeys(chosen):
            try:
                view = await client.describe_group(name)
            except GroupError as e:
                failed[name] = group_words(name, e)
                continue
            committed = await client.committed(name)
            tps = {tp for member in view.members for tp in member.assignment} | set(committed)
            ends = await end_offsets(client, tps) if tps else {}
            found.append(GroupDocument(view=view, committed=committed, ends=ends))
        return found

    click.echo(described_groups_document(asked(bootstrap, work), failed))
    if failed:
        raise Failed(*failed.values())


@groups.command()
@bootstrap_option
@click.argument("names", nargs=-1, shell_complete=complete_groups)
@click.option(
    "--group", "group_options", multiple=True, shell_complete=complete_groups, help="Name of a group; repeatable."
)
def delete(bootstrap: str, names: tuple[str, ...], group_options: tuple[str, ...]) -> None:
    """Delete consumer groups without members, with their offsets."""
    chosen = (*names, *group_options)
    if not chosen:
        raise missing_group("Option [delete] takes the option: [group]")
    failed: dict[str, HoldfastError] = {}

    async def work(client: AdminClient) -> None:
        for name in dict.fromkeys(chosen):
            try:
                await client.delete_group(name)
            except GroupError as e:
                failed[name] = e

    run(bootstrap, work)
    if in_kafkas_words():
        click.echo("\n".join(delete_lines(chosen, failed)))
        return
    done = [name for name in dict.fromkeys(chosen) if name not in failed]
    if done:
        click.echo("\n".join(delete_lines(done, {})))
    if failed:
        raise Failed(*(f"not deleted: {group_words(name, error)}" for name, error in failed.items()))


def delete_lines(chosen: Iterable[str], failed: dict[str, HoldfastError]) -> Iterable[str]:
    """Kafka's. Pure."""
    deleted = [f"'{name}'" for name in chosen if name not in failed]
    if failed:
        yield "\nError: Deletion of some consumer groups failed:"
        for name, error in failed.items():
            yield f"* Group '{name}' could not be deleted due to: {qualified(error, said(error))}"
        if deleted:
            yield f"\nThese consumer groups were deleted successfully: {', '.join(deleted)}"
    else:
        yield f"Deletion of requested consumer groups ({', '.join(deleted)}) was successful."


async def describe_offsets(client: AdminClient, view: GroupView) -> None:
    committed = await client.committed(view.group_id)
    tps = {tp for member in view.members for tp in member.assignment} | set(committed)
    if not view.members:
        click.echo(f"\nConsumer group '{view.group_id}' has no active members.", err=True)
    elif view.state in ("PreparingRebalance", "CompletingRebalance"):
        click.echo(f"\nWarning: Consumer group '{view.group_id}' is rebalancing.", err=True)
    if tps:
        click.echo("\n".join(offset_lines(view, committed, await end_offsets(client, tps))))


async def end_offsets(client: AdminClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
    """Ends of the partitions that exist and have a leader."""
    topics = (await client.metadata({tp.topic for tp in tps})).topics
    led = {
        TopicPartition(topic.name, p.partition)
        for topic in topics.values()
        for p in topic.partitions
        if p.leader is not None
    }
    found = await client.list_offsets({tp: OffsetSpec.LATEST for tp in tps if tp in led})
    return {tp: at.offset for tp, at in found.items() if at.offset is not None}


def run(bootstrap: str, work: Callable[[AdminClient], Awaitable[None]]) -> None:
    """In Kafka's words as kafka-consumer-groups.sh prints them; there only an unreachable cluster is a failure."""
    if not in_kafkas_words():
        asked(bootstrap, work)
        return
    try:
        with_cluster(bootstrap, work)
    except HoldfastError as e:
        click.echo(f"\nError: Executing consumer group command failed due to {qualified(e, said(e))}")
        sys.exit(1 if isinstance(e, NetworkError) else 0)
