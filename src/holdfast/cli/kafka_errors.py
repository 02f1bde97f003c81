"""``--kafka-errors``: errors in the words, on the streams and with the exit codes of Kafka's tools.

For scripts that read them. The groups and commands that do what one of those tools does take ``cls=KafkaErrorsGroup``
or ``KafkaErrorsCommand``: without the option they end as all commands do (failing.py), with it as Kafka's tool. What a
tool says on other streams than most of them, its own module says (``in_kafkas_words``).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from holdfast.cli.connecting import with_cluster
from holdfast.cli.failing import FAILED, Failed, Misused, OneLineCommand, OneLineGroup, asked
from holdfast.cli.kafka_words import qualified, said
from holdfast.client.admin import AdminClient
from holdfast.model.errors import HoldfastError

T = TypeVar("T")
OPTION: Final = "--kafka-errors"
VARIABLE: Final = "HOLDFAST_KAFKA_ERRORS"
CHOSEN: Final = "holdfast.kafka_errors"
"""Of a click context's ``meta``, which a group shares with its commands."""
MEANS_YES: Final = frozenset(("1", "true", "t", "yes", "y", "on"))
"""What click takes for a flag's variable."""


class Declined(Failed):
    """Failed; ``kafkas``: the line that Kafka's tool has for it."""

    def __init__(self, message: str, kafkas: str | None = None) -> None:
        super().__init__(message)
        self.kafkas = message if kafkas is None else kafkas

    def tell_in_kafkas_words(self) -> None:
        """As most of its tools, on standard error."""
        click.echo(self.kafkas, err=True)

    @classmethod
    def several(cls, each: Sequence[Declined], kafkas: str | None = None) -> Declined:
        """All of these, a line each; ``kafkas``: what Kafka's tool says in place of its lines."""
        found = cls("", "\n".join(one.kafkas for one in each) if kafkas is None else kafkas)
        found.messages = tuple(message for one in each for message in one.messages)
        return found


class DeclinedUse(Declined, Misused):
    """The same, for what cannot be meant: in Kafka's words it is a failure like others."""


def in_kafkas_words() -> bool:
    """Whether the command that runs was asked for them."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(CHOSEN))


def run(bootstrap: str, work: Callable[[AdminClient], Awaitable[T]], *, timeout_s: float = 30.0) -> T:
    """``asked``, for the commands here: in Kafka's words a wrong bootstrap server is a failure like others."""
    return (with_cluster if in_kafkas_words() else asked)(bootstrap, work, timeout_s=timeout_s)


@contextlib.contextmanager
def kafkas_words() -> Iterator[None]:
    """Inside, what goes wrong ends the command as most of Kafka's tools: on standard error, with 1."""
    try:
        yield
    except Declined as e:
        e.tell_in_kafkas_words()
        sys.exit(FAILED)
    except Failed as e:
        _end(*e.messages)
    except HoldfastError as e:
        _end(f"ERROR {qualified(e, said(e))}")


def _end(*lines: str) -> None:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(FAILED)


def _option() -> click.Option:
    return click.Option(
        [OPTION], is_flag=True, expose_value=False, envvar=VARIABLE, show_envvar=True,
        help="Errors in the words, on the streams and with the exit codes of Kafka's tools.",
    )  # fmt: skip


def _wanted(args: Sequence[str], parent: click.Context | None) -> bool:
    """Known before options are parsed, as what is wrong with those is told so, too."""
    if parent is not None and parent.meta.get(CHOSEN):
        return True
    return OPTION in args or os.environ.get(VARIABLE, "").strip().lower() in MEANS_YES


class KafkaErrorsCommand(OneLineCommand):
    """A command that does what one of Kafka's does."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.params.append(_option())

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if not _wanted(args, parent):
            return super().make_context(info_name, args, parent, **extra)
        with kafkas_words():
            return click.Command.make_context(self, info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[CHOSEN] = _wanted(args, ctx.parent)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.meta[CHOSEN]:
            return super().invoke(ctx)
        with kafkas_words():
            return click.Command.invoke(self, ctx)


class KafkaErrorsGroup(OneLineGroup):
    """A group of such commands."""

    command_class = KafkaErrorsCommand
    group_class = type
    """A group within one is one, too."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.params.append(_option())

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if not _wanted(args, parent):
            return super().make_context(info_name, args, parent, **extra)
        return click.Group.make_context(self, info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[CHOSEN] = _wanted(args, ctx.parent)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        return click.Group.invoke(self, ctx) if ctx.meta[CHOSEN] else super().invoke(ctx)
