"""What all commands that talk to a cluster share: the option that says where it is, one event loop, and a question.

Owns no command. An unreachable cluster fails at once: the first connection is not retried.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from holdfast.client.admin import AdminClient

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class UsageError(click.UsageError):
    """A wrong combination of options; Kafka's tools end with 1."""

    exit_code = 1


class OneLineUsage(click.UsageError):
    """Wrong usage, as the commands say everything: ``holdfast consume: ...``."""

    def show(self, file: Any = None) -> None:
        command = self.ctx.command_path if self.ctx is not None else "holdfast"
        click.echo(f"{command}: {' '.join(self.message.split())}", file=file, err=file is None)


class OneLineCommand(click.Command):
    """A command that says what is wrong with its options in one line."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        with _in_one_line():
            return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _in_one_line():
            return super().invoke(ctx)


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except click.UsageError as e:
        raise OneLineUsage(e.format_message(), e.ctx) from e


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
