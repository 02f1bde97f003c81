"""``holdfast brokers ids``: which broker id belongs to which host, looked at and changed (KIP-426).

Owns the options and the lines. A running cluster is asked by --bootstrap-server; with --config, a broker's properties
file, the mapping is reached as that broker reaches it, also while no broker runs.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import click

from holdfast.cli.connecting import UsageError, bootstrap_option
from holdfast.cli.failing import Failed, OneLineGroup, asked
from holdfast.client.admin import AdminClient
from holdfast.client.broker_ids import HostView, forget_host, list_hosts, set_host
from holdfast.metadata.broker_ids import BrokerIdMapping
from holdfast.model.errors import HoldfastError

T = TypeVar("T")


@click.group(cls=OneLineGroup)
def brokers() -> None:
    """What belongs to brokers rather than to the cluster."""


@brokers.group(cls=OneLineGroup)
def ids() -> None:
    """Which broker id belongs to which host: what a broker without node.id goes by when it has lost its disks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One host. ``state``: of the broker of that id; None: nobody was asked who could tell."""

    host: str
    broker_id: int
    state: str | None


def state_of(view: HostView) -> str:
    """In one word or two."""
    if view.is_alive:
        return "alive"
    if view.is_awaited:
        return "awaited"
    return "not alive" if view.is_registered else "not registered"


def lines(found: list[Line]) -> Iterator[str]:
    """A table, in the order given."""
    if not found:
        yield "No host has a broker id."
        return
    width = max(len("HOST"), *(len(line.host) for line in found))
    yield f"{'HOST':<{width}}  {'BROKER':>10}  STATE"
    for line in found:
        yield f"{line.host:<{width}}  {line.broker_id:>10}  {line.state or '-'}"


def as_json(found: list[Line], sequence: int | None) -> str:
    """``sequence``: the number of the last new id, None where it is not known."""
    hosts = [{"host": line.host, "broker.id": line.broker_id, "state": line.state} for line in found]
    return json.dumps({"version": 1, "sequence": sequence, "hosts": hosts})


def _where(command: Callable[..., None]) -> Callable[..., None]:
    """``--bootstrap-server`` and ``--config``, of which one is given."""
    command = click.option(
        "--config", type=click.Path(dir_okay=False), help="A broker's properties file, instead of a running broker."
    )(command)
    return bootstrap_option(command)


def _by_brokers(bootstrap: str, config: str | None, work: Callable[[AdminClient], Awaitable[T]]) -> T | None:
    """What a running cluster answers; None: the mapping itself is to be asked."""
    if config is None:
        return asked(bootstrap, work)
    source = click.get_current_context().get_parameter_source("bootstrap")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise UsageError("--bootstrap-server asks brokers, --config the store: expected one of them")
    return None


def _by_store(path: str, work: Callable[[BrokerIdMapping], T]) -> T:
    from holdfast.broker.platform import Platform
    from holdfast.coordination.stores import open_broker_ids
    from holdfast.model.config import BrokerConfig, read_properties

    try:
        with open(path, encoding="utf-8") as file:
            config = BrokerConfig.parse(read_properties(file.read()))
        opened = open_broker_ids(config, Platform.real())
        try:
            opened.open(may_be_new=False)
            return work(opened.mapping)
        finally:
            opened.close()
    except OSError as e:
        raise Failed(f"{e.filename or path}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise Failed(f"{path} is no text: {e}") from e
    except HoldfastError as e:
        raise Failed(f"{path}: {e}") from e


@ids.command(name="list")
@_where
@click.option("--json", "wants_json", is_flag=True, help="One line of JSON.")
def list_ids(bootstrap: str, config: str | None, wants_json: bool) -> None:
    """Show which host has which broker id, and how that broker is."""
    view = _by_brokers(bootstrap, config, list_hosts)
    if view is not None:
        found = [Line(host=each.host, broker_id=each.broker_id, state=state_of(each)) for each in view.hosts]
    else:
        assert config is not None
        hosts = _by_store(config, lambda mapping: dict(mapping.hosts()))
        found = [Line(host=host, broker_id=hosts[host].broker_id, state=None) for host in sorted(hosts)]
    if wants_json:
        click.echo(as_json(found, None if view is None else view.sequence))
        return
    for line in lines(found):
        click.echo(line)


@ids.command(name="set")
@click.argument("host")
@click.argument("broker_id", type=click.IntRange(0, 2**31 - 1))
@_where
def set_id(host: str, broker_id: int, bootstrap: str, config: str | None) -> None:
    """Have HOST have BROKER_ID: the next broker that starts there without an id and with empty disks takes it."""
    if _by_brokers(bootstrap, config, lambda client: set_host(client, host, broker_id)) is None:
        assert config is not None
        _by_store(config, lambda mapping: mapping.put(host, broker_id))
    click.echo(f"Host {host} has broker id {broker_id}.")


@ids.command()
@click.argument("host")
@_where
def forget(host: str, bootstrap: str, config: str | None) -> None:
    """Forget which broker id HOST has."""
    if _by_brokers(bootstrap, config, lambda client: forget_host(client, host)) is None:
        assert config is not None
        if not _by_store(config, lambda mapping: mapping.forget(host)):
            raise Failed(f"{config}: host {host} has no broker id")
    click.echo(f"Host {host} has no broker id any more.")
