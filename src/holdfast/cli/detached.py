"""``holdfast up --detach`` and ``holdfast down``: a cluster that goes on when the terminal is closed.

Owns how the process in the background is started, waited for and found again: by the lock on its data directory, in
which its process id stands. What it says goes to DIR/up.log.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.cli.local_cluster import LOCK_FILE, STOP_TIMEOUT_S

LOG_FILE = "up.log"
STEP_S = 0.02
PATIENCE_S = STOP_TIMEOUT_S + 5.0
"""For `up` to stop its brokers, which kills them itself when they take too long."""
TOLD_BYTES = 4000


class DetachedError(Exception):
    """It cannot be started or stopped; the message says why."""


def start(data_dir: Path, options: Sequence[str]) -> str:
    """Run ``holdfast up`` with these options in the background; its ``ready:`` line. DetachedError with what it wrote,
    if it ends before that."""
    data_dir.mkdir(parents=True, exist_ok=True)
    path = data_dir / LOG_FILE
    with open(path, "ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "up", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
    except BaseException:  # Ctrl-C: nobody would know of it
        process.terminate()
        process.wait()
        raise
    if line:
        return line.rstrip("\n")
    code = process.wait()
    with open(path, "rb") as log:
        log.seek(max(begin, log.seek(0, os.SEEK_END) - TOLD_BYTES))
        said = log.read().decode(errors="replace").rstrip()
    raise DetachedError(f"the cluster ended with exit code {code}; {path} has:\n{said}")


def stop(data_dir: Path, patience_s: float = PATIENCE_S) -> None:
    """End the cluster of a data directory and wait until it has. DetachedError when there is none, or it goes on."""
    path = data_dir / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        raise DetachedError(f"{path}: {e.strerror}: expected the data directory of a cluster") from None
    try:
        if _is_free(fd):
            raise DetachedError(f"no cluster runs in {data_dir}")
        pid = _holder(fd, path)
        if pid is None:
            raise DetachedError(f"{path} is locked, and not by the process it names: brokers of an earlier run end")
        os.kill(pid, signal.SIGTERM)
        limit_s = time.monotonic() + patience_s
        while not _is_free(fd):
            if time.monotonic() > limit_s:
                raise DetachedError(f"the cluster in {data_dir} (process {pid}) still runs after {patience_s:g} s")
            time.sleep(STEP_S)
    finally:
        os.close(fd)


def running_up(data_dir: Path) -> int:
    """The process of the ``up`` that runs there. DetachedError when there is none."""
    path = data_dir / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        raise DetachedError(f"{path}: {e.strerror}: expected the data directory of a cluster") from None
    try:
        pid = None if _is_free(fd) else _holder(fd, path)
    finally:
        os.close(fd)
    if pid is None:
        raise DetachedError(f"no cluster runs in {data_dir}")
    return pid


def _is_free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def _holder(fd: int, path: Path) -> int | None:
    """The ``up`` that the lock names; None if no process of that number has the file open: it may be anybody's."""
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    if not text.isdecimal():
        return None
    try:
        opened = [os.stat(f"/proc/{text}/fd/{name}") for name in os.listdir(f"/proc/{text}/fd")]
    except OSError:
        return None
    return int(text) if any(os.path.samestat(each, os.fstat(fd)) for each in opened) else None


@click.command()
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), required=True, help="Of `holdfast up --detach`."
)
def down(data_dir: Path) -> None:
    """Stop a cluster cleanly, wherever its `up` runs.

    Ends when all its brokers have ended; `holdfast up --data-dir DIR` starts them again with all their data.
    """
    try:
        stop(data_dir.absolute())
    except DetachedError as e:
        click.echo(f"holdfast down: {e}", err=True)
        sys.exit(1)
    click.echo(f"Stopped the cluster in {data_dir}.")
