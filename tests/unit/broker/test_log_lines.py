"""Log lines go through a queue: who logs never waits for the file, and what is lost is told."""

import itertools
import logging
import os
import threading
from pathlib import Path

import pytest

from holdfast.broker import log_lines
from holdfast.broker.log_lines import LogLines
from holdfast.testing import wait_for


def log_to(lines: LogLines) -> logging.Logger:
    log = logging.Logger("test")
    lines.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(lines)
    lines.start()
    return log


def test_lines_arrive_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lines = LogLines(fd)
    log = log_to(lines)
    for i in range(5000):
        log.info("line %d", i)
    lines.say("and \udcff this")
    lines.flush()
    assert path.read_text().splitlines() == [*(f"INFO line {i}" for i in range(5000)), "and \\udcff this"]
    os.close(fd)


def test_D11_nobody_waits_for_a_file_that_hangs_and_what_is_lost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "FLUSH_S", 0.1)
    reading, writing = os.pipe()  # which takes 64 KiB, and then hangs until somebody reads
    lines = LogLines(writing, max_lines=500)
    log = log_to(lines)
    numbers = itertools.count()

    def hangs() -> bool:
        """The thread, which may begin late, has taken what the pipe takes, and says nothing of loss any more."""
        for _ in range(1000):
            log.info("a line of some length, number %d", next(numbers))
        lines.flush()
        return lines.lost > 1000

    wait_for(hangs, "a file that takes nothing")
    found = bytearray()

    def read() -> bool:
        if b"the last one" not in found:
            found.extend(os.read(reading, 1 << 20))
        return lines.lost == 0 and b"the last one" in found

    def room() -> bool:
        found.extend(os.read(reading, 1 << 20))
        log.info("after it")
        return lines.lost == 0

    wait_for(room, "room in the queue")
    log.info("the last one")
    wait_for(read, "the last line")
    number = 0
    for line in bytes(found).decode().splitlines():
        if "log lines were lost here" in line:
            number += int(line.split()[1])  # exactly those that are missing, and where they are missing
        elif "number" in line:
            assert line == f"INFO a line of some length, number {number}"
            number += 1
    assert number >= next(numbers)
    os.close(reading)


def test_D11_a_full_disk_loses_lines_and_says_so_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open("/dev/full", os.O_WRONLY)
    lines = LogLines(fd)
    log = log_to(lines)
    for i in range(10):
        log.info("line %d", i)
    lines.flush()
    assert lines.lost == 10
    room = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(room, fd)
    log.warning("room")
    lines.flush()
    assert path.read_text().splitlines() == [
        "WARNING 10 log lines were lost here: what they are written to did not take them",
        "WARNING room",
    ]
    assert lines.lost == 0
    os.close(fd)
    os.close(room)


def test_a_line_that_cannot_be_made_is_told_by_its_text(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    lines = LogLines(fd)
    log_to(lines).info("%d of them", "none")
    lines.flush()
    assert "a log line could not be made of '%d of them'" in (tmp_path / "log").read_text()
    os.close(fd)


def test_what_ends_a_thread_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError("oh")

    before, threading.excepthook = threading.excepthook, log_lines._thread_ended
    try:
        thread = threading.Thread(target=fail, name="some-thread")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    assert "some-thread ended by an error" in caplog.text and "ZeroDivisionError: oh" in caplog.text
