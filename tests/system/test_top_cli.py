"""``holdfast top`` against real brokers, in a pipe and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from holdfast.testing import Cluster, wait_for
from holdfast.testing.waiting import has_news

pytestmark = pytest.mark.system


def top(cluster: Cluster, *args: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli.main", "top", "--bootstrap-server", cluster.bootstrap, *args]


def test_what_is_written_and_what_has_died_is_shown(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=2)
    cluster.create_topic(topic, assignment={0: (1, 2), 1: (2, 1)})
    running = subprocess.Popen(top(cluster, "--json", "--interval", "0.3"), stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    first = json.loads(running.stdout.readline())
    assert (first["records_per_s"], [b["leads"] for b in first["brokers"]]) == (None, [1, 1])
    cluster.produce(topic, [b"x"] * 500, partition=0)

    def moved() -> bool:
        assert running.stdout is not None
        found = json.loads(running.stdout.readline())
        rates = {b["id"]: b["records_per_s"] for b in found["brokers"]}
        return bool(found["records_per_s"] and rates[1] and not rates[2])

    wait_for(moved, "a rate of what was written, of the broker that leads it")
    lost = str(cluster.folder_of(2, topic, 0).parent)
    offline = [sys.executable, "-m", "holdfast.cli.main", "log-dirs", "offline", "--broker", "2", lost]
    subprocess.run([*offline, "--bootstrap-server", cluster.bootstrap], check=True, capture_output=True, timeout=60)

    def dead() -> bool:
        assert running.stdout is not None
        found = json.loads(running.stdout.readline())
        states = {d["path"]: (d["state"], d["reason"]) for d in found["directories"]}
        return states[lost][0] == "offline" and "by hand" in states[lost][1] and found["topics"][0]["under_replicated"]

    wait_for(dead, "the directory and the partition")
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 0, "the way it is ended"
    running.stdout.close()

    done = subprocess.run(top(cluster, "--once", "--interval", "0.1"), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "  controller " in lines[0] and lines[1].startswith("2 brokers, 1 topics, 2 partitions: 0 without leader, ")
    assert any(line.split()[1:2] == ["offline"] and lost in line for line in lines)

    done = subprocess.run(top(cluster), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2, "holdfast top: standard output is no terminal: expected --once, or --json\n"
    )  # fmt: skip


def test_in_a_terminal_it_goes_on_when_brokers_are_away(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=1)
    outer, inner = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    running = subprocess.Popen(
        top(cluster, "--interval", "0.2"), stdin=inner, stdout=inner, stderr=subprocess.PIPE, env=environment
    )
    os.close(inner)
    seen = bytearray()
    with os.fdopen(outer, "rb", buffering=0) as screen:

        def shows(text: bytes) -> bool:
            if has_news(screen, 0.1):
                seen.extend(os.read(screen.fileno(), 65536))
            return text in seen

        wait_for(lambda: shows(b"1 brokers, 0 topics, 0 partitions"), "the first frame")
        cluster.kill(1)
        wait_for(lambda: shows(b"nobody answers"), "what is wrong")
        cluster.revive()
        del seen[:]
        wait_for(
            lambda: shows(b"1 brokers, 0 topics, 0 partitions") and b"nobody answers" not in seen[-3000:], "a frame"
        )
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
    assert running.stderr is not None and running.stderr.read() == b""
    running.stderr.close()


def test_nobody_there_is_one_line() -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "top", "--once", "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("holdfast top: no broker can be reached: ")
