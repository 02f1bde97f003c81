"""A data directory that was copied writes nothing into the original, whichever of its brokers start (A1)."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.metadata import metadata
from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.metadata.store import Candidate
from holdfast.model.errors import KafkaStorageError
from holdfast.testing import wait_for
from tests.contracts.test_metadata_copies import feature

BROKERS = (1, 2, 3)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def log_dirs(home: Path, broker_id: int) -> tuple[str, ...]:
    return tuple(str(home / f"broker-{broker_id}/log-dir-{n}") for n in (1, 2))


def store_of(home: Path, broker_id: int, *, relative: bool = False) -> EmbeddedStore:
    """``relative``: as metadata.log.dirs of a broker that was started in its data directory."""
    paths = [name if relative else str(home / name) for name in ("metadata", "metadata-2")]
    return EmbeddedStore(
        paths, patience_s=0.5, witness=Witness(broker_id=broker_id, directories=log_dirs(home, broker_id))
    )


def reign(store: EmbeddedStore, broker_id: int, name: str) -> int:
    store.cluster_id()
    claim = store.claim(Candidate(broker_id=broker_id, host="h", port=1))
    store.commit(feature(name), claim.epoch)
    store.tend(claim.epoch)
    return claim.epoch


def made(home: Path, *, relative: bool = False) -> None:
    """A cluster of three brokers, each with two log directories, of which each has reigned."""
    for broker_id in BROKERS:
        for path in log_dirs(home, broker_id):
            Path(path).mkdir(parents=True)
            Path(path, "meta.properties").touch()
        (home / f"broker-{broker_id}.properties").write_text(
            f"node.id={broker_id}\nlisteners=PLAINTEXT://127.0.0.1:{9000 + broker_id}\n"
            f"log.dirs={','.join(log_dirs(home, broker_id))}\n"
            f"metadata.log.dirs={home}/metadata,{home}/metadata-2\n"
        )
    for broker_id in (*BROKERS, 1):
        store = store_of(home, broker_id, relative=relative)
        reign(store, broker_id, f"by-{broker_id}")
        store.close()
    noted = [
        path for broker_id in BROKERS for path in log_dirs(home, broker_id) if os.listdir(f"{path}/metadata-reigns")
    ]
    assert len(noted) == 6


def everything(home: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and directory below, with its inode, the time of its last change, and its bytes."""
    found = {}
    for path in (home, *home.rglob("*")):
        state = path.stat()
        found[str(path)] = state.st_ino, state.st_mtime_ns, path.read_bytes() if path.is_file() else b""
    return found


@pytest.mark.parametrize("how", ["", "relative", "before 0.2", "moved on"])
def test_A1_a_copy_of_which_one_broker_starts_writes_nothing_into_the_original(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orig, copy = tmp_path / "orig", tmp_path / "copy"
    orig.mkdir()
    relative = how == "relative"
    monkeypatch.chdir(orig)
    made(orig, relative=relative)
    if how == "before 0.2":  # the registrations had no place
        for path in orig.glob("metadata*/metadata-witnesses/*.json"):
            path.write_text(json.dumps({"dirs": json.loads(path.read_text())["dirs"]}))
    shutil.copytree(orig, copy)
    if how == "moved on":  # its notes are newer than those of the copy
        store = store_of(orig, 2)
        reign(store, 2, "later")
        store.close()
    before = everything(orig)
    monkeypatch.chdir(copy)
    for n in range(2):  # the second time its own notes are of this place
        store = store_of(copy, 1, relative=relative)
        epoch = reign(store, 1, f"in-the-copy-{n}")
        shutil.rmtree(copy / "metadata-2")
        store.commit(feature(f"left-out-{n}"), epoch)
        assert [each.is_good for each in store.copies()] == [True, False]

        def whole(store: EmbeddedStore = store, epoch: int = epoch) -> bool:
            store.tend(epoch)
            return all(each.is_good for each in store.copies())

        wait_for(whole, "that the copy is filled again")
        store.close()
    assert everything(orig) == before
    noted = [path for broker_id in BROKERS for path in log_dirs(copy, broker_id) if path in _voters(copy)]
    assert noted == list(log_dirs(copy, 1))
    store = store_of(copy, 2, relative=relative)
    reign(store, 2, "by-the-other")
    store.close()
    assert everything(orig) == before
    assert {*log_dirs(copy, 1), *log_dirs(copy, 2)} <= _voters(copy)


def _voters(home: Path) -> set[str]:
    newest = max((home / "metadata/metadata-reigns").iterdir())
    return {path for path, _ in json.loads(newest.read_text())["voters"]}


def test_A1_a_cluster_that_stays_knows_the_witnesses_of_brokers_that_are_down(tmp_path: Path) -> None:
    """Also those that a version before 0.2 registered."""
    orig = tmp_path / "orig"
    orig.mkdir()
    made(orig)
    (old,) = orig.glob("metadata/metadata-witnesses/broker-3.json")
    for path in orig.glob("metadata*/metadata-witnesses/broker-3.json"):
        path.write_text(json.dumps({"dirs": json.loads(old.read_text())["dirs"]}))
    store = store_of(orig, 1)
    epoch = reign(store, 1, "again")
    store.close()
    for broker_id in BROKERS:
        for log_dir in log_dirs(orig, broker_id):
            assert os.listdir(f"{log_dir}/metadata-reigns") == [f"{epoch:010d}.json"]


def test_A1_a_copy_that_lost_a_directory_is_refused_and_asks_nobody_of_the_original(tmp_path: Path) -> None:
    orig, copy = tmp_path / "orig", tmp_path / "copy"
    orig.mkdir()
    made(orig)
    shutil.copytree(orig, copy)
    shutil.rmtree(copy / "metadata-2")
    before = everything(orig)
    store = store_of(copy, 1)
    with pytest.raises(KafkaStorageError, match="may hold newer decisions"):
        reign(store, 1, "never")
    store.close()
    assert everything(orig) == before


@pytest.mark.parametrize("command", ["check", "force", "recover", "confirm"])
def test_A1_the_commands_of_metadata_work_on_the_copy_alone(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", ended)
    orig, copy = tmp_path / "orig", tmp_path / "copy"
    orig.mkdir()
    made(orig)
    store = store_of(orig, 1)
    cluster_id = store.cluster_id()
    store.close()
    for broker_id in BROKERS:
        for path in log_dirs(orig, broker_id):
            Path(path, "meta.properties").write_text(f"cluster.id={cluster_id}\n")
            Path(path, "holdfast.recovered").touch()
    shutil.copytree(orig, copy)
    before, copied = everything(orig), everything(copy)
    args = {"force": ["force", str(copy / "metadata")], "recover": ["recover", "--execute", "--force"]}
    done = CliRunner().invoke(metadata, [*args.get(command, [command]), "--data-dir", str(copy)])
    assert done.exit_code == 0, done.output
    if command == "check":  # the note that was copied names its places
        assert f"{copy}/metadata: good" in done.output
    else:
        assert str(orig) not in done.output
    assert everything(orig) == before
    assert (everything(copy) == copied) is (command == "check")
