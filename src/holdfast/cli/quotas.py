"""``holdfast quotas``: what clients may have of brokers, as kafka-configs.sh has it, with its lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.cli.connecting import bootstrap_option, json_option
from holdfast.cli.kafka_errors import Declined, KafkaErrorsGroup, run
from holdfast.cli.quota_lines import (
    completed_line,
    entity_of,
    parse_quota_keys,
    parse_quotas,
    quota_lines,
    quotas_document,
)
from holdfast.client.admin import AdminClient
from holdfast.client.quotas import alter_quotas, describe_quotas

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=KafkaErrorsGroup)
def quotas() -> None:
    """List, set, unset quotas of users, clients and addresses.

    producer_byte_rate and consumer_byte_rate are bytes a second, request_percentage is time of a broker's loop,
    controller_mutation_rate partitions a second; each per broker. connection_creation_rate is of addresses.
    """


def entity_options(command: F) -> F:
    """``--user`` and all others that name whom a quota is for."""
    for decorated in (
        click.option("--ip-default", is_flag=True, help="All addresses without one of their own."),
        click.option("--ip", metavar="ADDRESS", help="From where connections come."),
        click.option("--client-default", is_flag=True, help="All client ids without one of their own."),
        click.option("--client", metavar="ID", help="A client id."),
        click.option("--user-default", is_flag=True, help="All users without one of their own."),
        click.option("--user", metavar="NAME", help="A user; with --client that client of this user."),
    ):
        command = decorated(command)
    return command


def _entity(given: dict[str, Any], *, needed: bool = True) -> dict[str, str | None]:
    try:
        found = entity_of(**given)
    except ValueError as e:
        raise click.UsageError(str(e)) from None
    if needed and not found:
        raise click.UsageError("expected whom it is for: --user, --client, --ip, or the default of one")
    return found


@quotas.command(name="list")
@bootstrap_option
@entity_options
@json_option()
def list_command(bootstrap: str, as_json: bool, **given: Any) -> None:
    """List the quotas of those that are named, or all."""
    entity = _entity(given, needed=False)

    async def work(client: AdminClient) -> Any:
        return await describe_quotas(client, entity or None)

    found = run(bootstrap, work)
    for line in [quotas_document(found)] if as_json else quota_lines(found):
        click.echo(line)


@quotas.command(name="set")
@bootstrap_option
@entity_options
@click.argument("pairs", nargs=-1, metavar="KEY=VALUE...", required=True)
def set_command(bootstrap: str, pairs: tuple[str, ...], **given: Any) -> None:
    """Set quotas.

    \b
    holdfast quotas set --user alice producer_byte_rate=1000000
    holdfast quotas set --ip-default connection_creation_rate=20
    """
    entity = _entity(given)
    try:
        wanted = parse_quotas(entity, pairs)
    except ValueError as e:
        raise click.UsageError(str(e)) from None
    run(bootstrap, lambda client: alter_quotas(client, entity, wanted))
    click.echo(completed_line(entity))


@quotas.command()
@bootstrap_option
@entity_options
@click.argument("keys", nargs=-1, metavar="KEY...", required=True)
def unset(bootstrap: str, keys: tuple[str, ...], **given: Any) -> None:
    """Take quotas away: those beneath count again."""
    entity = _entity(given)
    try:
        names = parse_quota_keys(entity, keys)
    except ValueError as e:
        raise click.UsageError(str(e)) from None

    async def work(client: AdminClient) -> None:
        there = dict(next((quotas for found, quotas in await describe_quotas(client, entity) if found == entity), {}))
        missing = [name for name in names if name not in there]
        if missing:
            raise Declined(f"{', '.join(missing)} is not set there", f"Invalid config(s): {','.join(missing)}")
        await alter_quotas(client, entity, dict.fromkeys(names))

    run(bootstrap, work)
    click.echo(completed_line(entity))
