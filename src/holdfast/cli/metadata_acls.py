"""``holdfast metadata secure-znodes``: the ACLs of znodes that are there, as zookeeper-security-migration.sh sets them.

Owns the options and the lines. What is set on which nodes is coordination/zookeeper_acls.py.
"""

from __future__ import annotations

import json
import sys
from typing import Final

import click

from holdfast.cli.failing import Failed, OneLineCommand
from holdfast.cli.metadata_files import CONNECT_OPTION, in_one_line
from holdfast.cli.metadata_moves import settings_of
from holdfast.cli.metadata_place import place_of, place_options
from holdfast.coordination import zookeeper_acls
from holdfast.coordination.stores import ensemble_clients
from holdfast.coordination.zookeeper_acls import Changed
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.metadata import znode_paths

SECURE: Final = "secure"
UNSECURE: Final = "unsecure"


@click.command(name="secure-znodes", cls=OneLineCommand)
@place_options
@CONNECT_OPTION
@click.option(
    "--acl", "wanted", type=click.Choice([SECURE, UNSECURE]), required=True,
    help="secure: nobody but the brokers changes what is there, or reads what is secret. unsecure: anybody does.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Say what was done as one JSON document.")
def secure_znodes(
    data_dir: str | None, configs: tuple[str, ...], connect: str | None, wanted: str, as_json: bool
) -> None:
    """Give all znodes of a cluster the ACLs that zookeeper.set.acl gives to new ones.

    Works beside running brokers, and may be run again. FILE of --config is that of a broker, with the credentials that
    all of them have: for `secure` with zookeeper.set.acl=true, for `unsecure` without.
    """
    with in_one_line():
        settings = settings_of(place_of(data_dir, configs), connect)
    _refuse_other(settings, wanted)
    where = settings.servers + settings.chroot
    changed = _change(settings, where)
    if as_json:
        click.echo(json.dumps({"version": 1, "acl": wanted, "nodes": changed.nodes, "were_anybodys": changed.anybodys}))
    elif wanted == SECURE:
        click.echo(f"Secured {changed.nodes} nodes of {where}: anybody could change {changed.anybodys} of them before.")
    else:
        click.echo(f"Anybody who reaches {where} may change its {changed.nodes} nodes.")


def _refuse_other(settings: ZooKeeperSettings, wanted: str) -> None:
    """What brokers make next would be otherwise again."""
    if wanted == SECURE and not settings.set_acl:
        raise Failed(
            "zookeeper.set.acl=false: expected true, in the files of all brokers and before this: what they make next "
            "would be anybody's again"
        )
    if wanted == UNSECURE and settings.set_acl:
        raise Failed(
            "zookeeper.set.acl=true: expected false, in the files of all brokers and before this: what they make next "
            "would be theirs alone again"
        )


def _change(settings: ZooKeeperSettings, where: str) -> Changed:
    client = ensemble_clients(settings)()
    client.start(settings.connection_timeout_ms / 1000)
    try:
        client.sync()
        if client.get(znode_paths.CLUSTER_ID) is None:
            raise Failed(f"{where} has no {znode_paths.CLUSTER_ID}: expected the chroot of a cluster")
        return zookeeper_acls.change(client, _progress)
    finally:
        client.close()


def _progress(done: int) -> None:
    """On a terminal, as a large tree takes a while."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} nodes", err=True, nl=False)
