"""Which Python Spark starts for its workers: the ``python3`` of the PATH, if nobody says another one.

In a virtualenv that is not activated that is another Python than the driver's, without Holdfast, and Spark only says
DATA_SOURCE_NOT_FOUND. The JVM takes the name from its environment when it starts, and never again.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import MutableMapping
from typing import Final

VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def use_this_python(environ: MutableMapping[str, str] = os.environ) -> None:
    """Before there is a session: workers are this Python, if it is a virtualenv's and nobody has said another one.
    After that: a warning that says what to set, if they are another one."""
    if sys.prefix == sys.base_prefix:
        return
    started = _python_of_jvm()
    if started is None:
        if not any(environ.get(name) for name in VARIABLES):
            environ[VARIABLES[0]] = sys.executable
        return
    found = shutil.which(started)
    if found is None or os.path.dirname(os.path.abspath(found)) != os.path.dirname(os.path.abspath(sys.executable)):
        warnings.warn(
            f"Spark starts its workers with {started} ({found or 'not on the PATH'}), and this is {sys.executable}: if "
            "Holdfast is not installed there, Spark says DATA_SOURCE_NOT_FOUND. Import pyspark_holdfast before the "
            f"first session is made, or set {VARIABLES[0]}={sys.executable}",
            stacklevel=3,
        )


def _python_of_jvm() -> str | None:
    """The name that this process's JVM has; None if there is none yet."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    jvm = getattr(context, "_jvm", None)
    if jvm is None:
        return None
    said = (jvm.java.lang.System.getenv(name) for name in reversed(VARIABLES))
    return next((str(each) for each in said if each), "python3")
