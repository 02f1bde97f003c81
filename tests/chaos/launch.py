"""``python -m tests.chaos.launch ARGS...``: ``holdfast ARGS`` in a process that ends with the one that started it.

With SIGKILL, stopped or not: a run that is itself killed leaves nothing behind. HOLDFAST_CHAOS_PLANTED names a known
bug of tests/simulation/planted.py that the process shall have, to see that the run finds it. With HOLDFAST_CHAOS_HELD
something else ends it: who starts it is a thread that ends at once, of a run whose hosts end with it.
"""

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PLANTED = "HOLDFAST_CHAOS_PLANTED"
HELD = "HOLDFAST_CHAOS_HELD"


def main() -> None:
    """Does not return."""
    if HELD not in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.ExitStack() as bugs:
        if PLANTED in os.environ:
            from tests.simulation import planted

            bugs.enter_context(planted.PLANTED[os.environ[PLANTED]]())
        from holdfast.cli.main import main as holdfast

        holdfast(prog_name="holdfast")


if __name__ == "__main__":
    main()
