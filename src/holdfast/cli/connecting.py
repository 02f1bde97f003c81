"""What all commands that talk to a cluster share: the option that says where it is, one event loop, and a question.

Owns no command. An unreachable cluster fails at once: the first connection is not retried.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast.client.admin import AdminClient

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class UsageError(click.UsageError):
    """A wrong combination of options; Kafka's tools end with 1."""

    exit_code = 1


def bootstrap_option(command: F) -> F:
    """``--bootstrap-server``."""
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar="HOLDFAST_BOOTSTRAP_SERVER",
        metavar="HOST:PORT,...",
        help="Brokers to ask first.",
    )(command)


def json_option(help_text: str = "One JSON document.") -> Callable[[F], F]:
    """``--json``: parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def memory_option(command: F) -> F:
    """``--driver-memory``: checked here, as a JVM that cannot start says nothing that helps."""

    def check(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if not re.fullmatch(r"[1-9]\d*[kmgt]b?", value, re.IGNORECASE):
            raise click.BadParameter(f"{value!r}: expected a size like 512m or 2g", ctx, param)
        return value

    return click.option(
        "--driver-memory", default="1g", show_default=True, callback=check, help="Heap of Spark's JVM."
    )(command)


def understood(parse: Callable[[str], T], text: str, option: str) -> T:
    """What the value of an option says. Where it cannot be read, what is wrong is the usage error."""
    try:
        return parse(text)
    except ValueError as e:
        raise click.UsageError(f"{option} {text!r}: {e}") from None


def with_cluster(bootstrap: str, work: Callable[[AdminClient], Awaitable[T]], *, timeout_s: float = 30.0) -> T:
    """Runs ``work`` with a connected client in an event loop of its own."""

    async def run() -> T:
        async with AdminClient(bootstrap, client_id="holdfast-cli", timeout_s=timeout_s) as client:
            return await work(client)

    return asyncio.run(run())


def confirmed(question: str, what: Sequence[str], *, yes: bool) -> None:
    """Asks a person; ends the command when the answer is no, or when nobody is there to ask."""
    if yes:
        return
    listing = ", ".join(what)
    if not sys.stdin.isatty():
        raise UsageError(f"{question} {listing}: --yes says so without being asked")
    click.confirm(f"{question} {listing}?", abort=True, err=True)
