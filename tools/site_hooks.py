"""What mkdocs.yml cannot say: pages of the site that lie beside docs/, and the decisions in the menu.

Owned by mkdocs, which calls these by name. Pages stay plain Markdown that is right where it lies: links between docs/
and the files beside it are turned here.
"""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent
BESIDE: Final = {
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""File of the root -> page of the site."""
_LINK: Final = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The decisions, in order, by their titles."""
    pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    nav: list[Any] = config.nav if config.nav is not None else []
    nav.append({"Decisions": [{_title(page): f"decisions/{page.name}"} for page in pages]})
    config.nav = nav
    return config


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The pages that lie beside docs/."""
    for name, page in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_turned(text, from_root=True)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links of docs/ to files beside it."""
    return _turned(markdown, from_root=False)


def _turned(text: str, *, from_root: bool) -> str:
    def turn(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if from_root:
            target = BESIDE.get(target, target).removeprefix("docs/")
            target = "decisions/0001-dependencies.md" if target == "decisions" else target
        elif target.startswith("../"):
            target = BESIDE.get(target.removeprefix("../"), target)
        return f"]({target}{anchor})"

    return _LINK.sub(turn, text)
