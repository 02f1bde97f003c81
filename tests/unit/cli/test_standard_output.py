"""What a command says and how it ends when standard output or input is not what it should be; no cluster is needed."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
NOBODY = ["--bootstrap-server", "127.0.0.1:1"]


def ended(command: list[str], **streams: Any) -> tuple[int, str]:
    """Exit code and standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environment, **streams
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["--help"], "holdfast"),
        (["produce", "--help"], "holdfast produce"),
        (["topics", "list", "--help"], "holdfast topics"),
    ],
)
def test_operator_C5_a_full_disk_is_one_line(args: list[str], name: str) -> None:
    with open("/dev/full", "wb") as full:
        assert ended([*HOLDFAST, *args], stdout=full) == (1, f"{name}: standard output: No space left on device\n")


def test_operator_C5_what_is_printed_and_not_flushed_is_missed_too() -> None:
    script = (
        "import sys\n"
        "from holdfast.cli.standard_output import told_of_output\n"
        "with told_of_output('holdfast x'):\n"
        "    print('something')\n"
        "    sys.exit(int(sys.argv[1]))\n"
    )
    with open("/dev/full", "wb") as full:
        for given, code in (("0", 1), ("3", 3)):
            said = ended([sys.executable, "-c", script, given], stdout=full)
            assert said == (code, "holdfast x: standard output: No space left on device\n")


@pytest.mark.parametrize(("given", "code"), [("0", 0), ("3", 3)])
def test_a_reader_that_has_gone_changes_no_exit_code(given: str, code: int) -> None:
    script = (
        "import sys\n"
        "from holdfast.cli.standard_output import told_of_output\n"
        "with told_of_output('holdfast x'):\n"
        "    print('something')\n"
        "    sys.exit(int(sys.argv[1]))\n"
    )
    assert ended([sys.executable, "-c", script, given], stdout=closed_pipe()) == (code, "")
    assert ended([*HOLDFAST, "--help"], stdout=closed_pipe()) == (0, "")


def test_a_table_whose_reader_has_gone_is_no_failure() -> None:
    script = (
        "from rich.console import Console\n"
        "from holdfast.cli.standard_output import told_of_output\n"
        "with told_of_output('holdfast x'):\n"
        "    Console().print('something')\n"
    )
    assert ended([sys.executable, "-c", script], stdout=closed_pipe()) == (0, "")


def test_an_error_of_another_file_or_pipe_is_not_taken_for_one_of_the_output(tmp_path: pathlib.Path) -> None:
    script = (
        "import os, sys\n"
        "from holdfast.cli.standard_output import told_of_output\n"
        "with told_of_output('holdfast x'):\n"
        "    raise BrokenPipeError(32, 'Broken pipe') if sys.argv[1] == 'pipe' else FileNotFoundError(2, 'No', 'f')\n"
    )
    for which in ("pipe", "file"):
        code, said = ended([sys.executable, "-c", script, which], stdout=subprocess.PIPE)
        assert (code, "Error: [Errno" in said) == (1, True)


def closed_pipe() -> int:
    """The end to write to of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_help_without_standard_streams_is_no_failure() -> None:
    """As ``<&- >&-`` of a shell has it."""
    assert ended(["sh", "-c", f"{' '.join(HOLDFAST)} produce --help <&- >&-"]) == (0, "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["consume"], "which topics? none: expected names, --topic or --include, and one of them"),
        (["consume", "t", "--include", "u"], "which topics? t and --include u: expected"),
        (["consume", "--include", "("], "--include: '(': missing ), unterminated subpattern at position 0, expected"),
        (["consume", "t", "--format", "%q"], "--format '%q': %q at character 1: expected"),
        (
            ["consume", "t", "--format", "%s", "--json"],
            "--format, --json, --key-separator with --print-...: expected one",
        ),
        (["consume", "t", "--json", "--print-offset"], "--format, --json, --key-separator with --print-...: expected"),
        (["consume", "t", "--json", "--null-marker", "x"], "--null-marker and --json: expected one of them"),
        (["consume", "t", "--offset", "5"], "--offset 5: expected with --partition; without it -N, earliest"),
        (["consume", "t", "--offset", "@noon"], "--offset '@noon': expected a time"),
        (["consume", "t", "--offset", "-1", "--from-time", "5"], "--offset and --from-time: expected one of them"),
        (["consume", "t", "--key-separator", ""], "--key-separator '': expected at least one character"),
        (["consume", "t", "--key-separator", "\\x"], r"--key-separator '\\x': \x at character 1: expected"),
        (["produce", "t", "--key-separator", "\\"], r"--key-separator '\\': \ at character 1: expected"),
        (["produce", "t", "--json", "--null-marker", "x"], "--json and --null-marker: expected one of them"),
        (["produce", "t", "--json", "--parse-headers"], "--json and --parse-headers: expected one of them"),
        (
            ["produce", "t", "--headers-separator", ";"],
            "--headers-delimiter and its like: expected with --parse-headers",
        ),
        (["produce", "t", "--parse-headers", "--headers-separator", ":"], "expected three that differ"),
        (["produce", "t", "--keep-partitions"], "--keep-partitions: expected with --json"),
        (["produce", "t", "--header", "a"], "--header 'a': expected NAME=VALUE"),
        (["produce", "t", "--timestamp", "-1"], "--timestamp"),
        (["produce", "t", "--topic", "u"], "--topic u and t: expected one of them"),
    ],
)
def test_usage_that_cannot_be_meant_is_one_line_and_2(args: list[str], words: str) -> None:
    code, said = ended([*HOLDFAST, *args, *NOBODY], stdout=subprocess.DEVNULL)
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith(f"holdfast {args[0]}: ") and words in said


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_ctrl_c_before_anything_answers_is_130(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        args = [*HOLDFAST, command, "t", "--bootstrap-server", where]
        with subprocess.Popen(args, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            asked, _ = silent.accept()
            with asked:
                asked.recv(1)
                running.send_signal(signal.SIGINT)
                _, err = running.communicate(timeout=60)
    assert (running.returncode, "Traceback" in err) == (130, False), err
