"""``holdfast up``: a cluster on this machine, in the foreground.

Owns the options and what they mean together; cli/layout.py has the directory, cli/local_cluster.py the processes.
"""

import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.layout import LayoutError, Options, plan, properties_paths, write
from holdfast.cli.lean import lean_imports
from holdfast.cli.up_address import port_is_ours
from holdfast.cli.up_ports import MAX_PORT
from holdfast.cli.up_secure import CONSOLE_FILE
from holdfast.cli.up_secure import FOLDER as SECURE_FOLDER
from holdfast.cli.up_store import FOLDER, ChosenStore, ChosenStoreError, checked
from holdfast.model.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.cli.layout import BrokerLayout
    from holdfast.cli.local_zookeeper import LocalZooKeeper
    from holdfast.cli.up_login import Login

MAX_BROKERS = 100
MAX_LOG_DIRS = 64


def parse_store(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """embedded, zookeeper, or an ensemble."""
    try:
        return None if value is None else checked(value)
    except ChosenStoreError as e:
        raise click.BadParameter(str(e), ctx, param) from None


def parse_settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE, each."""
    settings = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r}: expected KEY=VALUE, like log.retention.ms=60000", ctx, param)
        settings[key.strip()] = text.strip()
    return settings


@click.command()
@click.option("--brokers", type=click.IntRange(1, MAX_BROKERS), help="Number of brokers.  [default: 3]")
@click.option("--log-dirs", type=click.IntRange(1, MAX_LOG_DIRS), help="Log directories each.  [default: 2]")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Where everything is kept. Without it: a temporary directory, removed at the end.",
)
@click.option(
    "--port",
    type=click.IntRange(1, MAX_PORT),
    help="Broker 1 listens on it, broker 2 on the next; they reach each other on --port + 200.  [default: 9092]",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="By which clients elsewhere reach the brokers: an address of this machine, or its name.  [default: 127.0.0.1]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, MAX_PORT),
    help="Broker 1 serves metrics for Prometheus on it, broker 2 on the next; 0: none.  [default: --port + 100, or "
    "others that are free]",
)
@click.option(
    "--metadata-dir",
    "metadata_dirs",
    type=click.Path(file_okay=False),
    multiple=True,
    help="A directory on another disk for the second copy of the metadata; repeatable.  [default: DIR/metadata-2]",
)
@click.option(
    "--console-port",
    type=click.IntRange(1, MAX_PORT),
    help="The web console listens on it, at 127.0.0.1.  [default: a free one]",
)
@click.option(
    "--no-console", is_flag=True, envvar="HOLDFAST_NO_CONSOLE", show_envvar=True, help="Start no web console."
)
@click.option(
    "--store",
    metavar="embedded|zookeeper|HOST:PORT[,..][/CHROOT]",
    callback=parse_store,
    help="Where the metadata is: in DIR, in a ZooKeeper server that is started beside the brokers (needs Java and "
    "holdfast[spark]), or in an ensemble that runs.  [default: embedded]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_settings,
    help="One more broker setting; repeatable.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Leave it running in the background once it is ready; `holdfast down` stops it. What it says goes to "
    "DIR/up.log.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Everybody logs in: certificates, users and rights are made in DIR, and what clients need is in "
    "DIR/client.properties and DIR/librdkafka.properties. A cluster that was secured once stays it. Needs "
    "holdfast[secure].",
)
@click.option("--force", is_flag=True, help="Start although no log directory holds anything any more.")
def up(
    brokers: int | None,
    log_dirs: int | None,
    data_dir: str | None,
    port: int | None,
    host: str | None,
    metrics_port: int | None,
    metadata_dirs: tuple[str, ...],
    console_port: int | None,
    no_console: bool,
    store: str | None,
    settings: dict[str, str],
    detach: bool,
    secure: bool,
    force: bool,
) -> None:
    """Run a local cluster in the foreground.

    Prints one line on standard output when it takes writes: `ready: bootstrap.servers=HOST:PORT,... console=URL`.
    Ctrl-C stops it cleanly, and with --data-dir it comes back with all its data. A broker that dies stays down and the
    others go on; SIGUSR1 starts what is down. Each node's log is DIR/broker-N.log.
    """
    with lean_imports():
        from holdfast.cli.local_cluster import StartError, say

    if data_dir is not None and not data_dir.strip():
        raise click.UsageError(f"--data-dir {data_dir!r}: expected a path; is a variable not set?")
    if no_console and console_port is not None:
        raise click.UsageError(f"--console-port {console_port}: expected it without --no-console")
    if detach:
        _detach(data_dir)
        return
    # Until the cluster watches signals itself; so that a temporary directory is removed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    temporary = data_dir is None
    directory = tempfile.mkdtemp(prefix="holdfast-") if data_dir is None else os.path.abspath(data_dir)
    if temporary:
        say(f"data in {directory}, removed at the end (--data-dir keeps it)")
    try:
        options = Options(
            brokers=brokers,
            log_dirs=log_dirs,
            port=port,
            settings=settings,
            metrics_port=metrics_port,
            force=force,
            host=host,
            store=store,
            metadata_dirs=metadata_dirs,
            secure=secure,
        )
        code = _run(directory, options, console=None if no_console else (console_port,))
    except (LayoutError, StartError) as e:
        say(str(e))
        code = 1
    except OSError as e:
        say(f"{e.filename or directory}: {e.strerror or e}")
        code = 1
    finally:
        if temporary:
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(code)


def _detach(data_dir: str | None) -> None:
    """The same command once more, in the background."""
    from holdfast.cli.detached import DetachedError, start

    if data_dir is None:
        raise click.UsageError("--detach: expected a --data-dir, by which `holdfast down` finds the cluster")
    try:
        line = start(Path(data_dir).absolute(), [each for each in sys.argv[2:] if each != "--detach"])
    except DetachedError as e:
        click.echo(f"holdfast up: {e}", err=True)
        sys.exit(1)
    click.echo(line)


def _run(directory: str, options: Options, *, console: tuple[int | None] | None) -> int:
    """``console``: (its port, or None for a free one), or None for no console."""
    with lean_imports():
        from holdfast.broker.log_lines import level_asked_for
        from holdfast.broker.process import run_broker
        from holdfast.cli.broker_command import raise_open_files_limit
        from holdfast.cli.local_cluster import LocalCluster, StartError, lock_directory, say
        from holdfast.cli.up_console import ConsoleUnavailableError, LocalConsole

    try:
        level_asked_for()
    except ConfigError as e:  # each broker would end with it
        raise LayoutError(str(e)) from None
    os.makedirs(directory, exist_ok=True)
    lock_directory(directory)
    was_killed = bool(properties_paths(directory))  # maybe: then its ports are kept for a moment
    nodes, warnings = plan(directory, options, partial(port_is_ours, wait=was_killed))
    zookeeper = local_zookeeper(directory, nodes[0].store)
    for line in (*warnings, *write(directory, nodes)):
        say(line)
    way_in = os.path.join(directory, SECURE_FOLDER, CONSOLE_FILE) if nodes[0].is_secured else None
    page = None if console is None else LocalConsole(directory, *console, command_config=way_in)
    try:
        if page is not None:
            page.listen()
    except ConsoleUnavailableError as e:
        raise StartError(str(e)) from e
    login = _login(directory, nodes)
    raise_open_files_limit()
    return LocalCluster(directory, nodes, partial(run_broker, keep_log_dirs=True), zookeeper, page, login).run()


def _login(directory: str, nodes: "list[BrokerLayout]") -> "Login | None":
    """None where nobody logs in. StartError."""
    if not nodes[0].is_secured:
        return None
    from holdfast.cli.local_cluster import StartError, say
    from holdfast.cli.up_login import Login, SecureStartError

    login = Login(directory, nodes)
    try:
        for line in login.prepare():
            say(line)
    except SecureStartError as e:
        raise StartError(str(e)) from e
    return login


def local_zookeeper(directory: str, store: ChosenStore) -> "LocalZooKeeper | None":
    """The server beside the brokers, ready to be started; None where there is none. StartError without Java."""
    if store.port is None:
        return None
    from holdfast.cli.local_cluster import StartError
    from holdfast.cli.local_zookeeper import LocalZooKeeper
    from holdfast.java.runtime import JavaNotFoundError
    from holdfast.java.zookeeper import ZooKeeperUnavailableError

    server = LocalZooKeeper(Path(directory) / FOLDER, store.port)
    try:
        server.prepare()
    except (JavaNotFoundError, ZooKeeperUnavailableError) as e:
        raise StartError(f"--store {store}: {e}") from e
    return server
