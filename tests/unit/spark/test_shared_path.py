"""The probe of a shared location, without Spark."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.lake.stores import store_of
from holdfast.spark.shared_path import PathNotSharedError, answered, judge, offered, withdraw


def files_of(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


def test_who_sees_the_file_is_seen_in_turn_and_nothing_is_left(tmp_path: Path) -> None:
    store = store_of(str(tmp_path))
    probe = offered(store)
    answers = [answered(probe), answered(probe)]
    assert [each.wrong for each in answers] == [None, None]
    assert len(files_of(tmp_path)) == 3
    judge(store, probe, answers)
    withdraw(store, probe, answers)
    assert files_of(tmp_path) == []


def test_a_folder_that_only_has_the_same_name_is_refused_by_host(tmp_path: Path) -> None:
    store = store_of(str(tmp_path / "driver"))
    probe = offered(store)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    answer = answered(replace(probe, location=str(elsewhere)))
    assert files_of(elsewhere) == [], "nothing is written where the driver's file is not"
    with pytest.raises(PathNotSharedError, match=rf"is not shared: host {socket.gethostname()} .*is not there"):
        judge(store, probe, [answer])


def test_another_content_under_the_name_is_refused(tmp_path: Path) -> None:
    store = store_of(str(tmp_path))
    probe = offered(store)
    with pytest.raises(PathNotSharedError, match="has another content there"):
        judge(store, probe, [answered(replace(probe, token="another"))])


def test_an_executor_that_reads_and_writes_elsewhere_is_refused(tmp_path: Path) -> None:
    """A copy of the driver's folder: the token is there, and what is written does not come back."""
    store, copy = store_of(str(tmp_path / "driver")), store_of(str(tmp_path / "copy"))
    probe = offered(store)
    copy.create(probe.name, probe.token.encode())
    answer = answered(replace(probe, location=str(tmp_path / "copy")))
    assert answer.wrong is None
    with pytest.raises(PathNotSharedError, match="what was written there is not seen by the driver"):
        judge(store, probe, [answer])
