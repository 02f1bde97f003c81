"""Where numba keeps compiled kernels, settled before numba is imported.

By default that is beside the source, which workers often cannot write: then each session would compile again, or
fail. A directory of the user's own under the temporary directory serves instead.
"""

import os
import stat
import sys
import tempfile
from pathlib import Path

import holdfast.records


def settle_cache() -> None:
    """Sets NUMBA_CACHE_DIR unless it is set, numba is loaded already, or the package's own place can be written."""
    if "NUMBA_CACHE_DIR" in os.environ or "numba" in sys.modules:
        return
    kernels = Path(holdfast.records.__file__).parent / "kernels"
    if os.access(kernels, os.W_OK):
        return
    place = Path(tempfile.gettempdir()) / f"holdfast-numba-{os.getuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return  # no cache then: the kernels compile in each process
    # The name can be guessed, and code is loaded from there: only a directory that is ours alone will do.
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        os.environ["NUMBA_CACHE_DIR"] = str(place)
