"""PySpark from where pip has put it, and not from the zip that is part of it.

Spark puts ``pyspark/python/lib/pyspark.zip`` first on the path of every Python process that it starts. Python keeps no
bytecode of what it imports from a zip, so each of them compiles PySpark anew: most of the time that it takes to start.
Python reads ``holdfast-pyspark.pth`` when it starts, and comes here where such a zip is on its path.

Such a process imports some hundred thousand objects first and throws none away, so it looks for garbage less often: a
seventh of the time until a query's source is ready.

What this module imports is imported by each of them while a query waits: nothing that Python has not loaded anyway.
"""

from __future__ import annotations

import gc
import os
import sys

from holdfast.spark.fork_client import be_a_fork

TYPE_CHECKING = False  # that of typing takes 3 ms to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""More than are made than are freed; Python takes 700."""


def without_zips(path: Sequence[str]) -> list[str]:
    """The path without the zips of a PySpark that can also be imported from one of its directories, symbolic links
    followed, as Spark does. Another one's zip, such as that of Spark's own distribution, stays: it may be another
    version."""
    directories = {os.path.realpath(each) for each in path if each and not each.endswith(".zip")}
    return [each for each in path if not _is_there_unpacked(each, directories)]


def _is_there_unpacked(entry: str, directories: set[str]) -> bool:
    folder, name = os.path.split(os.path.realpath(entry))
    site = folder.removesuffix("/pyspark/python/lib")
    if site == folder or site not in directories:
        return False
    if name == "pyspark.zip":
        return os.path.exists(os.path.join(site, "pyspark/__init__.py"))
    version = name.removeprefix("py4j-").removesuffix("-src.zip")
    return name == f"py4j-{version}-src.zip" and os.path.exists(os.path.join(site, f"py4j-{version}.dist-info"))


def leave_zips() -> None:
    """Once, when Python starts and has imported nothing of PySpark; does not return where a fork is what Spark gets."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    sys.path[:] = without_zips(sys.path)
    be_a_fork()
