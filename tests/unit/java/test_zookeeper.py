"""The files and the command of a ZooKeeper server, without starting one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.java.runtime import Java
from holdfast.java.zookeeper import (
    EnsembleMember,
    ServerSettings,
    ZooKeeperUnavailableError,
    class_path,
    connect_string,
    jars,
    mode_of,
)

JAVA = Java(home=Path("/java"), version=17, from_package=False)


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_server_by_itself(tmp_path: Path) -> None:
    server = ServerSettings(folder=tmp_path / "zk", host="127.0.0.1", client_port=2999, tick_ms=500)
    server.write()
    written = settings((tmp_path / "zk" / "zoo.cfg").read_text())
    assert written["clientPortAddress"] == "127.0.0.1" and written["clientPort"] == "2999"
    assert written["dataDir"] == str(tmp_path / "zk" / "data") and written["tickTime"] == "500"
    assert (written["minSessionTimeout"], written["maxSessionTimeout"]) == ("1000", "60000")
    assert not [key for key in written if key.startswith(("server.", "autopurge"))]
    assert not (tmp_path / "zk" / "data" / "myid").exists()


def test_a_member_of_an_ensemble(tmp_path: Path) -> None:
    members = tuple(EnsembleMember(number=n, host=f"10.0.0.{n}") for n in (1, 2, 3))
    server = ServerSettings(folder=tmp_path, host="10.0.0.2", members=members, number=2, keeps=1)
    server.write()
    written = settings((tmp_path / "zoo.cfg").read_text())
    assert [written[f"server.{n}"] for n in (1, 2, 3)] == [f"10.0.0.{n}:2888:3888" for n in (1, 2, 3)]
    assert (tmp_path / "data" / "myid").read_text() == "2\n"
    assert written["autopurge.snapRetainCount"] == "3", "ZooKeeper's own least"
    with pytest.raises(ValueError, match=r"ZooKeeper server 4: expected one of the members \[1, 2, 3\]"):
        ServerSettings(folder=tmp_path, host="10.0.0.4", members=members, number=4)
    with pytest.raises(ValueError, match="expected each number once"):
        ServerSettings(folder=tmp_path, host="h", members=(members[0], members[0]), number=1)
    with pytest.raises(ValueError, match="the number of a ZooKeeper server is 256: expected 1 to 255"):
        EnsembleMember(number=256, host="h")


def test_the_command_has_java_the_jars_and_the_settings(tmp_path: Path) -> None:
    command = ServerSettings(folder=tmp_path, host="127.0.0.1").command(JAVA, heap_mb=100)
    assert command[:2] == ["/java/bin/java", "-Xmx100m"]
    assert command[-2:] == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{tmp_path}/zoo.cfg"]
    found = command[command.index("-cp") + 1].split(os.pathsep)
    assert all(Path(jar).is_file() for jar in found) and len(found) < 40, "not all that Spark has"


def test_jars_of_other_names_are_looked_for_everywhere(tmp_path: Path) -> None:
    (tmp_path / "zookeeper-4.0.0.jar").touch()
    assert class_path(tmp_path) == f"{tmp_path}/*"


@pytest.mark.parametrize(("installed", "says"), [(False, "pyspark is not installed"), (True, "there is none in ")])
def test_without_the_jars_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, says: str
) -> None:
    found = SimpleNamespace(origin=str(tmp_path / "pyspark" / "__init__.py")) if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with pytest.raises(ZooKeeperUnavailableError, match=rf"{says}.*pip install 'holdfast\[spark\]'"):
        jars()


def test_what_a_server_says_of_itself() -> None:
    assert mode_of("Zookeeper version: 3.9.5\nReceived: 1\nMode: follower\nNode count: 5\n") == "follower"
    assert mode_of("This ZooKeeper instance is not currently serving requests\n") is None
    assert connect_string([("a", 2181), ("b", 2182)], "/holdfast") == "a:2181,b:2182/holdfast"
