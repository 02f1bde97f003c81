"""What a page was made of is let go with it: the console looks for unreachable cycles once in ten minutes alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import pytest

from holdfast.console.snapshot import Snapshot
from tests.unit.console.asking import ask, console
from tests.unit.console.snapshots import disk, move, snapshot, topic

A, B = "/disks/a", "/disks/b"
NOW = snapshot(
    topics=[topic("orders", (1, (1, 2), (1, 2)), (None, (2,), ()))],
    disks={
        1: [disk(A, replicas=[("orders", 0)]), disk(B, future=[("orders", 0)])],
        2: [disk(A, replicas=[("orders", 0), ("orders", 1)])],
    },
    moves={1: [move(("orders", 0), A, B)]},
    groups={"etl": "Stable"},
)


@contextmanager
def unreachable() -> Iterator[list[object]]:
    """What was left in cycles meanwhile, in the end."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "/", f"/disk?broker=1&path={A}", "/brokers", "/topics", "/topic?name=orders", "/topic?name=none", "/partitions",
        "/groups", "/reassignments", "/acts", "/unlock", "/act/create-topic",
    ],
)  # fmt: skip
def test_a_page_keeps_no_snapshot(path: str, partial: bool) -> None:
    host = console(now=NOW)
    path, _, query = path.partition("?")
    asked = dict(each.split("=") for each in query.split("&") if each)
    headers = {"hx-request": "true", "hx-request-type": "partial"} if partial else {}
    assert ask(host, "GET", path, headers, **asked).status in (200, 404)  # templates are loaded
    with unreachable() as found:
        assert ask(host, "GET", path, headers, **asked).status in (200, 404)
    kept = [each for each in found if isinstance(each, (Snapshot, type(NOW.view)))]
    kept += [
        value for each in found if isinstance(each, dict) for value in each.values() if value is host.poller.snapshot
    ]
    assert kept == []


def test_no_template_gives_its_context_to_macros() -> None:
    """Which would hold it, and what is in it, in a cycle: of pages that ask brokers, too, which are not made here."""
    templates = list((files("holdfast.console") / "templates").iterdir())
    assert len(templates) > 10
    assert [each.name for each in templates if "with context" in each.read_text()] == []
