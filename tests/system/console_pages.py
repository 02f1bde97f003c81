"""A client of a console without a browser: pages, forms, the cookie, streams."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import click

from holdfast.testing import Cluster
from holdfast.testing.processes import children
from tests.commands import command_at


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """An answer as it came."""

    status: int
    text: str
    headers: Mapping[str, str]

    def hidden(self, name: str) -> str:
        """The value of a hidden field."""
        found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)">', self.text)
        assert found is not None, f"no field {name} in {self.text}"
        return unescape(found.group(1))


class ConsolePages:
    """Asks as a browser would that has neither scripts nor a history."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host, self.port = parts.hostname, parts.port
        self.origin = f"http://{parts.netloc}"
        self.cookie = ""

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> PageAnswer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return PageAnswer(answer.status, answer.read().decode(errors="replace"), found)
        finally:
            connection.close()

    def get(self, path: str, /, **query: object) -> PageAnswer:
        return self.ask("GET", f"{path}?{urlencode(query)}" if query else path, cookie=self.cookie)

    def post(self, path: str, form: Mapping[str, object]) -> PageAnswer:
        return self.ask(
            "POST", path, urlencode(form), origin=self.origin, cookie=self.cookie,
            **{"content-type": "application/x-www-form-urlencoded"},
        )  # fmt: skip

    def unlock(self, folder: Path) -> None:
        """The token for a cookie."""
        answer = self.post("/unlock", {"token": (folder / "console.token").read_text()})
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def do(self, act: str, /, confirm: str | None = None, **form: object) -> PageAnswer:
        """Plan, then done: the page of what became of it."""
        plan = self.get(f"/act/{act}", plan=1, **form)
        assert plan.status == 200, plan.text
        assert 'name="once"' in plan.text, plan.text
        for line in commands_of(plan.text):
            assert_is_a_command(line)
        sent = {**form, "once": plan.hidden("once")} | ({} if confirm is None else {"confirm": confirm})
        answer = self.post(f"/act/{act}", sent)
        assert answer.status == 303, answer.text
        return self.get(answer.headers["location"])

    def events(self, path: str, /, **query: object) -> Generator[tuple[str, str], None, None]:
        """(event, data) of a stream, as they come; ``message`` is one without a name. Close the generator."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}")
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            name, data = "message", []
            for line in (raw.decode().rstrip("\n") for raw in answer):
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif not line:
                    if data:
                        yield name, "\n".join(data)
                    name, data = "message", []
        finally:
            connection.close()


def commands_of(page: str) -> list[str]:
    """The lines that a page shows for a shell."""
    return [unescape(each) for each in re.findall(r'<pre class="command">(.*?)</pre>', page, re.DOTALL)]


def assert_is_a_command(line: str) -> None:
    """The command line takes it: every option and argument of it exists. Nothing is done."""
    name, *words = shlex.split(line)
    assert name == "holdfast", line
    if "<<<" in words:  # the file that it reads is the shell's matter
        words = [*words[: words.index("<<<")], "--help"]
    path: list[str] = []
    while isinstance(command_at(path)[0], click.Group):
        path.append(words.pop(0))
    command, parent = command_at(path)
    if words[-1] == "--help":
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words[:-1] if word.startswith("--")} <= known, line
    else:
        command.make_context(path[-1], words, parent=parent)


def news(text: str) -> dict[str, object]:
    """The data of an event."""
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


@contextmanager
def console_of(bootstrap: str, *options: str) -> Iterator[str]:
    """``holdfast console`` of a cluster that has none; its address. It ends with exit code 0."""
    command = [sys.executable, "-m", "holdfast.cli.main", "console", *options, "--bootstrap-server", bootstrap]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("console: http://"), line
        yield line.removeprefix("console: ").strip()
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def console_pid(cluster: Cluster) -> int:
    """The child of ``up`` that is no broker."""
    (found,) = set(children(cluster.pid)) - set(cluster.pids().values())
    return found
