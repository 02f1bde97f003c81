"""``holdfast up --detach`` and ``holdfast down``: a cluster without a terminal."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing import free_port, wait_for


def holdfast(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", *words], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    holdfast("down", "--data-dir", str(tmp_path / "cluster"))


def up(data_dir: Path, port: int, *more: str) -> tuple[int, str, str]:
    return holdfast("up", "--detach", "--brokers", "1", "--data-dir", str(data_dir), "--port", str(port), *more)


def test_a_cluster_in_the_background_serves_until_it_is_told_to_stop(data_dir: Path) -> None:
    port = free_port(1, beside=(100, 200))
    code, line, err = up(data_dir, port)
    endpoints = json.loads((data_dir / "endpoints.json").read_text())
    assert (code, line, err) == (0, f"ready: bootstrap.servers=127.0.0.1:{port} console={endpoints['console']}\n", "")
    assert endpoints == {
        "bootstrap": [f"127.0.0.1:{port}"],
        "metrics": {"1": f"http://127.0.0.1:{port + 100}/metrics"},
        "console": endpoints["console"],
    }
    with urllib.request.urlopen(endpoints["console"], timeout=10) as page:
        assert "Broker 1" in page.read().decode()
    with urllib.request.urlopen(endpoints["metrics"]["1"], timeout=10) as page:
        assert page.status == 200
    address = ("--bootstrap-server", f"127.0.0.1:{port}")
    assert holdfast("topics", "create", "t", *address)[0] == 0

    assert holdfast("down", "--data-dir", str(data_dir)) == (0, f"Stopped the cluster in {data_dir}.\n", "")
    assert not (data_dir / "endpoints.json").exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    code, _, err = holdfast("down", "--data-dir", str(data_dir))
    assert (code, err) == (1, f"holdfast down: no cluster runs in {data_dir}\n")

    assert up(data_dir, port)[0] == 0
    assert holdfast("topics", "list", *address)[:2] == (0, "t\n")


def test_what_keeps_it_from_starting_is_told(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = up(data_dir, port)
    assert (code, out) == (1, "")
    assert f"port {port} for broker 1 is taken" in err
    assert not (data_dir / "endpoints.json").exists()


def test_a_second_cluster_has_other_ports_and_a_port_that_was_asked_for_is_refused_by_name(
    data_dir: Path, tmp_path: Path
) -> None:
    """Of one hundred ports below the first its metrics would be at the first's port for clients."""
    port, other = free_port(1, beside=(-100, 100, 200, 300, 400)), tmp_path / "other"
    assert up(data_dir, port)[0] == 0
    first = json.loads((data_dir / "endpoints.json").read_text())
    for asked, more, said in (
        (port, (), f"port {port} for broker 1 is taken: choose another --port ("),
        (port - 100, ("--metrics-port", str(port)), f"--metrics-port {port} for 1 brokers: port {port} is taken: "),
        (port - 100, ("--console-port", first["console"].split(":")[2][:-1]), "expected a free port, or --no-console"),
    ):
        code, out, err = up(other, asked, *more)
        assert (code, out, said in err) == (1, "", True), err
    try:
        code, _, err = up(other, port - 100)
        second = json.loads((other / "endpoints.json").read_text())
        assert (code, second["bootstrap"]) == (0, [f"127.0.0.1:{port - 100}"]), err
        assert second["console"] != first["console"]
        with urllib.request.urlopen(second["metrics"]["1"], timeout=10) as page:
            assert page.status == 200
        said = f"port {port} for metrics is taken: they are on {port + 400}"
        assert said in (other / "up.log").read_text()
    finally:
        holdfast("down", "--data-dir", str(other))


def test_a_cluster_is_needed_to_stop_one(tmp_path: Path) -> None:
    code, _, err = holdfast("down", "--data-dir", str(tmp_path))
    assert code == 1
    assert "expected the data directory of a cluster" in err
    (tmp_path / "up.lock").write_text(f"{os.getpid()}\n")
    code, _, err = holdfast("down", "--data-dir", str(tmp_path))
    assert (code, err) == (1, f"holdfast down: no cluster runs in {tmp_path}\n")
    code, _, err = holdfast("up", "--detach")
    assert code == 2
    assert "--detach: expected a --data-dir" in err


def test_a_cluster_whose_parent_was_killed_is_none(data_dir: Path) -> None:
    assert up(data_dir, free_port(1, beside=(100, 200)))[0] == 0
    os.kill(int((data_dir / "up.lock").read_text()), signal.SIGKILL)

    def is_told() -> bool:
        code, _, err = holdfast("down", "--data-dir", str(data_dir))
        return code == 1 and "no cluster runs" in err

    wait_for(is_told, "the brokers end with it", timeout_s=30)
