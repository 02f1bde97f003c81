"""Every command of the README and the docs is run as it stands there, or says why not."""

from __future__ import annotations

import pytest

from tests.system.docs_page import ROOT, blocks, world

NOT_RUN_AT_MOST = 15
LATER = frozenset({"docs/log-dirs.md", "docs/metadata.md", "docs/operations.md", "docs/deployment.md"})
"""Pages whose commands nobody runs yet."""
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCKS = {page: list(blocks((ROOT / page).read_text())) for page in PAGES}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in LATER and any(each.not_run is None for each in BLOCKS[page])]
)
def test_the_commands_of_a_page_do_what_it_says(page: str) -> None:
    done = world(page)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    unrun = [(page, each.line, each.not_run) for page in PAGES for each in BLOCKS[page] if each.not_run is not None]
    assert len(unrun) <= NOT_RUN_AT_MOST, unrun
    assert all(why for _, _, why in unrun), unrun


def test_a_block_and_what_is_said_of_it() -> None:
    above = "<!-- before: a\nb -->\n<!-- exit: 1 -->\n"
    page = f"text\n\n{above}    holdfast x  # why\n    y\n\n    no command\n\n```sh\nmake z\n```\n"
    first, second = blocks(page)
    assert (first.line, first.script, first.before, first.exit_code) == (6, "holdfast x  # why\ny", ("a\nb",), 1)
    assert (second.line, second.script, second.before) == (12, "make z", ())
    assert [each.not_run for each in blocks("<!-- not-run: long -->\n    make demo\n")] == ["long"]
