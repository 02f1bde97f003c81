"""``holdfast users``: users with passwords (SCRAM), as kafka-configs.sh has them, with its lines.

A password is asked for, or read from a file or standard input: what stands on a command line, every user of the machine
can read. It is salted here and does not leave this process.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from holdfast.cli.connecting import bootstrap_option, confirmed, json_option
from holdfast.cli.failing import Failed
from holdfast.cli.kafka_errors import KafkaErrorsGroup, run
from holdfast.cli.quota_lines import (
    LEAST_ITERATIONS,
    MECHANISMS,
    MOST_ITERATIONS,
    USER,
    completed_line,
    credential_line,
    users_document,
)
from holdfast.client.admin import AdminClient
from holdfast.client.users import delete_user, describe_users, set_password

STANDARD_INPUT = "-"
DEFAULT_MECHANISM = "SCRAM-SHA-512"
MOST_PASSWORD_BYTES = 1024


@click.group(cls=KafkaErrorsGroup)
def users() -> None:
    """List, set, remove users who log in with a password (SCRAM).

    Who has neither rights nor a place in super.users may do nothing: `holdfast acls` gives rights.
    """


@users.command(name="list")
@bootstrap_option
@click.argument("names", nargs=-1, metavar="[USER]...")
@json_option()
def list_command(bootstrap: str, names: tuple[str, ...], as_json: bool) -> None:
    """List users with the mechanisms that they have passwords for, and their iterations."""

    async def work(client: AdminClient) -> Mapping[str, Mapping[str, int]]:
        return await describe_users(client, names or None)

    found = run(bootstrap, work)
    if as_json:
        click.echo(users_document(found))
    else:
        for user in sorted(found):
            click.echo(credential_line(user, found[user]))


@users.command(name="set")
@bootstrap_option
@click.argument("user")
@click.option(
    "--mechanism", type=click.Choice(MECHANISMS, case_sensitive=False), default=DEFAULT_MECHANISM, show_default=True,
    help="What clients log in with.",
)  # fmt: skip
@click.option(
    "--iterations", type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS), default=LEAST_ITERATIONS,
    show_default=True, help="What a guess costs who has stolen the metadata, and a login its client.",
)  # fmt: skip
@click.option(
    "--password-file", metavar="FILE", help="Its first line is the password; - is standard input. Without: it is asked."
)
def set_command(bootstrap: str, user: str, mechanism: str, iterations: int, password_file: str | None) -> None:
    """Give a user a password, another one if there is one."""
    password = _password(user, password_file)
    run(bootstrap, lambda client: set_password(client, user, mechanism.upper(), password, iterations=iterations))
    click.echo(completed_line({USER: user}))


@users.command()
@bootstrap_option
@click.argument("user")
@click.option(
    "--mechanism", type=click.Choice(MECHANISMS, case_sensitive=False), help="Only this one.  [default: all it has]"
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove(bootstrap: str, user: str, mechanism: str | None, yes: bool) -> None:
    """Take a user's password away: its next login, or re-authentication, fails."""
    confirmed("Remove the password of user", [user], yes=yes)

    async def work(client: AdminClient) -> None:
        there = (await describe_users(client, [user])).get(user)
        if not there:
            raise Failed(f"user {user}: there is none with a password")
        await delete_user(client, user, [mechanism.upper()] if mechanism else sorted(there))

    run(bootstrap, work)
    click.echo(completed_line({USER: user}))


def _password(user: str, path: str | None) -> str:
    """Of the file, or of the person at the terminal. Failed, click.UsageError."""
    if path is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "the password of a user is asked for at a terminal: expected --password-file FILE, or -"
            )
        return str(click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True))
    text = sys.stdin.readline() if path == STANDARD_INPUT else _first_line(path)
    password = text.rstrip("\r\n")
    if not password:
        raise Failed(f"--password-file {path}: expected a password in its first line")
    return password


def _first_line(path: str) -> str:
    with Path(path).open(encoding="utf-8") as file:
        try:
            return file.readline(MOST_PASSWORD_BYTES)
        except UnicodeDecodeError:
            raise Failed(f"--password-file {path}: expected text in UTF-8") from None
