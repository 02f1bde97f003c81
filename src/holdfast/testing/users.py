"""Running Python as a user who cannot read where this Python lies.

Root ignores permissions, so a test of a directory that refuses needs a broker of somebody else. The interpreter and
the packages of a developer or of a build machine are often in a home directory that nobody else may enter: those are
bound (mount --bind) to places below a scratch directory, where anybody can read them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.testing.mounts import require, run

NOBODY = 65534


class Reachable:
    """Paths as ``user`` can reach them. Bound places lie below ``scratch`` and go when that is unmounted."""

    def __init__(self, user: int, scratch: Path) -> None:
        self.user = user
        self._scratch = scratch
        self._bound: dict[Path, Path] = {}

    def path(self, wanted: Path) -> Path:
        """``wanted`` itself, or the place that it was bound to."""
        wanted = wanted.resolve()
        if not can_enter(self.user, wanted):
            root = next((p for p in self._bound if wanted.is_relative_to(p)), None)
            if root is None:
                root = wanted
                self._bind(root)
            return self._bound[root] / wanted.relative_to(root)
        return wanted

    def _bind(self, root: Path) -> None:
        what = f"run as user {self.user}"
        require(what, commands=("mount",))
        place = self._scratch / "reach" / str(len(self._bound))
        place.mkdir(parents=True)
        run(what, "mount", "--bind", root, place)
        self._bound[root] = place

    def python(self) -> tuple[str, dict[str, str]]:
        """An interpreter like this one and the environment in which it imports what this one does."""
        base = self.path(Path(sys.base_prefix))
        interpreter = self.path(Path(sys.executable))
        entries = [str(self.path(Path(entry))) for entry in sys.path if entry and os.path.isdir(entry)]
        more = {"PYTHONPATH": os.pathsep.join(entries), "HOME": "/"}
        if self._bound:  # libpython of a shared build is looked for where it was installed, which nobody can read
            libraries = [str(base / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            more["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        return str(interpreter), {**os.environ, **more}


def can_enter(user: int, path: Path) -> bool:
    """Whether a process of that user, without any group, reaches the path and reads it."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os._exit(0 if os.access(path, os.R_OK) else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
