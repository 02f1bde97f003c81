"""A log file that is large is put aside, by the thread that writes it: nothing is lost, and no more is kept."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from holdfast.broker.log_file import LogFile
from holdfast.broker.log_lines import LogLines


def log_to(file: LogFile) -> tuple[logging.Logger, LogLines]:
    log, lines = logging.Logger("test"), LogLines(file.fd, file=file)
    lines.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(lines)
    lines.start()
    return log, lines


def test_files_are_put_aside_and_every_line_is_in_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    file = LogFile.opened(str(path), max_bytes=1000, backups=1000)
    log, lines = log_to(file)
    for number in range(1000):
        log.info("line %04d", number)
        if number % 50 == 0:
            lines.flush()  # the thread writes some at a time
    lines.flush()
    kept = sorted(tmp_path.iterdir(), key=lambda p: -int(p.suffix[1:]) if p.suffix != ".log" else 1)
    assert len(kept) > 5 and kept[-1] == path
    assert "".join(p.read_text() for p in kept) == "".join(f"line {number:04}\n" for number in range(1000))
    os.close(file.fd)


def test_no_more_are_kept_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    file = LogFile.opened(str(path), max_bytes=10, backups=2)
    for number in range(6):
        os.write(file.fd, b"line number %d\n" % number)
        file.written()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "broker.log": "",
        "broker.log.1": "line number 5\n",
        "broker.log.2": "line number 4\n",
    }
    os.close(file.fd)


def test_all_descriptors_go_along(tmp_path: Path) -> None:
    """Of standard output and standard error, which lead to the same file."""
    path = tmp_path / "broker.log"
    first = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    second = os.dup(first)
    file = LogFile(str(path), (first, second), max_bytes=5, backups=1)
    os.write(first, b"before\n")
    file.written()
    os.write(second, b"x\n")
    assert (path.read_text(), (tmp_path / "broker.log.1").read_text()) == ("x\n", "before\n")
    os.close(first)
    os.close(second)


def test_zero_is_for_ever_and_one_that_cannot_be_begun_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "broker.log"
    file = LogFile.opened(str(path), max_bytes=0, backups=1)
    os.write(file.fd, b"a" * 100)
    file.written()
    assert [p.name for p in folder.iterdir()] == ["broker.log"]
    os.close(file.fd)
    file = LogFile.opened(str(path), max_bytes=10, backups=1)
    folder.rename(tmp_path / "moved")
    os.write(file.fd, b"b")
    file.written()  # where the file was is no directory any more
    assert (tmp_path / "moved" / "broker.log").read_bytes() == b"a" * 100 + b"b"
    os.close(file.fd)


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_file_of_an_earlier_run_is_gone_on_with(tmp_path: Path, max_bytes: int) -> None:
    path = tmp_path / "broker.log"
    path.write_text("earlier\n")
    file = LogFile.opened(str(path), max_bytes=max_bytes, backups=1)
    os.write(file.fd, b"later\n")
    file.written()
    assert (tmp_path / "broker.log.1" if max_bytes == 1 else path).read_text() == "earlier\nlater\n"
    os.close(file.fd)
