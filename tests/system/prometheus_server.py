"""A real Prometheus that scrapes a cluster of the tests, and what it says when it is asked."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from holdfast.testing import free_port, wait_for

SCRAPE_S = 1
WINDOW = "8s"
"""Of the shortened rules: longer than some scrapes, and over soon after a fault."""
_FOR = re.compile(r"^(\s+)for: \w+$", flags=re.M)
_RANGE = re.compile(r"\[\w+\]")


class Prometheus:
    """``with Prometheus(folder, targets, rules=[...]) as server:`` scrapes each second. ``rules``: files."""

    def __init__(self, folder: Path, targets: Iterable[str], *, rules: Iterable[Path]) -> None:
        command = shutil.which("prometheus")
        if command is None:
            pytest.fail("prometheus is not on the PATH: apt-get install prometheus")
        self._port, self._log = free_port(), folder / "prometheus.log"
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "500ms"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": list(targets)}]}],
        }
        path = folder / "prometheus.yml"
        path.write_text(json.dumps(config))  # JSON is YAML
        self._command = [
            command, f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]  # fmt: skip

    def __enter__(self) -> Prometheus:
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            wait_for(self._is_ready, "Prometheus to be ready", timeout_s=30)
        except BaseException:
            self.__exit__(None, None, None)
            print(self._log.read_text())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series of an instant query, with or without a number."""
        found = self._ask("query", query=expression)
        assert found["resultType"] == "vector", expression
        return [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def numbers(self, expression: str) -> list[float]:
        """The values that are numbers: a share of nothing is none."""
        return [value for _, value in self.query(expression) if math.isfinite(value)]

    def firing(self) -> list[Mapping[str, str]]:
        """The labels of each alert that fires."""
        return [each["labels"] for each in self._ask("alerts")["alerts"] if each["state"] == "firing"]

    def _ask(self, what: str, **fields: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{fields}: {e.read().decode(errors='replace')}") from e

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def shortened(rules: str) -> str:
    """Alerts that fire after a second of what they are about, and look back for seconds alone: nothing else of them is
    changed."""
    return _RANGE.sub(f"[{WINDOW}]", _FOR.sub(r"\1for: 1s", rules))
