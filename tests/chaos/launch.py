"""``python -m tests.chaos.launch ARGS...``: ``holdfast ARGS`` in a process that ends with the one that started it.

With SIGKILL, stopped or not: a run that is itself killed leaves nothing behind.
"""

import ctypes
import signal

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    from holdfast.cli.main import main

    main(prog_name="holdfast")
