"""What all commands that talk to a cluster share: the option that says where it is, one event loop, and a question.

Owns no command. An unreachable cluster fails at once: the first connection is not retried.
"""

import asyncio
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
