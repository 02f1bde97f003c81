"""What ``rolling-restart`` and ``metadata export|import`` refuse before they ask anybody: a line and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main


def refused(*args: str) -> tuple[int, str]:
    """Exit code and the one line."""
    result = CliRunner().invoke(main, args, prog_name="holdfast")
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.stdout, len(result.stderr.splitlines())) == ("", 1), result.output
    return result.exit_code, result.stderr.rstrip("\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "expected either --data-dir of `holdfast up`, or --command"),
        (["--data-dir", "x", "--command", "{broker}"], "expected either --data-dir of `holdfast up`, or --command"),
        (["--command", "systemctl"], "--command 'systemctl': expected {broker} in it, for the id of the broker"),
        (["--timeout", "0"], "Invalid value for '--timeout'"),
    ],
)
def test_a_rolling_restart_that_cannot_be_meant(given: list[str], said: str) -> None:
    code, line = refused("rolling-restart", *given)
    assert code == 2
    assert line.startswith(f"holdfast rolling-restart: {said}")


def test_a_directory_without_a_cluster(tmp_path: Path) -> None:
    told = f"{tmp_path}/up.lock: No such file or directory: expected the data directory of a cluster"
    assert refused("rolling-restart", "--data-dir", str(tmp_path)) == (1, f"holdfast rolling-restart: {told}")
    (tmp_path / "up.lock").write_text("1\n")
    told = f"no cluster runs in {tmp_path}"
    assert refused("rolling-restart", "--data-dir", str(tmp_path)) == (1, f"holdfast rolling-restart: {told}")


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["import", "x", "--data-dir", "new"], 1, "x: expected a file of `holdfast metadata export`"),
        (["import", "no-text", "--data-dir", "new"], 1, "no-text: invalid start byte at byte 0: expected a file of"),
        (["import", "gone", "--data-dir", "new"], 1, "gone: No such file or directory"),
        (["import", "x"], 1, "x: expected a file of"),
        (["export", "out"], 2, "give --data-dir DIR of `holdfast up`, or --config FILE for each broker"),
        (["export", "out", "--data-dir", "gone"], 1, "gone: No such file or directory"),
    ],
)
def test_files_and_places_of_metadata(
    given: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("{}")
    (tmp_path / "no-text").write_bytes(b"\xff")
    monkeypatch.chdir(tmp_path)
    ended, line = refused("metadata", *given)
    assert ended == code
    assert line.startswith(f"holdfast metadata: {said}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["no-text", "x"]
