"""The documentation: pages that are made from the code are what the code makes now, commands in pages are commands that
there are, and the site has no link that leads nowhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.cli.main import main as holdfast
from holdfast.model.log_events import LogEvent
from tests.unit.test_docs import load

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/getting-started.md",
    "docs/no-leader.md",
    "docs/systemd.md",
    "docs/events.md",
)


def test_the_page_of_events_is_up_to_date() -> None:
    page = load(ROOT / "tools/event_page.py").page()
    assert (ROOT / "docs/events.md").read_text() == page, "run `make docs`"
    assert all(f"| `{event.value.name}` |" in page for event in LogEvent)


def test_the_page_of_commands_is_up_to_date() -> None:
    page = load(ROOT / "tools/command_page.py").page()
    assert (ROOT / "docs/commands.md").read_text() == page, "run `make docs`"
    for name in holdfast.list_commands(click.Context(holdfast)):
        assert f"\n## holdfast {name}\n" in page
    assert "\n### holdfast topics create\n" in page and "| `--partitions INTEGER` | " in page
    assert "\\[env var: HOLDFAST\\_BOOTSTRAP\\_SERVER; default: 127.0.0.1:9092]" in page


def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """A page that is not in the menu, a link or an anchor that is not there: each is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert "Architecture" in (tmp_path / "architecture.html").read_text()
    loaded = re.findall(
        r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', (tmp_path / "index.html").read_text()
    )
    assert loaded == [], "it can be read without a network"


def test_the_first_page_names_all_others() -> None:
    named = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text()))
    assert named | {"index.md"} == {path.name for path in (ROOT / "docs").glob("*.md")}


def told(page: str) -> list[str]:
    """What follows ``holdfast`` in the shell's lines of a page, up to a pipe or a bracket."""
    text = (ROOT / page).read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"^    ((?:.*\| )?holdfast .*)$", text, re.MULTILINE)
    begins = re.compile(r"(?:^|[|;] |until |/bin/)holdfast (?=[a-z])")
    return [re.split(r"; | \|", part)[0] for line in lines for part in begins.split(line)[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_pages_are_commands_that_there_are(page: str) -> None:
    """With arguments that they take; none is run."""
    for words in told(page):
        context = click.Context(holdfast, info_name="holdfast", **holdfast.context_settings)
        arguments = shlex.split(words, comments=True)
        while isinstance(context.command, click.Group):
            assert arguments, words
            if context.command.invoke_without_command and arguments[0].startswith("-"):
                break
            command = context.command.get_command(context, arguments[0])
            assert command is not None, f"{page}: holdfast {words}"
            context, arguments = click.Context(command, info_name=arguments[0], parent=context), arguments[1:]
        try:
            context.command.parse_args(context, list(arguments))
        except click.BadParameter as e:
            assert "does not exist" in e.message, f"{page}: holdfast {words}: {e.format_message()}"
        except click.UsageError as e:
            if "No such file or directory" not in e.format_message():  # of --command-config
                pytest.fail(f"{page}: holdfast {words}: {e.format_message()}")


def test_commands_are_found_in_pages() -> None:
    found = {page: len(told(page)) for page in PAGES}
    assert found["README.md"] > 15 and found["docs/getting-started.md"] > 8 and found["docs/no-leader.md"] > 5, found
