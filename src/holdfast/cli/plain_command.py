"""The error form of commands that print no words of Kafka's when they fail: one line on standard error.

``holdfast topics: topic 'x' does not exist``: the command, the thing, the value, what was expected. Exit code 1 says
that it failed, 2 that it was called in a way that cannot be meant. Owns the form and no sentence.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from holdfast.cli.kafka_words import exception_name
from holdfast.model.errors import HoldfastError


class Failed(click.ClickException):
    """What was asked for could not be done; a line for each message. ``command`` is put in by the PlainCommand that it
    passes."""

    exit_code = 1
    command = "holdfast"

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))

    def show(self, file: Any = None) -> None:
        for line in self.message.splitlines():
            click.echo(f"{self.command}: {line}", err=True)


class Misused(Failed):
    """Options or arguments that cannot be meant."""

    exit_code = 2


class PlainCommand(click.Command):
    """A subcommand all of whose errors have the form; click's own, and those of the cluster, become it here."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as e:
            raise _of(Misused(_one_line(e)), parent) from None

    def invoke(self, ctx: click.Context) -> Any:
        with plain_errors(ctx):
            return super().invoke(ctx)


@contextmanager
def plain_errors(ctx: click.Context) -> Iterator[None]:
    """The form, for what is done in here: also for one way of calling a command whose other ways have Kafka's words."""
    try:
        yield
    except click.UsageError as e:
        raise _of(Misused(_one_line(e)), ctx.parent) from None
    except Failed as e:
        raise _of(e, ctx.parent) from None
    except HoldfastError as e:
        raise _of(Failed(words_of(e)), ctx.parent) from None
    except OSError as e:
        if e.errno == errno.EPIPE:  # whoever read has gone: click ends the command without a word
            raise
        # What is left in the buffer would fail again at the end of the process, and then with a trace.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise _of(Failed(f"{e.filename or 'standard output'}: {e.strerror}"), ctx.parent) from None


def words_of(error: HoldfastError) -> str:
    """The message of an error, or Kafka's name for one without."""
    return error.message or exception_name(error).removesuffix("Exception")


def _one_line(error: click.UsageError) -> str:
    return " ".join(error.format_message().split())


def _of(error: Failed, parent: click.Context | None) -> Failed:
    error.command = "holdfast" if parent is None else parent.command_path
    return error
