"""What is written must be true: ids, tests, commands and links that documents name exist."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = ("src", "tests", "docs", "tools", "benchmarks", "examples", ".ci")
ROW_ID = re.compile(r"\b(?:(?:K112|K113|K426|K1066|K18|R|H|ST)-\d{1,3}|C\d{1,2})\b")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
# Put together here so that this file does not contain what it looks for.
FORBIDDEN = ("../" + "shared", "/work/" + "main", "/tmp/" + "contract", "issue " + "3")


def text_files() -> Iterator[Path]:
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in (".md", ".toml", "") and path.name not in (".coverage", ".git"):
            yield path
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md", ".toml", ".txt", ".sh", "") and path.is_file():
                yield path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def status() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((ROOT / "docs/status.toml").read_text())


def rows() -> dict[str, list[str]]:
    """Row id -> its entry, over all sections of behaviours."""
    return {
        name: row
        for section, entries in status().items()
        if section != "api"
        for name, row in entries.items()
        if name != "_title"
    }


def without_tests(page: str) -> list[str]:
    """The page's lines without the column of tests: a new test beside others does not make the page untrue."""
    lines = []
    for line in page.splitlines():
        cells = line.split(" | ")
        lines.append(" | ".join(cells[:3] + cells[4:]) if len(cells) == 5 else line)
    return lines


def test_the_status_page_is_up_to_date() -> None:
    made = load(ROOT / "tools/status_page.py").page()
    assert without_tests((ROOT / "docs/status.md").read_text()) == without_tests(made), "run `make docs`"


def test_every_test_on_the_status_page_exists() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/status.md").read_text()))
    assert {name for name in named if f"def {name}(" not in sources} == set(), "run `make docs`"


def test_every_behaviour_is_listed_once_with_a_state_and_a_reason() -> None:
    data = status()
    assert sum(len(data[name]) - 1 for name in ("K112", "K113", "K426", "R", "K1066", "K18", "H")) == 202
    for name, (state, what, *rest) in rows().items():
        assert state in ("done", "partly", "not"), name
        assert what, name
        assert state == "done" or rest[0], f"{name} is {state} but does not say why"


def test_every_id_that_code_and_tests_name_is_in_the_status() -> None:
    known = rows().keys()
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in text_files()
        if path.suffix in (".py", ".md") and "golden" not in path.parts
        for name in ROW_ID.findall(path.read_text())
        if name not in known
    }
    assert unknown == set()


def test_every_test_that_the_status_names_exists() -> None:
    for name, row in rows().items():
        for given in row[3:]:
            file, _, function = given.partition("::")
            text = (ROOT / file).read_text()
            assert f"def {function}(" in text or f"\n{function} = " in text, f"{name} names {given}"


def test_no_file_names_a_place_outside_the_repository() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in text_files()
        if "golden" not in path.parts
        for word in FORBIDDEN
        if word in path.read_text(errors="replace")
    ]
    assert found == []


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in LINK.findall((ROOT / name).read_text()):
        assert (ROOT / target).exists(), f"{name} links to {target}"


def test_every_make_target_that_documents_name_exists() -> None:
    targets = set(re.findall(r"^\.PHONY: ([\w-]+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(targets) <= 13
    for path in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        named = set(re.findall(r"(?:`|^    |^)make ([\w-]+)", (ROOT / path).read_text(), re.MULTILINE))
        assert named <= targets, f"{path} names {named - targets}"


def test_continuous_integration_does_nothing_that_the_readme_does_not_tell() -> None:
    commands = re.findall(r"^\s*(?:\$limited )?make (\w+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert sorted(commands) == ["check", "test"]
    readme = (ROOT / "README.md").read_text()
    assert all(f"make {command}" in readme for command in commands)


def test_the_changelog_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^## \[?({re.escape(version)}|Unreleased)\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_map_of_the_code_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src/holdfast").glob("*/__init__.py")}
    assert {package for package in packages if f"`{package}/`" not in text} == set()
    floors = (ROOT / "pyproject.toml").read_text()
    assert all(f"holdfast.{package}" in floors for package in packages)


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = {re.split(r"[\[<>=~!; ]", item)[0] for group in (project["dependencies"], *extras) for item in group}
    explained = (ROOT / "docs/decisions/0001-dependencies.md").read_text()
    assert {name for name in wanted - {"holdfast"} if f"`{name}`" not in explained} == set()


def test_decisions_are_numbered_without_doubles() -> None:
    """A number is given when a question is asked, so that there may be gaps."""
    numbers = [int(path.name[:4]) for path in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) == 1
