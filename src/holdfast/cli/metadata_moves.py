"""``holdfast metadata migrate``, ``dump``, ``tree`` and ``diff``: what is in a store, whether two have the same, and
the move of a stopped cluster from one to the other.

Owns the options and the lines. The steps are coordination/migration.py, the form of a dump metadata/listing.py, that of
a tree metadata/znode_layouts.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import click

from holdfast.cli import layout
from holdfast.cli.connecting import json_option
from holdfast.cli.metadata_place import MetadataPlace, place_of, place_options
from holdfast.coordination import migration
from holdfast.coordination.migration import DifferentError, MigrationStep, Side, Way
from holdfast.coordination.migration_embedded import Directories, EmbeddedSide
from holdfast.coordination.migration_zookeeper import ZooKeeperSide
from holdfast.coordination.stores import ensemble_clients
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.metadata import listing, znode_layouts
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.listing import Listing
from holdfast.model.config import STORE_EMBEDDED, BrokerConfig
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.storage.partition_metadata import encode_uuid

ZOOKEEPER = "zookeeper"
STORES = (ZOOKEEPER, STORE_EMBEDDED)
MAX_SHOWN = 50
"""Differences that are listed after a migration that failed; the rest is counted."""
DIFFERENT = 1


class Trouble(click.ClickException):
    """Two things could not be compared."""

    exit_code = 2


# -- stores ------------------------------------------------------------------------------------------------------------


def _settings(place: MetadataPlace, connect: str | None) -> ZooKeeperSettings:
    """Of the first broker, as the ensemble is the same for all; ``connect`` in its place."""
    path, properties = next(iter(place.properties.items()))
    given = properties if connect is None else {**properties, "zookeeper.connect": connect}
    if not given.get("zookeeper.connect"):
        raise click.UsageError(f"{path} has no zookeeper.connect: give --connect HOST:PORT[,HOST:PORT]...[/CHROOT]")
    return _settings_of(path, given)


def _settings_of(where: str, properties: Mapping[str, str]) -> ZooKeeperSettings:
    try:
        return ZooKeeperSettings.of(BrokerConfig.parse(properties))
    except ConfigError as e:
        raise click.ClickException(f"{where}: {e}") from e


@contextmanager
def _ensemble(settings: ZooKeeperSettings) -> Iterator[ZooKeeperSide]:
    side = ZooKeeperSide(
        ensemble_clients(settings)(), settings.servers + settings.chroot,
        connect_timeout_s=settings.connection_timeout_ms / 1000,
    )  # fmt: skip
    side.start()
    try:
        yield side
    finally:
        side.close()


def _embedded(place: MetadataPlace) -> EmbeddedSide:
    return EmbeddedSide(
        Directories(copies=place.metadata_dirs, witnesses=place.witnesses, log_dirs=tuple(place.all_log_dirs))
    )


def _image(place: MetadataPlace, store: str | None, connect: str | None) -> ClusterImage:
    """Read beside whatever uses it."""
    named = {properties.get("metadata.store") or STORE_EMBEDDED for properties in place.properties.values()}
    if store is None and connect is None and len(named) > 1:
        raise click.UsageError(f"the files name {' and '.join(sorted(named))} as metadata.store: give --store")
    wanted = store or (ZOOKEEPER if connect is not None else named.pop())
    if wanted == STORE_EMBEDDED:
        return _embedded(place).load()
    with _ensemble(_settings(place, connect)) as side:
        return side.load()


# -- dump and diff -----------------------------------------------------------------------------------------------------

_CONNECT = click.option(
    "--connect", metavar="HOST:PORT[,..][/CHROOT]", help="The ZooKeeper ensemble.  [default: that of the properties]"
)


@click.command()
@place_options
@click.option("--store", type=click.Choice(STORES), help="Which store to read.  [default: that of the properties]")
@_CONNECT
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def dump(data_dir: str | None, configs: tuple[str, ...], store: str | None, connect: str | None, as_json: bool) -> None:
    """Print all of the metadata, one thing a line. Works beside a running cluster.

    The lines are the same for the same metadata, in whichever store it is: `holdfast metadata diff` compares two.
    """
    try:
        found = listing.listing(_image(place_of(data_dir, configs), store, connect))
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    click.echo(listing.to_json(found) if as_json else listing.to_text(found), nl=as_json)
    sys.stdout.flush()


@click.command()
@place_options
@click.option("--store", type=click.Choice(STORES), help="Which store to read.  [default: that of the properties]")
@_CONNECT
@click.option("--layout", type=click.Choice([znode_layouts.KAFKA, znode_layouts.DESIGN]), default=znode_layouts.KAFKA,
              show_default=True, help="Kafka 3.9's nodes, or those of Kafka's replication design.")  # fmt: skip
@json_option("One JSON object: data by path.")
def tree(
    data_dir: str | None, configs: tuple[str, ...], store: str | None, connect: str | None, layout: str, as_json: bool
) -> None:
    """Print the metadata as a tree of znodes: a path and its data a line. Works beside a running cluster.

    The embedded store has no znodes: then it is what `holdfast metadata migrate --to zookeeper` would write.
    """
    shown = znode_layouts.kafka if layout == znode_layouts.KAFKA else znode_layouts.design
    try:
        found = shown(_image(place_of(data_dir, configs), store, connect))
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    if as_json:
        click.echo(json.dumps(dict(found), ensure_ascii=False))
        return
    for path, data in found.items():
        click.echo(f"{path} {data}" if data else path)


@click.command()
@click.argument("left")
@click.argument("right")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: what differs, by name.")
def diff(left: str, right: str, as_json: bool) -> None:
    """Compare two dumps or stores and name what differs.

    Each of LEFT and RIGHT is a file of `holdfast metadata dump`, a broker's properties file, a directory of `holdfast
    up`, embedded:DIR[,DIR] or zookeeper:HOST:PORT[,..][/CHROOT]. Exit code 0: equal. 1: different. 2: not compared.
    """
    try:
        found = listing.differences(_operand(left), _operand(right))
    except (OSError, HoldfastError) as e:
        raise Trouble(str(e)) from e
    except click.ClickException as e:
        raise Trouble(e.format_message()) from e
    if as_json:
        click.echo(listing.to_json_difference(found))
    else:
        for each in found:
            for line in listing.difference_lines(each):
                click.echo(line)
        click.echo("equal" if not found else f"{len(found)} things differ: < {left}, > {right}", err=bool(found))
    sys.exit(DIFFERENT if found else 0)


def _operand(text: str) -> Listing:
    kind, colon, rest = text.partition(":")
    if colon and kind == STORE_EMBEDDED:
        paths = tuple(os.path.abspath(path.strip()) for path in rest.split(",") if path.strip())
        missing = [path for path in paths if not os.path.isdir(path)]
        if missing or not paths:
            raise Trouble(f"{text}: expected embedded:DIR[,DIR] of directories that are there")
        return listing.listing(EmbeddedSide(Directories(copies=paths)).load())
    if colon and kind == ZOOKEEPER:
        place = {"node.id": "0", "log.dirs": "/", "metadata.store": ZOOKEEPER, "zookeeper.connect": rest}
        with _ensemble(_settings_of(text, place)) as side:
            return listing.listing(side.load())
    if os.path.isdir(text):
        return listing.listing(_image(place_of(text, ()), None, None))
    try:
        with open(text, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "no text"
        raise Trouble(
            f"{text}: {why}: expected a dump, a properties file, a directory, embedded:... or zookeeper:..."
        ) from e
    if content.startswith((listing.HEADER, "{")):
        return listing.parse(text, content)
    return listing.listing(_image(place_of(None, (text,)), None, None))


# -- migrate -----------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--to", "to", type=click.Choice(STORES), required=True, help="Where the metadata is to be.")
@place_options
@_CONNECT
def migrate(to: str, data_dir: str | None, configs: tuple[str, ...], connect: str | None) -> None:
    """Move the metadata of a stopped cluster to another store.

    Everything is read back and compared before the source is marked as left: from then on no broker uses it. Killed at
    any point it can be run again. With --data-dir the brokers' properties are changed too; else they are printed.
    """
    place = place_of(data_dir, configs)
    settings = _settings(place, connect)
    wanted = _wanted(to, settings)
    _refuse_unusable(place, wanted)
    try:
        with ExitStack() as open_now:
            embedded = _embedded(place)
            open_now.callback(embedded.close)
            embedded.lock()
            ensemble = open_now.enter_context(_ensemble(settings))
            ensemble.refuse_running()
            source, target = _directed(to, embedded, ensemble)
            way, image = migration.migrate(source, target, encode_uuid(uuid4()), _Progress())
    except DifferentError as e:
        for difference in e.differences[:MAX_SHOWN]:
            for line in listing.difference_lines(difference):
                click.echo(line, err=True)
        raise click.ClickException(str(e)) from e
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    for line in _moved_lines(way, image, source.name, target.name):
        click.echo(line)
    _change_properties(place, data_dir, to, wanted)
    for broker_id in sorted(set(image.brokers) - set(place.log_dirs)):
        click.echo(f"NOTE broker {broker_id} is registered, and none of the files is of it: change its properties too")


def _directed(to: str, embedded: Side, ensemble: Side) -> tuple[Side, Side]:
    """The source and the target."""
    return (embedded, ensemble) if to == ZOOKEEPER else (ensemble, embedded)


class _Progress:
    """A line a step on standard error, with a bar on a terminal where the writing may take long."""

    def __init__(self) -> None:
        self._last: MigrationStep | None = None
        self._has_bar = sys.stderr.isatty()

    def __call__(self, step: MigrationStep, done: int, of: int) -> None:
        last, self._last = self._last, step
        if self._has_bar and step is MigrationStep.FILL and of:
            width = 40 * done // of
            click.echo(f"\r{step.value} [{'#' * width}{'-' * (40 - width)}] {done} of {of}", err=True, nl=False)
        elif step is not last:
            ended = "\n" if self._has_bar and last is MigrationStep.FILL else ""
            click.echo(
                ended + ("" if step is MigrationStep.DONE else step.value), err=True, nl=step is not MigrationStep.DONE
            )


def _moved_lines(way: Way, image: ClusterImage, source: str, target: str) -> Iterator[str]:
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    configs = sum(len(values) for values in image.configs.values())
    if way is Way.NOTHING:
        yield f"{source} was left before, and {target} is in use: nothing is to be done."
        return
    yield f"Cluster {image.cluster_id} is in {target}:"
    yield f"    {len(image.brokers)} brokers, {len(image.topics)} topics, {partitions} partitions"
    yield (
        f"    {configs} configurations, producer ids from {image.next_producer_id}, end offset {image.next_offset}, "
        f"last controller epoch {image.controller_epoch}"
    )
    yield f"Read back and compared: equal. No broker can use {source} any more."


def _wanted(to: str, settings: ZooKeeperSettings) -> dict[str, str | None]:
    """What properties have afterwards; None: not the key."""
    connect = settings.servers + settings.chroot
    return {"metadata.store": to, "zookeeper.connect": connect if to == ZOOKEEPER else None}


def _refuse_unusable(place: MetadataPlace, wanted: Mapping[str, str | None]) -> None:
    """Before anything is marked: with the other store each broker could start."""
    for path, properties in place.properties.items():
        after = {**properties, **wanted}
        try:
            BrokerConfig.parse({key: value for key, value in after.items() if value is not None})
        except ConfigError as e:
            raise click.ClickException(f"nothing was moved: {path} would be refused: {e}") from e


def _change_properties(place: MetadataPlace, data_dir: str | None, to: str, wanted: Mapping[str, str | None]) -> None:
    if data_dir is not None:
        try:
            for path in layout.change(os.path.abspath(data_dir), wanted):
                click.echo(f"changed {path}")
        except OSError as e:
            click.echo(f"{e.filename}: {e.strerror}: change it by hand", err=True)
        else:
            if not set(place.properties) - set(layout.properties_paths(os.path.abspath(data_dir))):
                return
    click.echo("Before its broker is started, each properties file must have")
    for key, value in wanted.items():
        click.echo(f"    {key}={value}" if value is not None else f"    and no {key}")
    if to == STORE_EMBEDDED:
        click.echo(f"    metadata.log.dirs={','.join(place.metadata_dirs)}")


image_of, embedded_side, ensemble_side, settings_of = _image, _embedded, _ensemble, _settings
Progress = _Progress
"""What metadata_files.py asks of stores, too."""
