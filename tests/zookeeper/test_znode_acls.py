"""Nodes that were made before zookeeper.set.acl: who may change them, that a broker says so, and what mends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from holdfast.cli.metadata import metadata
from holdfast.coordination import zookeeper_acls
from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.model.config import BrokerConfig
from holdfast.testing import wait_for
from tests.zookeeper.brokers import Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.server import ZooKeeperServer

pytestmark = pytest.mark.system

NUMBERS = count(1)
DIGEST = {"zookeeper.auth.digest": "holdfast:hush"}
SECURED = {**DIGEST, "zookeeper.set.acl": "true"}
ANYBODY = {("world", "anyone", 31)}
EVIL = b'{"version":1,"acls":[{"principal":"User:mallory","permissionType":"Allow","operation":"All","host":"*"}]}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


@contextmanager
def stranger_of(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.connect, timeout=10)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def acls(client: KazooClient, root: str) -> dict[str, set[tuple[str, str, int]]]:
    """All nodes below it that this client may look at, by their path below it."""
    found: dict[str, set[tuple[str, str, int]]] = {}

    def walk(path: str) -> None:
        try:
            entries = client.get_acls(root + path)[0]
        except NoAuthError:
            found[path or "/"] = set()
            return
        except NoNodeError:
            return  # of a session that has ended just now
        found[path or "/"] = {(each.id.scheme, each.id.id, each.perms) for each in entries}
        for name in client.get_children(root + path):
            walk(f"{path}/{name}")

    walk("")
    return found


def secure_znodes(properties: Path, acl: str, *more: str) -> Result:
    return CliRunner().invoke(metadata, ["secure-znodes", "--config", str(properties), "--acl", acl, *more])


def written(path: Path, values: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def test_nodes_from_before_are_told_and_secured_and_opened_again(server: ZooKeeperServer, tmp_path: Path) -> None:
    nodes = ClusterNodes(server, f"/acls-{next(NUMBERS)}")
    place: dict[str, Any] = {"node.id": "1", "log.dirs": str(tmp_path / "none"), "metadata.store": "zookeeper"}
    place["zookeeper.connect"] = server.connect + nodes.chroot
    secured = written(tmp_path / "secured.properties", place | SECURED)
    opened = written(tmp_path / "opened.properties", place | DIGEST)
    (tmp_path / "before").mkdir()
    with closing(nodes), stranger_of(server) as stranger:
        with Brokers(tmp_path / "before", nodes, count=1) as brokers:
            brokers.create("t", [[1]])
        assert set(map(frozenset, acls(stranger, nodes.chroot).values())) == {frozenset(ANYBODY)}

        with Brokers(tmp_path / "before", nodes, count=1, settings=SECURED) as brokers:
            said = wait_for(lambda: told(brokers), "the warning")
            assert zookeeper_acls.COMMAND in said and ": /, /config, /kafka-acl, " in said and " more. They" in said
            before = secure_znodes(secured, "secure", "--json")
            assert before.exit_code == 0, before.output
            done = json.loads(before.stdout)
            assert done["acl"] == "secure" and done["nodes"] >= done["were_anybodys"] > 40

            found = acls(stranger, nodes.chroot)
            assert found.pop("/consumers") == ANYBODY, "as with Kafka"
            secret = {"/config/users", "/config/brokers"}
            for path, entries in found.items():
                kinds = {(scheme, rights) for scheme, _, rights in entries}
                assert kinds == (set() if path in secret else {("digest", 31), ("world", 1)}), path
            assert "/brokers/topics/t/partitions/0/state" in found and "/brokers/ids/1" in found
            for path in ("/kafka-acl/Topic/evil", "/config/users/mallory", "/evil"):
                with pytest.raises(NoAuthError):
                    stranger.create(nodes.chroot + path, EVIL)
            for path in ("/controller", "/controller_epoch"):
                with pytest.raises(NoAuthError):
                    stranger.delete(nodes.chroot + path)
            brokers.create("u", [[1]])  # who made them goes on

            again = secure_znodes(secured, "secure")
            assert again.exit_code == 0 and again.stdout.startswith("Secured "), again.output
            assert again.stdout.endswith(": anybody could change 0 of them before.\n")
            refused = secure_znodes(opened, "secure")
            assert (
                refused.exit_code == 1 and "zookeeper.set.acl=false: expected true, in the files of" in refused.stderr
            )
            refused = secure_znodes(secured, "unsecure")
            assert (
                refused.exit_code == 1 and "zookeeper.set.acl=true: expected false, in the files of" in refused.stderr
            )

        client = KazooZooKeeper(ZooKeeperSettings.of(BrokerConfig.parse(place | SECURED)))
        client.start(30)
        with closing(client):
            looked = zookeeper_acls.look(client)
        assert looked.count > 40 and looked.anybodys == (), "a broker says nothing more"
        other = written(tmp_path / "other.properties", place | SECURED | {"zookeeper.auth.digest": "other:hush"})
        refused = secure_znodes(other, "secure")
        assert refused.exit_code == 1 and "its ACL does not allow it. This client is user other with" in refused.stderr
        opening = secure_znodes(opened, "unsecure")
        assert opening.exit_code == 0, opening.output
        assert set(map(frozenset, acls(stranger, nodes.chroot).values())) == {frozenset(ANYBODY)}


def told(brokers: Brokers) -> str:
    """The line about it, empty before there is one."""
    return "".join(line for line in brokers.new_log(1).splitlines() if "anybody who reaches the ensemble may" in line)


def test_a_chroot_without_a_cluster_is_refused(server: ZooKeeperServer, tmp_path: Path) -> None:
    place = {"node.id": "1", "log.dirs": str(tmp_path / "none"), "metadata.store": "zookeeper", **SECURED}
    place["zookeeper.connect"] = f"{server.connect}/nothing"
    refused = secure_znodes(written(tmp_path / "b.properties", place), "secure")
    assert refused.exit_code == 1
    assert refused.stderr.endswith(f" {server.connect}/nothing has no /cluster/id: expected the chroot of a cluster\n")
