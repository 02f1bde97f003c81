"""log.dirs of a properties file, changed where it stands."""

import pathlib

from holdfast.broker.properties_file import with_log_dirs, write_log_dirs
from holdfast.model.config import read_properties


def test_A3_only_log_dirs_changes() -> None:
    text = "# mine\nnode.id=1\nlog.dirs=/a,\\\n  /b\n\nlog.dirs = /older\nbroker.rack: r\\\\1\n"
    changed = with_log_dirs(text, ["/a", "/b", "/c\\d"])
    assert changed == "# mine\nnode.id=1\nlog.dirs=/a,/b,/c\\\\d\n\nbroker.rack: r\\\\1\n"
    assert read_properties(changed)["log.dirs"] == "/a,/b,/c\\d"


def test_A3_a_file_without_log_dirs_gets_them(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "b.properties"
    path.write_text("node.id=1\nlog.dir=/a\n")
    write_log_dirs(str(path), ["/a", "/b"])
    assert read_properties(path.read_text()) == {"node.id": "1", "log.dir": "/a", "log.dirs": "/a,/b"}
