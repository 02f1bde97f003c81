"""What a rolling restart remembers: the file, and who may have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.failing import Failed
from holdfast.cli.restart_state import StateFile, begun, parsed
from holdfast.client.restart_rules import BadDirectory

BAD = frozenset({BadDirectory(broker=3, log_dir="/d 2", state="offline")})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    with StateFile(path) as state:
        assert state.read() is None
        progress = begun("c", [1, 2, 3], BAD)
        progress.done.add(1)
        progress.restarting = 2
        state.write(progress)
        assert state.read() == progress == parsed(path.read_text())
        progress.restarting = None
        state.write(progress)  # a shorter one
    with StateFile(path) as state:
        assert state.read() == progress
        state.remove()
    assert not path.exists()


def test_a_run_that_did_nothing_leaves_nothing(tmp_path: Path) -> None:
    with StateFile(tmp_path / "s"):
        assert (tmp_path / "s").exists()
    assert list(tmp_path.iterdir()) == []


def test_two_runs_cannot_have_it(tmp_path: Path) -> None:
    with StateFile(tmp_path / "s") as first:
        first.write(begun("c", [1], frozenset()))
        with (
            pytest.raises(Failed, match="s is in use: another rolling restart of this cluster runs"),
            StateFile(tmp_path / "s"),
        ):
            pass
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"version": 2}', '{"version": 1, "cluster_id": "c"}', "null"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    with StateFile(tmp_path / "s") as state, pytest.raises(Failed, match=r"/s: .*: --anew begins without it"):
        state.read()
    assert (tmp_path / "s").read_text() == text
