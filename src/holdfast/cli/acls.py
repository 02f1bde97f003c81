"""``holdfast acls``: what kafka-acls.sh does, with its lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from holdfast.cli.acl_lines import (
    OPERATIONS,
    PATTERNS,
    AclOptions,
    acls_document,
    added,
    adding_lines,
    already_there_line,
    current_lines,
    filters_listed,
    filters_of,
    principals_listed,
    question_lines,
    removed,
)
from holdfast.cli.completing import complete_groups, complete_topics
from holdfast.cli.connecting import bootstrap_option, json_option
from holdfast.cli.failing import Failed
from holdfast.cli.kafka_errors import Declined, KafkaErrorsGroup, in_kafkas_words, run
from holdfast.cli.kafka_words import qualified, said
from holdfast.client.acls import create_acls, delete_acls, describe_acls
from holdfast.client.admin import AdminClient
from holdfast.model.errors import HoldfastError
from holdfast.security.acls import AclBinding, AclFilter
from holdfast.security.resources import PatternKind

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=KafkaErrorsGroup)
def acls() -> None:
    """List, add, remove access control lists: who may do what.

    A principal is Type:name, as in User:alice; User:* is everybody. What one DENY says no ALLOW outweighs.
    """


def pattern_of(ctx: click.Context, param: click.Parameter, value: str) -> PatternKind:
    """literal, prefixed, any, match."""
    try:
        return PATTERNS[value.strip().lower()]
    except KeyError:
        raise click.BadParameter(f"{value!r}: expected one of {', '.join(sorted(PATTERNS))}", ctx, param) from None


def resource_options(command: F) -> F:
    """``--topic`` and all others that name resources, with ``--resource-pattern-type``."""
    for decorated in (
        click.option(
            "--resource-pattern-type", "pattern", default="literal", show_default=True, callback=pattern_of,
            metavar="literal|prefixed|any|match",
            help="What names mean: themselves, or all that begin so. Of filters also: any, that name whatever it "
            "means; match, all that is about a resource of that name.",
        ),
        click.option("--user-principal", "user_principals", multiple=True, metavar="PRINCIPAL",
                     help="A user whose tokens it is about; repeatable."),
        click.option("--delegation-token", "delegation_tokens", multiple=True, metavar="ID",
                     help="A delegation token; repeatable."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID",
                     help="A transactional id, or * for all; repeatable."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--group", "groups", multiple=True, metavar="NAME", shell_complete=complete_groups,
                     help="A consumer group, or * for all; repeatable."),
        click.option("--topic", "topics", multiple=True, metavar="NAME", shell_complete=complete_topics,
                     help="A topic, or * for all; repeatable."),
    ):  # fmt: skip
        command = decorated(command)
    return command


def entry_options(command: F) -> F:
    """``--allow-principal`` and all others that say who may do what."""
    for decorated in (
        click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster, which only "
                     "brokers before 3.0 ask for."),
        click.option("--consumer", is_flag=True, help="Read and Describe of the topics, Read of the groups."),
        click.option("--producer", is_flag=True, help="Write, Describe and Create of the topics, Write and Describe of "
                     "the transactional ids."),
        click.option("--operation", "operations", multiple=True, metavar="NAME",
                     help=f"{', '.join(each.acl_name for each in OPERATIONS.values())}; repeatable.  [default: All]"),
        click.option("--deny-host", "deny_hosts", multiple=True, metavar="ADDRESS",
                     help="From where --deny-principal may not.  [default: *]"),
        click.option("--allow-host", "allow_hosts", multiple=True, metavar="ADDRESS",
                     help="From where --allow-principal may.  [default: *]"),
        click.option("--deny-principal", "deny", multiple=True, metavar="PRINCIPAL", help="Who may not; repeatable."),
        click.option("--allow-principal", "allow", multiple=True, metavar="PRINCIPAL", help="Who may; repeatable."),
    ):  # fmt: skip
        command = decorated(command)
    return command


@acls.command(name="list")
@bootstrap_option
@resource_options
@click.option("--principal", "principals", multiple=True, metavar="PRINCIPAL", help="Only those of it; repeatable.")
@json_option()
def list_command(bootstrap: str, principals: tuple[str, ...], as_json: bool, **resources: Any) -> None:
    """List the entries of the resources that are named, or all."""
    wanted = filters_listed(AclOptions(**resources))
    names = principals_listed(principals)

    async def work(client: AdminClient) -> list[AclBinding]:
        return [each for one in wanted for each in await describe_acls(client, one)]

    found = _run(bootstrap, work)
    _print([acls_document(found, names)] if as_json else current_lines(found, names))


@acls.command()
@bootstrap_option
@resource_options
@entry_options
def add(bootstrap: str, **given: Any) -> None:
    """Add entries: who may, or may not, do what on the resources that are named."""
    wanted = added(AclOptions(**given))

    async def work(client: AdminClient) -> None:
        for resource, entries in wanted.items():
            (everything,) = filters_of(resource, ())
            there = set(await describe_acls(client, everything))
            bindings = [AclBinding(resource, entry) for entry in entries]
            new = [each for each in bindings if each not in there]
            _print(already_there_line(each) for each in bindings if each in there)
            if new:
                for error in await create_acls(client, new):
                    if error is not None:
                        raise error
                _print(adding_lines(resource, [each.entry for each in new]))

    _run(bootstrap, work)


@acls.command()
@bootstrap_option
@resource_options
@entry_options
@click.option("--force", "-y", is_flag=True, help="Do not ask before it is done.")
def remove(bootstrap: str, force: bool, **given: Any) -> None:
    """Remove entries; without a principal all that the resources have."""
    wanted = removed(AclOptions(**given))
    chosen: list[AclFilter] = []
    for resource, entries in wanted.items():
        question = list(question_lines(resource, entries))
        if force or _agreed(question):
            chosen += filters_of(resource, entries)

    async def work(client: AdminClient) -> None:
        for each in await delete_acls(client, chosen):
            if each.error is not None:
                raise each.error

    if chosen:
        _run(bootstrap, work)


def _agreed(question: list[str]) -> bool:
    if not sys.stdin.isatty():
        raise Failed(f"{' '.join(line.strip() for line in question)}: --force says so without being asked")
    _print(question)
    return sys.stdin.readline().strip().lower() == "y"


def _run(bootstrap: str, work: Callable[[AdminClient], Any]) -> Any:
    """With Kafka's words as kafka-acls.sh has them: on standard output, with the class."""
    try:
        return run(bootstrap, work)
    except HoldfastError as e:
        if not in_kafkas_words():
            raise
        raise _ToldOnOutput(str(e), f"Error while executing ACL command: {qualified(e, said(e))}") from e


class _ToldOnOutput(Declined):
    def tell_in_kafkas_words(self) -> None:
        click.echo(self.kafkas)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
