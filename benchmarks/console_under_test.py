"""A console under measurement: its process, requests to it at fixed times, and a browser's view of it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from playwright.sync_api import BrowserContext, Page

from holdfast.testing import wait_for

ROOT = Path(__file__).parent.parent
USABLE = """
() => {
  window.madeUsable = 0;
  const look = () => {
    if (window.htmx && document.body && document.body.dataset.version
        && (document.querySelector("tbody tr") || document.querySelector("article"))) {
      window.madeUsable = performance.now();
    } else {
      setTimeout(look, 2);
    }
  };
  look();
}
"""
"""Its rows are there, and what is clicked or typed is followed by scripts."""
PAINT = """
() => {
  const first = performance.getEntriesByName("first-contentful-paint")[0];
  return first ? first.startTime : 0;
}
"""


class Loaded(NamedTuple):
    """Milliseconds from the moment when the browser was told to go there."""

    paint: float
    usable: float


class ConsoleProcess:
    """``holdfast console`` of a cluster, read-only."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        command = [sys.executable, "-m", "holdfast.cli.main", "console", "--bootstrap-server", bootstrap, "--read-only"]
        self._process = subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("console: "):
            raise RuntimeError(f"the console did not start: {line!r}")
        self.url = line.split()[1]
        self.pid = self._process.pid
        self._address = urlsplit(self.url)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def connection(self) -> http.client.HTTPConnection:
        assert self._address.hostname is not None
        return http.client.HTTPConnection(self._address.hostname, self._address.port, timeout=60)

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        connection = self.connection()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Until a look at the cluster has succeeded."""
        wait_for(lambda: self.get("/health/ready")[0] == 200, "the console to know the cluster", timeout_s=timeout_s)

    @property
    def resident_mib(self) -> float:
        return self._memory("VmRSS")

    @property
    def peak_mib(self) -> float:
        """The most that it ever had."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"/proc/{self.pid}/status has no {field}")


def pages_of(console: ConsoleProcess) -> dict[str, str]:
    """What the pages of a large cluster are called -> their addresses."""
    topic = _first(console, "/topics", 'href="/topic?')
    disk = _first(console, "/", 'href="/disk?')
    group = _first(console, "/groups", 'href="/group?')
    found = {
        "disks": "/",
        "a directory": disk,
        "brokers": "/brokers",
        "topics": "/topics",
        "topics by bytes": "/topics?sort=-bytes",
        "topics, a search": "/topics?q=1",
        "a topic": topic,
        "partitions": "/partitions",
        "partitions by bytes": "/partitions?sort=-bytes",
        "partitions, a search": "/partitions?q=1",
        "partitions, a late window": "/partitions?page=40",
        "groups": "/groups",
        "groups by lag": "/groups?sort=-lag",
        "a group": group,
        "under way": "/reassignments",
        "what can be done": "/acts",
    }
    return {name: path for name, path in found.items() if path}


def _first(console: ConsoleProcess, path: str, what: str) -> str:
    text = console.get(path)[1].decode()
    at = text.find(what)
    if at < 0:
        return ""
    start = at + len('href="')
    return text[start : text.index('"', start)].replace("&amp;", "&")


def largest_answer(console: ConsoleProcess, pages: Sequence[str]) -> tuple[int, str]:
    """Bytes as they are sent, uncompressed, of the longest page or file of the console."""
    files = [f"/static/{quote(str(p.relative_to(STATIC)))}" for p in STATIC.rglob("*") if p.suffix in (".js", ".css")]
    return max((len(console.get(path)[1]), path) for path in (*pages, *files))


STATIC = ROOT / "src/holdfast/console/static"


# -- requests at fixed times ---------------------------------------------------------------------------------------


class PageTimes(NamedTuple):
    """(milliseconds, page) of each page, from when it was due; those that were not answered by 200; and how late the
    measuring threads themselves were woken, in milliseconds, which is the machine's doing."""

    took: list[tuple[float, str]]
    wrong: list[str]
    late_ms: list[float]


def page_times(console: ConsoleProcess, pages: Mapping[str, str], *, viewers: int, seconds: float) -> PageTimes:
    """Each viewer asks for one page a second, however long the last took."""
    found = PageTimes([], [], [])
    names = list(pages)
    begin_s = time.monotonic() + 0.5

    def view(number: int) -> None:
        connection = console.connection()
        for n in range(int(seconds)):
            due_s = begin_s + n + number / viewers
            left_s = due_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
                found.late_ms.append((time.monotonic() - due_s) * 1000)
            name = names[(n * viewers + number) % len(names)]
            connection.request("GET", pages[name])
            answer = connection.getresponse()
            answer.read()
            found.took.append(((time.monotonic() - due_s) * 1000, name))
            if answer.status != 200:
                found.wrong.append(f"{name}: {answer.status}")
        connection.close()

    threads = [threading.Thread(target=view, args=(number,)) for number in range(viewers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if len(found.took) < viewers * int(seconds):
        raise RuntimeError(f"{len(found.took)} of {viewers * int(seconds)} pages were answered")
    return PageTimes(sorted(found.took), found.wrong, sorted(found.late_ms))


@contextmanager
def stream_open(console: ConsoleProcess) -> Iterator[list[dict[str, Any]]]:
    """An open page's stream of changes; the list gets what is told."""
    told: list[dict[str, Any]] = []
    connection = console.connection()
    connection.request("GET", "/events")
    answer = connection.getresponse()

    def take(line: bytes) -> None:
        if line.startswith(b"data: "):
            told.append(json.loads(line[6:]))

    def hear() -> None:
        try:
            for line in answer:
                take(line)
        except (OSError, ValueError, AttributeError):
            return  # it was closed

    thread = threading.Thread(target=hear, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        if connection.sock is not None:
            connection.sock.shutdown(2)
        connection.close()
        thread.join(5)


# -- a browser -----------------------------------------------------------------------------------------------------


def loaded(page: Page, path: str) -> Loaded:
    """One load of a page in a browser."""
    page.goto(path)
    seen(page, "window.madeUsable > 0 && performance.getEntriesByName('first-contentful-paint').length")
    paint = page.evaluate(PAINT)
    return Loaded(paint, max(paint, page.evaluate("window.madeUsable")))


def seen(page: Page, what: str) -> None:
    """Until an expression is true in a page, which does not evaluate strings by itself."""
    wait_for(lambda: page.evaluate(f"Boolean({what})"), what, timeout_s=60, interval_s=0.02)


def watched(context: BrowserContext, text: str) -> None:
    """Pages that are opened from now on note when ``text`` is in them (``window.sawIt``, milliseconds since 1970)."""
    context.add_init_script(
        f"""
        const wanted = {json.dumps(text)};
        window.sawIt = {{}};
        const look = () => {{
          const found = document.body && document.body.textContent.matchAll(new RegExp(wanted + "[0-9]+", "g"));
          for (const [name] of found || []) window.sawIt[name] ||= Date.now();
        }};
        new MutationObserver(look).observe(document, {{ childList: true, subtree: true, characterData: true }});
        """
    )


def cpu_ns(pids: Sequence[int]) -> int:
    """All threads of these processes have run for so long."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except OSError:  # a thread that has ended
                continue
    return total


def machine_is_quiet() -> float:
    """Load of the last minute, per core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
