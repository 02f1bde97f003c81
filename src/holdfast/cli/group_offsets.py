"""``holdfast groups reset-offsets`` and ``delete-offsets``: what kafka-consumer-groups.sh does, by its forms and lines.

What goes wrong is told on standard error and is a failure, unlike there. What a reset makes of each partition is
client/offset_resets.py's to decide.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.completing import complete_groups, complete_topics
from holdfast.cli.connecting import bootstrap_option, with_cluster
from holdfast.cli.failing import Failed, Misused, OneLineCommand, reason_of
from holdfast.cli.partition_words import find_partitions, parse_topic
from holdfast.cli.reset_lines import Plan, deletion_lines, export_lines, failures, parse_plan, reset_lines
from holdfast.cli.time_words import DATETIME_FORM, DURATION_FORM, parse_datetime, parse_duration, time_before
from holdfast.client.admin import AdminClient
from holdfast.client.group_offsets import commit_resets, delete_offsets, plan_reset
from holdfast.client.offset_resets import (
    Form,
    Reset,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToPlan,
    ToTime,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from holdfast.model.types import TopicPartition

FORMS: Final = (
    "--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration, --from-file"
)
NOTHING_DONE: Final = "WARN: No action will be performed as the --execute option is missing."

Found = dict[str, dict[TopicPartition, Reset]]
Wanted = Sequence[tuple[str, Sequence[int] | None]] | None
"""Topics with partitions or with all of them; None: what is committed for."""


@click.command(name="reset-offsets", cls=OneLineCommand)
@bootstrap_option
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    shell_complete=complete_groups,
    help="A group without members; repeatable.",
)
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=complete_topics,
    help="All or some partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="All partitions that the group has committed offsets for.")
@click.option("--to-earliest", is_flag=True, help="Where the log begins.")
@click.option("--to-latest", is_flag=True, help="Where the log ends.")
@click.option("--to-current", is_flag=True, help="What is committed, or the log's end: for --export.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="This offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many further than what is committed; back, if negative.")
@click.option("--to-datetime", metavar="TIME", help=f"The first record not older than that: {DATETIME_FORM}.")
@click.option("--by-duration", metavar="DURATION", help=f"The first record not older than that: {DURATION_FORM}.")
@click.option("--from-file", metavar="FILE", help="CSV as --export writes it: topic,partition,offset, or with a group.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets; the default.")
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@click.option("--export", is_flag=True, help="Print them as CSV.")
def reset_offsets(
    bootstrap: str,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    **forms: Any,
) -> None:
    """Reset the offsets of groups without members.

    One of the forms says where to. An offset that the log does not have becomes the nearest one that it has, and a time
    later than every record the log's end; both are said.
    """
    if bool(groups) == all_groups:
        raise Misused("expected --group, or --all-groups")
    if dry_run and execute:
        raise Misused("--dry-run and --execute: expected one of them")
    groups = tuple(dict.fromkeys(groups))
    form, plan = chosen_form(forms, groups, int(time.time() * 1000))
    wanted = None if plan is not None else chosen_partitions(topics, all_topics)
    if plan is not None and (topics or all_topics):
        raise Misused("--from-file names the partitions: expected it without --topic and --all-topics")
    if not dry_run and not execute:
        click.echo(NOTHING_DONE, err=True)

    async def work(client: AdminClient) -> tuple[Found, dict[str, HoldfastError]]:
        chosen = [g.group_id for g in await client.list_groups()] if all_groups else groups
        if plan is not None and all_groups:
            chosen = [group for group in chosen if group in plan]
        return await reset_each(client, chosen, form, plan, wanted, execute=execute)

    found, failed = with_cluster(bootstrap, work)
    for group in sorted(found):
        for each in found[group].values():
            if each.note is not None:
                click.echo(f"WARN {each.note}", err=True)
    offsets = {group: {tp: each.offset for tp, each in resets.items()} for group, resets in found.items()}
    for line in export_lines(offsets, with_group=len(groups) != 1) if export else reset_lines(offsets):
        click.echo(line)
    if failed:
        raise Failed(*failures(failed))


async def reset_each(
    client: AdminClient, groups: Sequence[str], form: Form | None, plan: Plan | None, wanted: Wanted, *, execute: bool
) -> tuple[Found, dict[str, HoldfastError]]:
    """Each group on its own, as Kafka's tool does: what one refuses is no reason for another."""
    asked: Wanted = wanted
    if plan is not None:
        asked = [(tp.topic, [tp.partition]) for group in groups for tp in plan.get(group, ())]
    partitions = None if asked is None else await find_partitions(client, asked)
    found: Found = {}
    failed: dict[str, HoldfastError] = {}
    for group in groups:
        try:
            if plan is not None:
                form, partitions = ToPlan(plan[group]), sorted(plan[group])
            assert form is not None, "either a form or a plan was chosen"
            resets = await plan_reset(client, group, form, partitions)
            if execute:
                await commit_resets(client, group, resets)
            found[group] = resets
        except UnknownMemberIdError:
            failed[group] = UnknownMemberIdError(f"group '{group}' has got members meanwhile: no offset was changed")
        except HoldfastError as e:
            failed[group] = e
    return found, failed


def chosen_form(
    forms: Mapping[str, Any], groups: Sequence[str], now_ms: int
) -> tuple[Form | None, None] | tuple[None, Plan]:
    """What the one form says that was given, or the plan of a file."""
    given = {name: value for name, value in forms.items() if value is not None and value is not False}
    if len(given) != 1:
        named = " and ".join(f"--{name.replace('_', '-')}" for name in given) or "no form of a reset"
        raise Misused(f"{named}: expected one of {FORMS}")
    ((name, value),) = given.items()
    try:
        match name:
            case "to_earliest":
                return ToEarliest(), None
            case "to_latest":
                return ToLatest(), None
            case "to_current":
                return ToCurrent(), None
            case "to_offset":
                return ToOffset(value), None
            case "shift_by":
                return ShiftBy(value), None
            case "to_datetime":
                return ToTime(parse_datetime(value)), None
            case "by_duration":
                return ToTime(time_before(now_ms, parse_duration(value))), None
    except ValueError as e:
        raise Misused(f"--{name.replace('_', '-')} {e}") from None
    return None, read_plan(value, groups)


def read_plan(path: str, groups: Sequence[str]) -> Plan:
    """Failed where it cannot be read, or has nothing for a group that was named."""
    try:
        plan = parse_plan(Path(path).read_text(encoding="utf-8"), groups)
    except UnicodeDecodeError:
        raise Failed(f"--from-file {path} is no text: expected CSV") from None
    except OSError as e:
        raise Failed(f"--from-file {path}: {e.strerror}") from None
    except ValueError as e:
        raise Failed(f"--from-file {path}: {e}") from None
    missing = [group for group in groups if group not in plan]
    if missing:
        raise Failed(*(f"--from-file {path}: No reset plan for group {group} found" for group in missing))
    return plan


def chosen_partitions(topics: Sequence[str], all_topics: bool) -> Wanted:
    if bool(topics) == all_topics:
        raise Misused("One of the reset scopes should be defined: --all-topics, --topic.")
    return None if all_topics else [parse_topic(topic) for topic in topics]


@click.command(name="delete-offsets", cls=OneLineCommand)
@bootstrap_option
@click.option("--group", required=True, metavar="GROUP", shell_complete=complete_groups, help="The group.")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:0,1]", shell_complete=complete_topics,
    help="All or some partitions; repeatable.",
)  # fmt: skip
def delete_offsets_command(bootstrap: str, group: str, topics: tuple[str, ...]) -> None:
    """Delete what a group has committed for topics that none of its members subscribes to."""
    wanted = [parse_topic(topic) for topic in topics]

    async def work(client: AdminClient) -> dict[TopicPartition, HoldfastError | None]:
        try:
            return await delete_offsets(client, group, await find_partitions(client, wanted))
        except GroupIdNotFoundError:
            raise GroupIdNotFoundError(f"group '{group}' does not exist") from None
        except NonEmptyGroupError:
            raise NonEmptyGroupError(
                f"group '{group}' has members that are no consumers: expected none, as nobody can tell what these read"
            ) from None

    outcomes = with_cluster(bootstrap, work)
    refused = {tp: error for tp, error in outcomes.items() if error is not None}
    if not refused:
        click.echo(f"Request succeeded for deleting offsets from group {group}.")
    said = {tp: None if error is None else refusal(group, tp, error) for tp, error in outcomes.items()}
    for line in deletion_lines(said):
        click.echo(line)
    if refused:
        raise Failed(f"group '{group}': {len(refused)} of {len(outcomes)} offsets could not be deleted")


def refusal(group: str, tp: TopicPartition, error: HoldfastError) -> str:
    if isinstance(error, GroupSubscribedToTopicError):
        return f"members of the group subscribe to {tp.topic}"
    return reason_of(error)
