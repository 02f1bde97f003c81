"""What all commands that talk to a cluster share: the option that says where it is, one event loop, and a question.

Owns no command. An unreachable cluster fails at once: the first connection is not retried.
"""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast.cli.command_config import CHOSEN, OPTION, VARIABLE, command_config, command_security, read_command_config
from holdfast.cli.completing import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from holdfast.cli.profiles import PROFILE_VARIABLE, Profile, ProfileError, load_profile
from holdfast.client.admin import AdminClient
from holdfast.model.errors import ConfigError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

CONNECT_S = 5.0
PROFILE = "holdfast.profile"
REQUEST_TIMEOUT = "holdfast.request_timeout"
"""Of a click context's ``meta``."""


class UsageError(click.UsageError):
    """A wrong combination of options; Kafka's tools end with 1."""

    exit_code = 1


def cluster_option(command: F) -> F:
    """``-b``, ``--bootstrap-server``: parameter ``bootstrap``; ``--command-config``, and ``--profile``."""
    return cluster_options()(command)


def cluster_options(*files: str, may_lack_user: bool = False) -> Callable[[F], F]:
    """``cluster_option`` of a command whose file has further names at Kafka, as ``--producer.config``, or need not say
    who the user is."""

    def options(command: F) -> F:
        return _bootstrap(config_option(*files, may_lack_user=may_lack_user)(profile_option(command)))

    return options


def _bootstrap(command: F) -> F:
    return click.option(
        "-b", "--bootstrap-server", "bootstrap", default=DEFAULT_BOOTSTRAP, show_default=True, show_envvar=True,
        envvar=BOOTSTRAP_VARIABLE, metavar="HOST:PORT,...", callback=_of_profile, help="Brokers to ask first.",
    )(command)  # fmt: skip


def config_option(*more: str, may_lack_user: bool = False) -> Callable[[F], F]:
    """``--command-config`` alone; ``more``: further names of it."""

    def read(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
        _config_read(ctx, path, may_lack_user)

    return click.option(
        OPTION, *more, "config_file", metavar="FILE", envvar=VARIABLE, show_envvar=True, is_eager=True,
        expose_value=False, callback=read,
        help="Properties of a Kafka client: its security.protocol, ssl.*, sasl.* and bootstrap.servers count.",
    )  # fmt: skip


def _config_read(ctx: click.Context, path: str | None, may_lack_user: bool) -> None:
    if path is None and not ctx.resilient_parsing:
        path = chosen_profile(ctx).command_config
    if path is None:
        return
    try:
        ctx.meta[CHOSEN] = read_command_config(path, may_lack_user=may_lack_user)
    except ConfigError as e:
        raise click.UsageError(f"{OPTION} {e}", ctx) from None


def profile_option(command: F) -> F:
    """``--profile`` alone."""
    return click.option(
        "--profile", metavar="NAME", envvar=PROFILE_VARIABLE, show_envvar=True, is_eager=True, expose_value=False,
        callback=_chosen, help="The profile of the configuration file that says so.",
    )(command)  # fmt: skip


def bootstrap_option(command: F) -> F:
    """``cluster_option`` for commands that ask and are answered: with ``--request-timeout`` for ``with_cluster``."""
    command = click.option(
        "--request-timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", show_envvar=True,
        envvar="HOLDFAST_REQUEST_TIMEOUT", expose_value=False, callback=_timeout_of_profile,
        help="How long brokers may take to answer.  [default: 30, where a command says nothing else]",
    )(command)  # fmt: skip
    return cluster_option(command)


def _chosen(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    ctx.meta[PROFILE] = name
    if name is not None and not ctx.resilient_parsing:
        chosen_profile(ctx)


def _of_profile(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if ctx.get_parameter_source("bootstrap") is not click.core.ParameterSource.DEFAULT:
        return value
    return command_config().bootstrap or chosen_profile(ctx).bootstrap or value


def _timeout_of_profile(ctx: click.Context, param: click.Parameter, value: float | None) -> None:
    if value is None and not ctx.resilient_parsing:
        value = chosen_profile(ctx).request_timeout_s
    ctx.meta[REQUEST_TIMEOUT] = value


def chosen_profile(ctx: click.Context) -> Profile:
    """What the profile of this command says."""
    try:
        return load_profile(ctx.meta.get(PROFILE), os.environ)
    except ProfileError as e:
        raise click.UsageError(str(e), ctx) from e


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


def request_timeout_s(otherwise_s: float = 30.0) -> float:
    """What --request-timeout, its variable or the profile says, in the command that runs."""
    ctx = click.get_current_context(silent=True)
    chosen: float | None = None if ctx is None else ctx.meta.get(REQUEST_TIMEOUT)
    return otherwise_s if chosen is None else chosen


def with_cluster(bootstrap: str, work: Callable[[AdminClient], Awaitable[T]], *, timeout_s: float = 30.0) -> T:
    """Runs ``work`` with a connected client in an event loop of its own. ``timeout_s``: unless the user has said."""
    limit_s = request_timeout_s(timeout_s)
    security = command_security()

    async def run() -> T:
        async with AdminClient(
            bootstrap,
            client_id="holdfast-cli",
            timeout_s=limit_s,
            connect_timeout_s=min(CONNECT_S, limit_s),
            security=security,
        ) as client:
            return await work(client)

    return asyncio.run(run())


def confirmed(question: str, what: Sequence[str], *, yes: bool) -> None:
    """Asks a person; ends the command when the answer is no, or when nobody is there to ask."""
    if yes:
        return
    listing = ", ".join(what)
    if not sys.stdin.isatty():
        raise UsageError(f"{question} {listing}: --yes says so without being asked")
    if not click.confirm(f"{question} {listing}?", err=True):
        raise click.ClickException("nothing was done, as the answer was no")
