"""The commands of a page, run one block after the other as they stand there: ``python -m tests.system.docs_page PAGE``.

A block is indented by four spaces or fenced, and counts when a line of it begins with a command. It is one script of
bash, all of it. What a page says in comments before a block is for this module, and nobody sees it:

* ``<!-- not-run: why -->``: the block is not run.
* ``<!-- run-by: FILE -->``: it is run by this test, that takes it from the page.
* ``<!-- before: command -->``, also of several lines: run first, so that there is what the block speaks of.
* ``<!-- goes-on -->``: the block does not end; it has begun when it prints ``ready:`` or ``console:``.
* ``<!-- exit: N -->``: how the block ends, if not with 0.
* ``<!-- answers: y y -->``: its standard input is a terminal, where somebody types these lines.

``world()`` runs a page in a network of its own, so that 127.0.0.1:9092 is free and nobody else's; what is left there at
the end is killed. Disks of a page are directories of /srv, which is empty and its own there. Mounts of other tests are
not in that world: a copy of a mount keeps the disk of another test from being repaired.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.testing.namespaces import MountBase

ROOT = Path(__file__).parent.parent.parent
LIMIT_S: Final = 300
_PROGRAMS: Final = (
    r"holdfast /opt/holdfast/bin/\w+ make pip uvx python3? systemctl journalctl useradd install sync tar bash eval"
)
_COMMAND: Final = re.compile(rf"(?:\$ )?(?:{_PROGRAMS.replace(' ', '|')}) |.*\| holdfast ")
_SAID: Final = re.compile(r"holdfast [\w-]+: ")
"""A line that a command has printed."""
_COMMENT: Final = re.compile(r"<!-- (not-run|run-by|before|goes-on|exit|answers)(?:: (.*?))? -->", re.DOTALL)
_OUTSIDE: Final = "HOLDFAST_DOCS_OUTSIDE"
"""The network that the page must not be run in."""
_WORLD: Final = 'ip link set lo up; mount -t tmpfs tmpfs /srv; exec "$@"'


class Block(NamedTuple):
    """``script`` is what stands at line ``line`` of the page."""

    line: int
    script: str
    not_run: str | None = None
    run_by: str | None = None
    before: tuple[str, ...] = ()
    goes_on: bool = False
    exit_code: int = 0
    answers: str = ""

    @property
    def is_for_here(self) -> bool:
        """Whether it is this module that runs it."""
        return self.not_run is None and self.run_by is None


def blocks(page: str) -> Iterator[Block]:
    """Of a page's text, those with commands, in order. Pure."""
    for line, script, above in _all_blocks(page.splitlines()):
        if not any(_COMMAND.match(each) and not _SAID.match(each) for each in script.splitlines()):
            continue
        said: dict[str, list[str]] = {}
        for kind, text in _COMMENT.findall(above):
            said.setdefault(kind, []).append(text.strip())
        yield Block(
            line=line,
            script=script,
            not_run=said.get("not-run", [None])[0],
            run_by=said.get("run-by", [None])[0],
            before=tuple(said.get("before", ())),
            goes_on="goes-on" in said,
            exit_code=int(said.get("exit", ["0"])[0]),
            answers=said.get("answers", [""])[0],
        )


def _all_blocks(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """(line, text, comments directly above) of each block."""
    at, above = 0, ""
    while at < len(lines):
        text = lines[at]
        if text.startswith("<!--"):
            end = next(n for n in range(at, len(lines)) if "-->" in lines[n])
            above += "\n".join(lines[at : end + 1]) + "\n"
            at = end + 1
        elif text.startswith("```"):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].startswith("```"))
            if text.strip() in ("```", "```sh"):
                yield at + 2, "\n".join(lines[at + 1 : end]), above
            above, at = "", end + 1
        elif text.startswith("    ") and (at == 0 or not lines[at - 1].strip() or lines[at - 1].endswith("-->")):
            end = next((n for n in range(at, len(lines)) if not lines[n].startswith("    ")), len(lines))
            yield at + 1, "\n".join(each[4:] for each in lines[at:end]), above
            above, at = "", end
        else:
            above = above if not text.strip() else ""
            at += 1


def world(page: str) -> subprocess.CompletedProcess[str]:
    """Runs the page in a world of its own. Needs root, and unshare, ip and mount."""
    command = [
        "unshare",
        "--net",
        "bash",
        "-euc",
        _WORLD,
        "world",
        sys.executable,
        "-m",
        "tests.system.docs_page",
        page,
    ]
    environment = {**os.environ, _OUTSIDE: _network()}
    base = MountBase(ROOT)
    try:
        return base.call(
            lambda: subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        )
    finally:
        base.close()


def _network() -> str:
    """What the kernel calls the network of this process."""
    return os.readlink("/proc/self/ns/net")


def main(page: str) -> int:
    """Exit code 1, with what happened, at the first block that does not end as it should."""
    if os.environ.get(_OUTSIDE, _network()) == _network():
        print("this network is everybody's: expected one of its own, as world() makes it", file=sys.stderr)
        return 2
    try:
        return _blocks_run(page)
    finally:
        _kill_neighbours()


def _blocks_run(page: str) -> int:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="holdfast-docs-", ignore_cleanup_errors=True) as folder:
        for block in blocks((ROOT / page).read_text()):
            if not block.is_for_here:
                continue
            for each in (*(Block(line=block.line, script=script) for script in block.before), block):
                began_s = time.monotonic()
                code, said = (_begun if each.goes_on else _ended)(each, folder, environment)
                print(f"{page}:{each.line}: {time.monotonic() - began_s:.1f} s, exit code {code}", flush=True)
                if code != each.exit_code:
                    print(f"{each.script}\n{said}\nexit code {code}, expected {each.exit_code}", file=sys.stderr)
                    return 1
    return 0


def _kill_neighbours() -> None:
    """All other processes of this network."""
    ours = _network()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):  # it ends by itself meanwhile
                if os.readlink(f"/proc/{name}/ns/net") == ours:
                    os.kill(int(name), signal.SIGKILL)


def _ended(block: Block, folder: str, environment: dict[str, str]) -> tuple[int | None, str]:
    command = ["bash", "-euo", "pipefail", "-c", block.script]
    with tempfile.TemporaryFile("w+") as out, _answers(block.answers) as source:  # a pipe would wait for who goes on
        try:
            code: int | None = subprocess.run(
                command, cwd=folder, env=environment, stdin=source, stdout=out, stderr=out, timeout=LIMIT_S
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        out.seek(0)
        return code, out.read()


@contextmanager
def _answers(text: str) -> Iterator[int]:
    """A terminal where these words are typed, a line each; nothing at all without one."""
    if not text:
        yield subprocess.DEVNULL
        return
    ours, theirs = os.openpty()
    try:
        os.write(ours, "".join(f"{each}\n" for each in text.split()).encode())
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def _begun(block: Block, folder: str, environment: dict[str, str]) -> tuple[int | None, str]:
    """0 once it has said that it is ready; its exit code if it ended before."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", block.script], cwd=folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:  # ends with the process; the test has a limit
        said.append(line)
        if line.startswith(("ready:", "console:")):
            return 0, ""
    return process.wait(), "".join(said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
