"""A data directory that was moved or copied, and brokers whose directories hold nothing any more."""

import pathlib
import shutil

import pytest

from holdfast.cli.layout import BrokerLayout, LayoutError, Options, plan, write
from holdfast.cli.relocation import PATH_KEYS, taken_over
from holdfast.model.config import read_properties
from holdfast.model.config_key import ConfigType
from holdfast.model.config_keys import KEYS

NOT_REWRITTEN = {
    "ssl.keystore.location": "there is no TLS here: a broker neither reads nor writes what it names",
    "ssl.truststore.location": "the same",
    "zookeeper.ssl.keystore.location": "what it names is the machine's, not the cluster's",
    "zookeeper.ssl.truststore.location": "the same",
    "broker.id.host.key": "it says what a host is called; a path is none of its values",
}
"""Keys whose values are paths and that stay as they are in a copy, with the reason."""


def options(brokers: int | None = None, *, force: bool = False) -> Options:
    return Options(brokers=brokers, log_dirs=None, port=None, settings={}, force=force)


def made(data_dir: pathlib.Path, chosen: Options | None = None) -> tuple[list[BrokerLayout], list[str]]:
    data_dir.mkdir(exist_ok=True)
    nodes, warnings = plan(str(data_dir), chosen or options(2))
    return nodes, warnings + write(str(data_dir), nodes)


def used(data_dir: pathlib.Path) -> None:
    """As brokers leave it: formatted directories, decisions in the metadata."""
    for path in data_dir.glob("broker-*/log-dir-*"):
        (path / "meta.properties").write_text("version=1\n")
    (data_dir / "metadata/__cluster_metadata-0").mkdir(parents=True, exist_ok=True)
    (data_dir / "metadata/__cluster_metadata-0/00000000000000000000.log").write_bytes(b"a claim")


def log_dirs(data_dir: pathlib.Path, broker: int = 1) -> list[str]:
    return read_properties((data_dir / f"broker-{broker}.properties").read_text())["log.dirs"].split(",")


def append_log_dir(data_dir: pathlib.Path, path: pathlib.Path) -> None:
    """To broker 1."""
    file = data_dir / "broker-1.properties"
    lines = [f"{x},{path}" if x.startswith("log.dirs=") else x for x in file.read_text().splitlines()]
    file.write_text("\n".join(lines) + "\n")


def test_A1_a_copy_has_its_own_directories(tmp_path: pathlib.Path) -> None:
    orig, copy = tmp_path / "orig", tmp_path / "copy"
    made(orig)
    used(orig)
    shutil.copytree(orig, copy)
    nodes, warnings = made(copy)
    assert warnings == [f"{copy} was {orig} at its last start: using the log directories in {copy}"]
    assert [d for n in nodes for d in n.log_dirs if not d.startswith(f"{copy}/")] == []
    assert log_dirs(copy, 2) == [f"{copy}/broker-2/log-dir-1", f"{copy}/broker-2/log-dir-2"]
    assert made(orig)[1] == []
    assert log_dirs(orig, 2) == [f"{orig}/broker-2/log-dir-1", f"{orig}/broker-2/log-dir-2"]


def test_A1_a_copy_that_would_share_a_directory_outside_is_refused(tmp_path: pathlib.Path) -> None:
    orig, copy, disk = tmp_path / "orig", tmp_path / "copy", tmp_path / "disk"
    disk.mkdir()
    made(orig)
    append_log_dir(orig, disk)
    made(orig)
    used(orig)
    shutil.copytree(orig, copy)
    with pytest.raises(LayoutError, match=f"{copy} is a copy of {orig}, and {disk} of its broker 1"):
        made(copy)
    shutil.rmtree(orig)
    assert log_dirs(copy)[-1] == str(disk)
    made(copy)
    assert log_dirs(copy) == [f"{copy}/broker-1/log-dir-1", f"{copy}/broker-1/log-dir-2", str(disk)]


def test_A1_a_copied_link_to_a_disk_of_the_original_is_refused(tmp_path: pathlib.Path) -> None:
    orig, copy, disk = tmp_path / "orig", tmp_path / "copy", tmp_path / "disk"
    disk.mkdir()
    (orig / "broker-1").mkdir(parents=True)
    (orig / "broker-1/log-dir-2").symlink_to(disk)
    made(orig)
    used(orig)
    shutil.copytree(orig, copy, symlinks=True)
    with pytest.raises(LayoutError, match="two clusters would write to it"):
        made(copy)


def test_A1_a_copy_writes_no_notes_into_witness_directories_of_the_original() -> None:
    kept = {"metadata.log.dirs": "/a/orig/m1,/a/orig/m2", "metadata.witness.dirs": "/a/orig/w1,/mnt/w2"}
    assert taken_over(kept, "/b")["metadata.witness.dirs"] == "/b/w1,/mnt/w2"


def test_A1_a_copy_that_would_share_a_witness_directory_is_refused(tmp_path: pathlib.Path) -> None:
    orig, copy, disk = tmp_path / "orig", tmp_path / "copy", tmp_path / "disk"
    disk.mkdir()
    made(orig)
    with (orig / "broker-1.properties").open("a") as file:
        file.write(f"metadata.witness.dirs={disk}\n")
    made(orig)
    used(orig)
    shutil.copytree(orig, copy)
    with pytest.raises(LayoutError, match=f"{copy} is a copy of {orig}, and {disk} of its broker 1"):
        made(copy)


def test_A1_every_key_that_holds_paths_is_rewritten_in_a_copy() -> None:
    text = [key for key in KEYS.values() if key.type in (ConfigType.STRING, ConfigType.LIST) and not key.choices]
    words = {"dir", "dirs", "path", "paths", "file", "files", "location"}
    named = {key.name for key in text if words & set(key.name.split(".")) or "director" in key.doc}
    assert named - set(PATH_KEYS) == set(NOT_REWRITTEN)
    assert set(PATH_KEYS) <= named


def test_A2_one_that_was_moved_and_moved_back_keeps_its_directories(tmp_path: pathlib.Path) -> None:
    orig, moved, disk = tmp_path / "orig", tmp_path / "moved", tmp_path / "disk"
    disk.mkdir()
    made(orig)
    append_log_dir(orig, disk)
    made(orig)
    used(orig)
    orig.rename(moved)
    made(moved)
    assert log_dirs(moved) == [f"{moved}/broker-1/log-dir-1", f"{moved}/broker-1/log-dir-2", str(disk)]
    assert not orig.exists()
    moved.rename(orig)
    assert made(orig)[1] == [f"{orig} was {moved} at its last start: using the log directories in {orig}"]
    assert log_dirs(orig) == [f"{orig}/broker-1/log-dir-1", f"{orig}/broker-1/log-dir-2", str(disk)]


def test_A2_another_name_of_the_same_directory_is_no_move(tmp_path: pathlib.Path) -> None:
    orig, link = tmp_path / "orig", tmp_path / "link"
    made(orig)
    used(orig)
    link.symlink_to(orig)
    assert made(link)[1] == []
    assert log_dirs(orig) == [f"{link}/broker-1/log-dir-1", f"{link}/broker-1/log-dir-2"]
    assert made(orig)[1] == []


def test_A2_a_directory_whose_name_only_begins_alike_is_not_below_the_old_home() -> None:
    kept = {"metadata.log.dir": "/a/orig/metadata", "log.dirs": "/a/orig/d1,/a/orig-2/d1,/a/orig"}
    assert taken_over(kept, "/b")["log.dirs"] == "/b/d1,/a/orig-2/d1,/a/orig"


def test_A2_a_cluster_whose_brokers_have_all_lost_everything_is_refused(tmp_path: pathlib.Path) -> None:
    orig = tmp_path / "orig"
    made(orig)
    used(orig)
    for broker in (1, 2):
        shutil.rmtree(orig / f"broker-{broker}")
    with pytest.raises(LayoutError, match=rf"no log directory of its brokers holds anything: {orig}/broker-1/log-dir"):
        made(orig)
    assert not (orig / "broker-1").exists()
    assert len(made(orig, options(force=True))[1]) == 2


def test_A2_one_broker_that_has_lost_everything_is_told(tmp_path: pathlib.Path) -> None:
    orig = tmp_path / "orig"
    made(orig)
    used(orig)
    (orig / "broker-2/log-dir-1/meta.properties").unlink()
    assert made(orig)[1] == []
    shutil.rmtree(orig / "broker-2/log-dir-2")
    warnings = made(orig)[1]
    assert len(warnings) == 1
    assert warnings[0].startswith("broker 2: none of its log directories holds anything")


def test_A2_a_first_start_that_was_cut_short_is_no_loss(tmp_path: pathlib.Path) -> None:
    made(tmp_path / "orig")
    assert made(tmp_path / "orig")[1] == []
