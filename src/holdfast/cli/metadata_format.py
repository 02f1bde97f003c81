"""``holdfast metadata format``: an empty cluster whose id was chosen, as kafka-storage format makes one.

Owns the options and the lines. Without it the first broker that starts makes the id.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from uuid import uuid4

import click

from holdfast.cli.failing import Failed, OneLineCommand
from holdfast.cli.metadata_files import (
    CONNECT_OPTION,
    STORE_OPTION,
    import_target,
    in_one_line,
    refuse_replicas,
    surveyed,
)
from holdfast.cli.metadata_moves import Progress
from holdfast.cli.metadata_place import place_options
from holdfast.coordination import importing
from holdfast.metadata.image import ClusterImage
from holdfast.storage.partition_metadata import decode_uuid, encode_uuid

SOURCE = "of `holdfast metadata format`"


def _cluster_id(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """An id as Kafka writes one."""
    if text is None:
        return None
    try:
        if encode_uuid(decode_uuid(text)) == text:
            return text
    except ValueError:
        pass
    example = encode_uuid(uuid4())
    raise click.UsageError(f"--cluster-id {text!r}: expected 22 characters of base64 for URLs, like {example}", ctx)


@click.command(name="format", cls=OneLineCommand)
@place_options
@STORE_OPTION
@CONNECT_OPTION
@click.option("--cluster-id", callback=_cluster_id, metavar="ID", help="The id of the cluster.  [default: a new one]")
@click.option("--json", "as_json", is_flag=True, help="Say what was made as one JSON document.")
def format_command(
    data_dir: str | None,
    configs: tuple[str, ...],
    store: str | None,
    connect: str | None,
    cluster_id: str | None,
    as_json: bool,
) -> None:
    """Make an empty store for a cluster with an id of your choice. All brokers must be stopped.

    Nothing has to be formatted: the first broker that starts makes a cluster with an id of its own. Log directories
    need none, and may have no replica. DIR of --data-dir may be one that `holdfast up` has not used yet.
    """
    with ExitStack() as open_now, in_one_line():
        target = open_now.enter_context(import_target(data_dir, configs, store, connect))
        refuse_replicas(target)
        standing = target.side.standing()
        found = [surveyed(broker, path) for broker, paths in target.log_dirs.items() for path in paths]
        there = {each.cluster_id: each.path for each in found if each.cluster_id is not None}
        wanted = cluster_id or standing.cluster_id or next(iter(there), None) or encode_uuid(uuid4())
        for other, path in there.items():
            if other != wanted:
                raise Failed(f"{path} is of cluster {other}: expected one of cluster {wanted}, or an empty one")
        importing.refuse_used(standing, wanted, target.side.name)
        importing.bring(target.side, ClusterImage.empty(wanted), SOURCE, 1, encode_uuid(uuid4()), Progress())
    if as_json:
        click.echo(json.dumps({"version": 1, "cluster_id": wanted, "store": target.side.name}))
    else:
        click.echo(f"Formatted {target.side.name} for cluster {wanted}.")
