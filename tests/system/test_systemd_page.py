"""docs/systemd.md and the files of examples/systemd: they are the same, systemd takes the unit, and a broker starts
with the properties and stops as the unit asks it to."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.config import BrokerConfig, read_properties
from holdfast.model.config_notes import ineffective
from holdfast.testing import wait_for
from holdfast.testing.ports import free_port

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples/systemd"
PROGRAM = "/opt/holdfast/bin/holdfast"
TIMEOUT_S = 30.0


def settings() -> dict[str, str]:
    """Of the unit."""
    lines = (FILES / "holdfast@.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))


def test_the_page_has_the_files_as_they_are() -> None:
    page = (ROOT / "docs/systemd.md").read_text()
    for language, name in (("ini", "holdfast@.service"), ("properties", "1.properties")):
        (shown,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        assert shown == (FILES / name).read_text(), name


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Its verifier says what it does not understand, and that a program is not there; here it is Python."""
    assert shutil.which("systemd-analyze") is not None, ".ci/run installs systemd"
    unit = tmp_path / "holdfast@.service"

    def said(text: str) -> str:
        unit.write_text(text)
        command = ["systemd-analyze", "verify", str(tmp_path / "holdfast@1.service")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        return done.stdout + done.stderr

    text = (FILES / "holdfast@.service").read_text()
    assert "/opt/holdfast" in said(text), "it looks for the program"
    here = text.replace(PROGRAM, sys.executable)
    assert said(here) == ""
    assert "KillMod" in said(here.replace("KillMode=", "KillMod="))


def test_a_broker_starts_with_the_properties_and_stops_in_time(tmp_path: Path) -> None:
    text = (FILES / "1.properties").read_text()
    config = BrokerConfig.parse(read_properties(text))
    assert (config.unknown, ineffective(config), config.listening.warning()) == ({}, [], None)
    port = free_port()
    # On this machine, and alone.
    for before, after in (
        ("//:9092", f"//127.0.0.1:{port}"), ("host.example:9092", f"127.0.0.1:{port}"), ("9292", str(port + 200)),
        ("9192", "0"), ("/srv/", f"{tmp_path}/srv/"),
    ):  # fmt: skip
        assert before in text
        text = text.replace(before, after)
    properties = tmp_path / "1.properties"
    properties.write_text(text)
    unit = settings()
    assert unit["ExecStart"] == f"{PROGRAM} broker /etc/holdfast/%i.properties"
    command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(properties)]
    with (tmp_path / "journal").open("wb") as journal, subprocess.Popen(command, stderr=journal) as broker:
        try:
            wait_for(lambda: '"broker.started"' in (tmp_path / "journal").read_text(), "it", timeout_s=TIMEOUT_S)
            broker.send_signal(signal.Signals[unit["KillSignal"]])
            assert broker.wait(float(unit["TimeoutStopSec"])) == 0
        finally:
            broker.kill()
    assert '"broker.stopped"' in (tmp_path / "journal").read_text()
