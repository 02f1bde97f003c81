"""``holdfast cluster``: the cluster as a whole, as kafka-cluster.sh does it."""

import click

from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.log_dirs import run
from holdfast.client.cordons import unregister_broker


@click.group()
def cluster() -> None:
    """The cluster as a whole."""


@cluster.command()
@bootstrap_option
@click.option("--id", "broker_id", type=int, required=True, metavar="ID", help="The broker, which was stopped.")
def unregister(bootstrap: str, broker_id: int) -> None:
    """Have the cluster forget a broker that was stopped and holds nothing any more."""
    run(bootstrap, lambda client: unregister_broker(client, broker_id))
    click.echo(f"Broker {broker_id} is no longer registered.")
