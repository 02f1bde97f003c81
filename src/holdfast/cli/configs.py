"""``holdfast configs``: the configuration of topics and brokers, looked at and changed while they run.

Owns the options and the order of questions; config_lines.py has the lines. The broker decides what a key may have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click

from holdfast.cli.columns import terminal_width
from holdfast.cli.completing import complete_brokers, complete_topics
from holdfast.cli.config_lines import (
    change_line,
    chosen_values,
    described_json,
    described_lines,
    nearest,
    parse_changes,
    parse_keys,
    shown,
    unknown_key,
    value_after,
)
from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.failing import Failed, OneLineGroup, asked, reason_of, text_of
from holdfast.client.admin import AdminClient
from holdfast.client.configs import AlterConfigOp, ConfigTarget, KeyChange, alter_config, describe_config
from holdfast.client.views import ConfigValue
from holdfast.model.errors import HoldfastError, UnknownTopicOrPartitionError

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=OneLineGroup)
def configs() -> None:
    """Describe, set, unset configuration of topics and brokers.

    Exit code 0: done, 1: it could not be done, 2: wrong usage.
    """


def target_options(command: F) -> F:
    """``--topic T``, ``--broker N``, ``--broker-default``: one of them."""
    command = click.option(
        "--broker-default", is_flag=True, help="What all brokers have that have nothing of their own."
    )(command)
    command = click.option(
        "--broker", type=click.IntRange(0, 2**31 - 1), metavar="ID", shell_complete=complete_brokers, help="One broker."
    )(command)
    return click.option("--topic", metavar="NAME", shell_complete=complete_topics, help="One topic.")(command)


def target_of(topic: str | None, broker: int | None, broker_default: bool) -> ConfigTarget:
    if [topic is not None, broker is not None, broker_default].count(True) != 1:
        raise click.UsageError("expected one of --topic NAME, --broker ID, --broker-default")
    return ConfigTarget(topic=topic, broker=broker)


@configs.command()
@bootstrap_option
@target_options
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--all", "everything", is_flag=True, help="What is default, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, with types and every layer.")
def describe(
    bootstrap: str,
    topic: str | None,
    broker: int | None,
    broker_default: bool,
    keys: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> None:
    """Show what is not default, or the keys KEY: value and source.

    The source says where the value comes from: DYNAMIC_TOPIC, DYNAMIC_BROKER and DYNAMIC_DEFAULT were set by commands
    like this one, STATIC is the properties file. read-only: only the file can say it. A sensitive value is not
    told.
    """
    target = target_of(topic, broker, broker_default)
    found = asked(bootstrap, lambda client: described(client, target))
    with of(target):
        values = chosen_values(found.values(), keys, everything=everything)
    if as_json:
        click.echo(described_json(target, values))
    elif values:
        click.echo("\n".join(described_lines(values, terminal_width())))
    else:
        click.echo(f"{target}: nothing is set{'' if broker_default else ', all is default: --all shows it'}")


@configs.command(name="set")
@bootstrap_option
@target_options
@click.argument("pairs", nargs=-1, metavar="KEY=VALUE...", required=True)
@click.option("--dry-run", is_flag=True, help="Only have it checked, and say what would change.")
def set_keys(
    bootstrap: str, topic: str | None, broker: int | None, broker_default: bool, pairs: tuple[str, ...], dry_run: bool
) -> None:
    """Set keys, all of them or none; KEY+=VALUE and KEY-=VALUE add to a list and take from it.

    \b
    holdfast configs set --topic orders retention.ms=86400000
    holdfast configs set --broker 1 replica.alter.log.dirs.io.max.bytes.per.second=50000000
    """
    _change(bootstrap, target_of(topic, broker, broker_default), parse_changes, pairs, dry_run=dry_run)


@configs.command()
@bootstrap_option
@target_options
@click.argument("keys", nargs=-1, metavar="KEY...", required=True)
@click.option("--dry-run", is_flag=True, help="Only have it checked, and say what would change.")
def unset(
    bootstrap: str, topic: str | None, broker: int | None, broker_default: bool, keys: tuple[str, ...], dry_run: bool
) -> None:
    """Take settings away, all of them or none: what is beneath counts again."""
    _change(bootstrap, target_of(topic, broker, broker_default), parse_keys, keys, dry_run=dry_run)


def _change(
    bootstrap: str,
    target: ConfigTarget,
    parse: Callable[[Iterable[str]], list[KeyChange]],
    texts: Iterable[str],
    *,
    dry_run: bool,
) -> None:
    try:
        changes = parse(texts)
    except ValueError as e:
        raise click.UsageError(str(e)) from e

    for line in asked(bootstrap, lambda client: changed(client, target, changes, dry_run=dry_run)):
        click.echo(line)


async def described(client: AdminClient, target: ConfigTarget) -> dict[str, ConfigValue]:
    """All keys of the target, by name. Failed: there is no such thing."""
    if target.broker is not None:
        await known_broker(client, target)
    with of(target):
        try:
            return {v.name: v for v in await describe_config(client, target)}
        except UnknownTopicOrPartitionError:
            raise Failed("there is no such topic") from None


async def known_broker(client: AdminClient, target: ConfigTarget) -> None:
    """Failed: it is not alive, and nobody else can tell of it."""
    alive = sorted((await client.metadata(())).brokers)
    if target.broker not in alive:
        raise Failed(f"{target} is not alive: expected one of {', '.join(map(str, alive))}")


async def changed(client: AdminClient, target: ConfigTarget, changes: list[KeyChange], *, dry_run: bool) -> list[str]:
    """Makes the changes, and says for each key what it had and what it has. Failed."""
    before = await described(client, target)
    there = before if target != ConfigTarget() else before | await keys_of_brokers(client)
    with of(target):
        for change in changes:
            if change.operation is AlterConfigOp.DELETE and change.key not in there:
                raise Failed(unknown_key(change.key, there))
        try:
            await alter_config(client, target, changes, validate_only=dry_run)
        except HoldfastError as e:
            unknown = [c.key for c in changes if c.key not in there and c.key in text_of(e)]
            raise Failed(reason_of(e) + (nearest(unknown[0], there) if unknown else "")) from e
    after = {c.key: value_after(c, target, before.get(c.key)) for c in changes}
    if not dry_run and None in after.values():
        now = await described(client, target)
        after |= {key: shown(now[key]) for key, value in after.items() if value is None and key in now}
    return [change_line(target, c, before.get(c.key), after[c.key], dry_run=dry_run) for c in changes]


async def keys_of_brokers(client: AdminClient) -> dict[str, ConfigValue]:
    """What there is to be set for all brokers: the keys that one of them has."""
    alive = min((await client.metadata(())).brokers)
    return await described(client, ConfigTarget(broker=alive))


@contextlib.contextmanager
def of(target: ConfigTarget) -> Iterator[None]:
    """Inside, errors are of this target, and say so."""
    try:
        yield
    except Failed as e:
        raise Failed(f"{target}: {e}") from e
    except HoldfastError as e:
        raise Failed(f"{target}: {reason_of(e)}") from e
