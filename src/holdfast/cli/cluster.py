"""``holdfast cluster``: the cluster as a whole: what it is, whether it is healthy, and a broker it shall forget."""

import sys

import click

from holdfast.cli.columns import terminal_width
from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.failing import FAILED, OneLineGroup, asked
from holdfast.client.admin import AdminClient
from holdfast.client.cordons import unregister_broker

HEALTH_TIMEOUT_S = 10.0
"""A broker that does not answer for so long is one of the problems."""


@click.group(cls=OneLineGroup)
def cluster() -> None:
    """The cluster as a whole."""


@cluster.command()
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def describe(bootstrap: str, as_json: bool) -> None:
    """Show the cluster's id, its controller, and the brokers that are alive.

    PROTOCOL is inter.broker.protocol.version, FEATURES the levels that the broker's software has.
    """
    from holdfast.cli.cluster_lines import cluster_json, cluster_lines
    from holdfast.client.survey import BrokerAbout, Members, about_brokers, members

    async def work(client: AdminClient) -> tuple[Members, tuple[BrokerAbout, ...]]:
        found = await members(client)
        return found, await about_brokers(client, found)

    found, about = asked(bootstrap, work, timeout_s=HEALTH_TIMEOUT_S)
    if as_json:
        click.echo(cluster_json(found, about))
    else:
        click.echo("\n".join(cluster_lines(found, about, terminal_width())))


@cluster.command()
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document, with every partition.")
def health(bootstrap: str, as_json: bool) -> None:
    """Say whether the cluster is healthy, and what is wrong with it.

    Exit code 0: it is healthy, 1: it is not, or nobody answers, 2: wrong usage. Notices do not count.
    """
    from holdfast.cli.cluster_lines import health_json, health_lines
    from holdfast.client.health import judge
    from holdfast.client.survey import survey

    told = asked(bootstrap, survey, timeout_s=HEALTH_TIMEOUT_S)
    judged = judge(told)
    click.echo(health_json(told, judged) if as_json else "\n".join(health_lines(told, judged, terminal_width())))
    if not judged.is_healthy:
        sys.exit(FAILED)


@cluster.command()
@bootstrap_option
@click.option("--id", "broker_id", type=int, required=True, metavar="ID", help="The broker, which was stopped.")
def unregister(bootstrap: str, broker_id: int) -> None:
    """Have the cluster forget a broker that was stopped and holds nothing any more."""
    asked(bootstrap, lambda client: unregister_broker(client, broker_id))
    click.echo(f"Broker {broker_id} is no longer registered.")
