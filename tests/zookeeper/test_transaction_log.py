"""The reader of ZooKeeper's transaction log, beside what a client did and what ZooKeeper's own reader says."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.zookeeper_client import BadVersionError, Check, Create, Delete, NoNodeError, Operation, Put
from holdfast.java.runtime import find_java
from holdfast.java.zookeeper import class_path, jars
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.server import ZooKeeperServer
from tests.zookeeper.transaction_log import Op, below, read

pytestmark = pytest.mark.system


def own_reader(log: Path) -> list[tuple[int, int]]:
    """(session, zxid) of each transaction, as ZooKeeper's reader prints them."""
    shown = subprocess.run(
        [os.fspath(find_java().executable), "-cp", class_path(jars()),
         "org.apache.zookeeper.server.persistence.TxnLogToolkit", "-d", str(log)],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    found = re.findall(r"session (0x[0-9a-f]+) cxid 0x[0-9a-f]+ zxid (0x[0-9a-f]+)", shown)
    return [(int(session, 16), int(zxid, 16)) for session, zxid in found]


def refused(client: KazooZooKeeper, error: type[Exception], operations: Sequence[Operation]) -> None:
    with pytest.raises(error):
        client.write(operations).result(15)


def test_each_kind_of_write_is_read_back_in_order(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "server") as server:
        nodes = ClusterNodes(server, "/there")
        client = nodes.reader
        client.write([Create(path="/a", data=b"x")]).result(15)
        client.write([Create(path="/a/e_", ephemeral=True, sequence=True), Put(path="/a", data=b"y")]).result(15)
        client.write([Check(path="/a", version=1), Put(path="/a", data="ü".encode())]).result(15)
        refused(client, BadVersionError, [Create(path="/b"), Check(path="/a", version=1), Delete(path="/a")])
        refused(client, NoNodeError, [Check(path="/a", version=2), Delete(path="/none")])
        client.write([Delete(path="/a/e_0000000000")]).result(15)
        session = client.session_id
        while_it_runs = below("/there", read(server.folder / "data"))
        nodes.close()
        transactions = below("/there", read(server.folder / "data"))
        assert transactions[:-1] == while_it_runs
        [log] = (server.folder / "data" / "version-2").glob("log.*")
        raw = read(server.folder / "data")
    assert [(t.session, t.zxid) for t in raw] == [(s if s < 1 << 63 else s - (1 << 64), z) for s, z in own_reader(log)]
    mine = [t for t in transactions if t.session == session]
    assert (mine[0].kind, mine[-1].kind) == ("createSession", "closeSession")
    made = [t for t in mine[1:-1] if [op.path for op in t.ops] != [""]]  # the chroot
    assert [t.ops for t in made] == [
        (Op(op="create", path="/a", data=b"x"),),
        (Op(op="create", path="/a/e_0000000000", ephemeral=True), Op(op="setData", path="/a", data=b"y", version=1)),
        (Op(op="check", path="/a", version=1), Op(op="setData", path="/a", data="ü".encode(), version=2)),
        made[3].ops,
        made[4].ops,
        (Op(op="delete", path="/a/e_0000000000"),),
    ]
    assert [t.failed for t in made] == [False, False, False, True, True, False]
    assert [op.code for op in made[4].ops if op.op == "error"][:1] == [-101]
    data, end = log.read_bytes(), log.read_bytes().index("ü".encode()) + 1
    for cut in (data[:end], data[:end] + bytes(len(data) - end)):  # killed in the middle of a write
        log.write_bytes(cut)
        assert below("/there", read(server.folder / "data"))[-1].ops == made[1].ops
