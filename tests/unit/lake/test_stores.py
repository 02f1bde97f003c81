"""A directory as a store, and the places that are refused."""

import os
from pathlib import Path

import pytest

from holdfast.lake.errors import AlreadyThereError, FileMissingError, StoreError
from holdfast.lake.local_store import LocalStore
from holdfast.lake.stores import prove, store_of


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "new" / "table"))
    with pytest.raises(ValueError, match="half way"), store.creating("data/a") as sink:
        sink.write(b"half")
        assert [entry.path.startswith("data/.a.") for entry in store.list("data")] == [True]
        raise ValueError("half way")
    assert list(store.list("")) == []
    store.create("data/a", b"first")
    with pytest.raises(AlreadyThereError, match="data/a is there already"):
        store.create("data/a", b"second")
    assert store.read("data/a") == b"first" and store.size("data/a") == 5
    assert [(entry.path, entry.size) for entry in store.list("data")] == [("data/a", 5)]
    store.remove("data/a")
    store.remove("data/a")
    with pytest.raises(FileMissingError, match="data/a is not there"):
        store.read("data/a")


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StoreError, match=f"{tmp_path} has no hard links .Operation not permitted."):
        prove(LocalStore(str(tmp_path)))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_place_that_replaces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", os.replace)
    with pytest.raises(StoreError, match="does not refuse to make a file that is there"):
        prove(LocalStore(str(tmp_path)))


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("hdfs://name:8020/lake", "HDFS is untried"),
        ("memory://lake", "expected a directory, file:// or s3://, not memory://"),
        ("gs://bucket/lake", "not gs://"),
        ("s3://", "names no bucket"),
    ],
)
def test_places_that_nobody_tried_are_refused_by_name(location: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        store_of(location)


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    assert store_of(f"file://{tmp_path}").location == store_of(str(tmp_path)).location == str(tmp_path)
