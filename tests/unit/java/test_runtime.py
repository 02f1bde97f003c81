"""Java is asked for, never assumed: JAVA_HOME, then PATH, then the package."""

import subprocess
from pathlib import Path

import pytest

from holdfast.java import runtime as module
from holdfast.java.runtime import JavaNotFoundError, find_java, java_version, packaged_java


def runtime(home: Path, version: str | None, *, speaks: str = "") -> Path:
    """A folder that looks like a Java installation."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{speaks or 'exit 1'}\n")
    executable.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    first, second = runtime(tmp_path / "a", "17.0.2"), runtime(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version, found.from_package) == (first, 17, False)
    assert find_java({"PATH": str(second / "bin")}).version == 21


def test_an_old_or_broken_runtime_is_passed_over(tmp_path: Path) -> None:
    old, new = runtime(tmp_path / "old", "1.8.0_392"), runtime(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(new / "bin")}).home == new
    assert java_version(old / "bin" / "java") == 8


def test_a_runtime_without_release_file_is_asked(tmp_path: Path) -> None:
    home = runtime(tmp_path / "x", None, speaks="""echo 'openjdk version "19.0.1" 2022' >&2""")
    assert java_version(home / "bin" / "java") == 19
    assert java_version(runtime(tmp_path / "y", None) / "bin" / "java") is None
    assert java_version(tmp_path / "nothing") is None


def test_without_java_the_package_serves_and_takes_what_spark_passes(tmp_path: Path) -> None:
    found = packaged_java(tmp_path)
    assert found.from_package and found.version >= 17
    command = [found.executable, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in done.stderr and "incubator" not in done.stderr
    assert packaged_java(tmp_path) == found  # made once
    assert find_java({"PATH": str(tmp_path)}).from_package


def test_no_java_at_all_is_said_with_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = runtime(tmp_path / "old", "11.0.2")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer .*is Java 11.*holdfast\[java\]"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
