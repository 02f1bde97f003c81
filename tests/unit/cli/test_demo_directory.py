"""Where the demo works: it empties what it has made and nothing else."""

from pathlib import Path

import pytest

from holdfast.cli import demo


def test_an_absent_or_empty_directory_is_taken(tmp_path: Path) -> None:
    for place in (tmp_path / "new", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        demo.prepare(str(place))
        assert [path.name for path in place.iterdir()] == [demo.MARK]


def test_what_an_earlier_demo_has_made_is_removed(tmp_path: Path) -> None:
    demo.prepare(str(tmp_path))
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/part").write_text("old")
    demo.prepare(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [demo.MARK]


def test_somebodys_files_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(demo.DemoError, match=r"not made by a demo: name another one with --data-dir"):
        demo.prepare(str(tmp_path))
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
