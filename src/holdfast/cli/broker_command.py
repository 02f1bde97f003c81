"""``holdfast broker FILE.properties``: one node in this process, until SIGTERM or Ctrl-C.

Owns only the command line; broker/process.py runs the node.
"""

import sys

import click

from holdfast.cli.failing import OneLineCommand
from holdfast.cli.lean import lean_imports


@click.command(cls=OneLineCommand)
@click.argument("properties", type=click.Path(exists=True, dir_okay=False, readable=True))
def broker(properties: str) -> None:
    """Run one node with Kafka's configuration keys from the file PROPERTIES.

    Also brings back a killed node of `holdfast up`: its file is DIR/broker-N.properties. Log lines go to standard
    error, or to log.file, from the level that HOLDFAST_LOG_LEVEL names on (INFO without it). Exit code 0 after a clean
    stop, 1 when the node cannot start or all its disks are lost.
    """
    from holdfast.broker.closer import Closer

    closer = Closer.start()  # it keeps the memory that this process has now, which is little
    with lean_imports():
        from holdfast.broker.process import run_broker

    raise_open_files_limit()
    sys.exit(run_broker(properties, closer=closer))


def raise_open_files_limit() -> None:
    """As many open files as the system allows: a broker holds several for each segment and one per client."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS tells "unlimited" and takes less
            return
