"""How a command says that it could not do what it was asked: one line on standard error, and an exit code.

``holdfast NAME: ...`` names the thing, the value and what was expected, and never a class or a trace. A group of
commands takes that form by ``cls=OneLineGroup`` (a single one by ``cls=OneLineCommand``): errors of brokers, of the
connection, of the output and of usage then end it so, and the command raises what it refuses itself as Failed.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

import click

from holdfast.cli.command_config import with_way_out
from holdfast.cli.connecting import with_cluster
from holdfast.client.admin import AdminClient
from holdfast.client.pool import parse_bootstrap
from holdfast.client.wire import error_name
from holdfast.model.errors import ConfigError, HoldfastError

T = TypeVar("T")
FAILED: Final = 1
USAGE: Final = 2
_HELP_INSTEAD: Final = tuple(filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)]))
"""A group called without a command prints its help: no line of an error. Earlier clicks have no such class."""


class Failed(Exception):
    """The command cannot do it. Each message names the thing, the value and what was expected, and is a line."""

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages


class Misused(Failed):
    """Options or arguments that cannot be meant."""


class OneLineError(click.ClickException):
    """The end of a command, as it is printed."""

    exit_code = FAILED

    def __init__(self, command: str, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.command, self.messages = command, messages

    def show(self, file: Any = None) -> None:
        for each in self.messages:
            click.echo(one_line(self.command, each), file=file, err=file is None)


class OneLineUsageError(OneLineError):
    """The same, of a command that cannot be meant, or whose failure has this exit code."""

    exit_code = USAGE


def one_line(command: str, message: str) -> str:
    """``holdfast configs: message``, whatever lines the message has; without a command ``holdfast: message``. Pure."""
    return f"{f'holdfast {command}'.rstrip()}: {' '.join(message.split())}"


def text_of(error: HoldfastError) -> str:
    """What the broker said, or Kafka's name of an error that comes without a word. Pure."""
    return error.message or error_name(error)


def reason_of(error: HoldfastError) -> str:
    """The same, for a line that says already what was asked. Pure."""
    return error.words or error_name(error)


@contextlib.contextmanager
def failing(command: str) -> Iterator[None]:
    """Inside, whatever goes wrong ends the command of that name in one line."""
    try:
        yield
    except (OneLineError, *_HELP_INSTEAD):
        raise
    except click.UsageError as e:
        raise OneLineUsageError(command, e.format_message()) from e
    except click.ClickException as e:
        kind = OneLineUsageError if e.exit_code == USAGE else OneLineError
        raise kind(command, e.format_message()) from e
    except Misused as e:
        raise OneLineUsageError(command, *e.messages) from e
    except Failed as e:
        raise OneLineError(command, *e.messages) from e
    except HoldfastError as e:
        raise OneLineError(command, with_way_out(text_of(e))) from e
    except OSError as e:
        _ended_by(command, e)


def asked(bootstrap: str, work: Callable[[AdminClient], Awaitable[T]], *, timeout_s: float = 30.0) -> T:
    """``with_cluster`` for a command that ends so: what names no broker is wrong usage, and no broker's fault."""
    try:
        parse_bootstrap(bootstrap)
    except ConfigError as e:
        raise click.UsageError(str(e)) from e
    return with_cluster(bootstrap, work, timeout_s=timeout_s)


def _ended_by(command: str, error: OSError) -> NoReturn:
    if error.errno == errno.EPIPE:  # a reader that went away needs no word: click ends the command
        raise error
    with contextlib.suppress(OSError, ValueError):  # what could not be written must not be tried again at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise OneLineError(command, f"{error.filename or 'standard output'}: {error.strerror or error}") from error


def called(command: click.Command, parent: click.Context | None) -> str:
    """The name that lines begin with: of the outermost group that ends so, or else of the command's own group."""
    found, above = None, parent
    while above is not None:
        found = above.command.name if isinstance(above.command, OneLineGroup) else found
        above = above.parent
    alone = parent is None or parent.parent is None
    return found or (command.name if alone or parent is None else parent.info_name) or ""


class OneLineCommand(click.Command):
    """A command that ends so, whatever the others of its group do; with the group's name, if it has one."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with failing(called(self, parent)):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with failing(called(self, ctx.parent)):
            return super().invoke(ctx)


class OneLineGroup(click.Group):
    """A group all of whose commands end so, with the group's name."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with failing(called(self, parent)):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with failing(called(self, ctx.parent)):
            return super().invoke(ctx)
