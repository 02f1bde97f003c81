"""What becomes of a command whose standard output cannot be written: one line, and an exit code.

A reader that has gone has what it wanted: the command ends there, with 0 unless it had failed before. A full disk, or
anything else, is one line on standard error and exit code 1. Never a trace, and nothing that Python says by itself when
it ends.
"""

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator

FAILED = 1
PRINTING = ("click", "rich")
OF_WRITING = frozenset((errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


@contextlib.contextmanager
def told_of_output(command: str) -> Iterator[None]:
    """Around a whole command; ``command`` is what the line begins with. Ends the process where output was lost."""
    ended: SystemExit | None = None
    try:
        try:
            yield
        except OSError:
            raise
        except SystemExit as e:
            if isinstance(e.__context__, BrokenPipeError):  # rich ends with 1 where nobody reads any more
                raise SystemExit(0) from e
            ended = e
        except BaseException:  # it is told by who catches it; that what was printed is lost, too, adds nothing
            try:
                flush()
            except OSError:
                silence()
            raise
        flush()
    except OSError as e:
        if e.filename is not None or e.errno not in OF_WRITING:
            raise
        if isinstance(e, BrokenPipeError) and not nobody_reads():
            raise
        silence()
        code = 0 if ended is None else ended.code
        if not isinstance(e, BrokenPipeError):
            say(command, e, "standard output: " if is_of_printing(e) else "")
            code = code or FAILED
        raise SystemExit(code) from e
    if ended is not None:
        raise ended


def flush() -> None:
    if sys.stdout is not None:  # closed by the shell
        sys.stdout.flush()


def is_of_printing(error: OSError) -> bool:
    """Whether it was raised where something is printed. The stream itself cannot be asked: it forgets what it could not
    write, and an error of any file that is written looks the same."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in PRINTING or (
        trace.tb_frame.f_code is flush.__code__
    )


def nobody_reads() -> bool:
    """Whether the other end of standard output is closed."""
    try:
        output = select.poll()
        output.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0))
    except (io.UnsupportedOperation, AttributeError):  # a stream of a test, or none
        return True


def say(command: str, problem: OSError, where: str = "standard output: ") -> None:
    with contextlib.suppress(OSError):
        print(f"{command}: {where}{problem.strerror}", file=sys.stderr)


def silence() -> None:
    """What is left in buffers goes nowhere, so that the interpreter does not fail at it when it ends."""
    with contextlib.suppress(io.UnsupportedOperation, AttributeError):  # a stream of a test, or none
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
