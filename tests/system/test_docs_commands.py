"""Every command of the README and the docs is run as it stands there, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.docs_page import ROOT, blocks, world

NOT_RUN_AT_MOST = 15
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCKS = {page: list(blocks((ROOT / page).read_text())) for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if any(each.is_for_here for each in BLOCKS[page])])
def test_the_commands_of_a_page_do_what_it_says(page: str) -> None:
    done = world(page)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    unrun = [
        f"{page}:{each.line}: {each.not_run}" for page in PAGES for each in BLOCKS[page] if each.not_run is not None
    ]
    print(*unrun, sep="\n")
    assert len(unrun) <= NOT_RUN_AT_MOST, unrun
    assert not [line for line in unrun if line.endswith(": ")]
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## Commands of the docs that no test runs")[1]
    rows = re.findall(r"^\| `([\w./-]+)` \| `([^`]+)` \|", table, re.MULTILINE)
    listed = [(page, line.replace("\\|", "|")) for page, line in rows]
    found = [(page, each.script.splitlines()[0]) for page in PAGES for each in BLOCKS[page] if each.not_run is not None]
    assert sorted(listed) == sorted((page, re.split(r" {2,}#", line)[0].rstrip()) for page, line in found)


def test_what_another_test_runs_is_run_by_it() -> None:
    """It is a test, and reads that page."""
    elsewhere = [(page, each.run_by) for page in PAGES for each in BLOCKS[page] if each.run_by is not None]
    assert elsewhere
    for page, file in elsewhere:
        assert file is not None and Path(file).name.startswith("test_"), file
        assert Path(page).name in (ROOT / file).read_text(), f"{file} does not read {page}"


def test_a_block_and_what_is_said_of_it() -> None:
    above = "<!-- before: a\nb -->\n<!-- exit: 1 -->\n"
    page = f"text\n\n{above}    holdfast x  # why\n    y\n\n    no command\n\n```sh\nmake z\n```\n"
    first, second = blocks(page)
    assert (first.line, first.script, first.before, first.exit_code) == (6, "holdfast x  # why\ny", ("a\nb",), 1)
    assert (second.line, second.script, second.before) == (12, "make z", ())
    assert [each.not_run for each in blocks("<!-- not-run: long -->\n    make demo\n")] == ["long"]
    assert [each.run_by for each in blocks("<!-- run-by: x.py -->\n    useradd x\n")] == ["x.py"]
    assert not list(blocks("    holdfast rolling-restart: stopped: broker 2\n"))
