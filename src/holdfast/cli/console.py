"""``holdfast console``: a web console of a cluster, in the foreground.

Owns the options; the server is holdfast.console's.
"""

import os
import sys
from pathlib import Path

import click

from holdfast.cli.command_config import command_config
from holdfast.cli.connecting import cluster_options
from holdfast.cli.failing import Failed, Misused, OneLineCommand
from holdfast.cli.up_address import HOST, REGISTRY_VARIABLE
from holdfast.client.pool import parse_bootstrap
from holdfast.model.errors import ConfigError

MAX_PORT = 65535


def state_folder() -> Path:
    """Where a console of no data directory keeps its token: by user, as XDG has it."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(home) / "holdfast"


@click.command(cls=OneLineCommand)
@cluster_options(may_lack_user=True)
@click.option("--host", default=HOST, show_default=True, metavar="ADDRESS", help="Where it listens.")
@click.option(
    "--port", type=click.IntRange(0, MAX_PORT), default=0, show_default="a free one", help="On which port it listens."
)
@click.option("--read-only", is_flag=True, help="Nothing can be changed with it; needed for any --host but loopback.")
@click.option(
    "--metrics-only", is_flag=True, help="No pages: /metrics for Prometheus, and /health; any --host may be given."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where its token and its log of acts are.  [default: ~/.local/state/holdfast]",
)
@click.option(
    "--schema-registry",
    "registry",
    default="",
    metavar="URL,...",
    envvar=REGISTRY_VARIABLE,
    show_envvar=True,
    help="Shows values behind a registry's prefix by their schema: Avro, Protobuf, JSON.",
)
def console(
    bootstrap: str,
    host: str,
    port: int,
    read_only: bool,
    metrics_only: bool,
    data_dir: Path | None,
    registry: str,
) -> None:
    """Serve a web console: disks, brokers, topics, records, groups; and acts on them.

    Prints one line on standard output when it listens: `console: http://HOST:PORT/`. Reading needs nothing; acts need
    the token in console.token of the data directory, which only you can read. Where --command-config says that brokers
    ask for a user and a password, one logs in as a user of the cluster, and sees and does what that one may; the file
    need not have sasl.jaas.config then: its user is who answers /metrics. `holdfast up` starts a console by itself.
    Its /metrics tells Prometheus of topics and of the lag of groups.
    """
    from holdfast.cli.lean import lean_imports

    with lean_imports():
        from holdfast.console.server import ConsoleAsked, ConsoleRefused, listening, refuse_open_acts, serve, url_of

    given = click.get_current_context().get_parameter_source("registry")
    if metrics_only and given is click.core.ParameterSource.COMMANDLINE:
        raise Misused("--schema-registry: there are no pages with --metrics-only: expected one of them")
    try:
        parse_bootstrap(bootstrap)
        refuse_open_acts(host, read_only=read_only or metrics_only)
    except (ConfigError, ConsoleRefused) as e:
        raise Misused(str(e)) from e
    folder = (data_dir or state_folder()).absolute()
    servers = tuple(part.strip() for part in bootstrap.split(",") if part.strip())
    try:
        listens = listening(host, port)
        asked = ConsoleAsked(
            bootstrap=servers,
            host=host,
            port=port,
            read_only=read_only,
            data_dir=folder,
            metrics_only=metrics_only,
            registry="" if metrics_only else registry,
            security=command_config().security,
            has_user=command_config().has_user,
        )
        click.echo(f"console: {url_of(listens)}{'metrics' if metrics_only else ''}")
        sys.exit(serve(asked, listens))
    except ConsoleRefused as e:
        raise Failed(str(e)) from e
