"""docs/command-line.md says what is so: variables, keys of a profile, exit codes, and its examples."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.kafka_errors import KafkaErrorsCommand, KafkaErrorsGroup
from holdfast.cli.profiles import FILE_VARIABLE, KEYS, parse_profiles
from tests.commands import command_at
from tests.unit.cli.test_operator_rows import every_command

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/command-line.md").read_text()


def options() -> list[click.Option]:
    commands = [command_at(path)[0] for path in every_command(entry.main)]
    return [each for command in commands for each in command.params if isinstance(each, click.Option)]


def test_every_variable_of_an_option_is_in_the_table_and_no_other() -> None:
    of_options = {str(each.envvar) for each in options() if each.envvar}
    others = {FILE_VARIABLE, "HOLDFAST_LOG_LEVEL"}
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert {name for row in rows for name in re.findall(r"`(HOLDFAST_\w+)`", row)} == of_options | others
    for each in options():
        if each.envvar:
            [row] = [row for row in rows if f"`{each.envvar}`" in row]
            assert all(f"`{name}`" in row for name in each.opts)


def test_the_keys_of_a_profile_are_in_the_table_and_the_file_of_the_page_is_one() -> None:
    assert {key for key in KEYS if f"| `{key}` |" in PAGE} == set(KEYS)
    file = PAGE.split("```toml\n")[1].split("```")[0]
    profiles = parse_profiles(file, "config.toml")
    assert list(profiles) == ["default", "production"]
    assert profiles["production"].request_timeout_s == 10


def test_the_commands_with_kafkas_words_are_named() -> None:
    paths = {path[0] for path in every_command(entry.main)}
    kinds = (KafkaErrorsCommand, KafkaErrorsGroup)
    told = PAGE.split("**Kafka's words.** ")[1].split(" do what a tool")[0]
    assert set(re.findall(r"`([\w-]+)`", told)) == {name for name in paths if isinstance(command_at((name,))[0], kinds)}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_of_the_page_are_completed(shell: str) -> None:
    assert f"_HOLDFAST_COMPLETE={shell}_source holdfast" in PAGE
    done = CliRunner().invoke(entry.main, [], prog_name="holdfast", env={"_HOLDFAST_COMPLETE": f"{shell}_source"})
    assert "_HOLDFAST_COMPLETE" in done.stdout


def test_what_the_page_shows_of_errors_is_what_is_said() -> None:
    line = "holdfast topics: --partitions 0: expected 1 to 2147483647"
    assert line in PAGE
    done = CliRunner().invoke(entry.main, ["topics", "create", "orders", "--partitions", "0"], prog_name="holdfast")
    assert (done.exit_code, done.stderr) == (2, f"{line}\n")


def test_operator_C9_readme_and_pages_name_what_there_is() -> None:
    readme = (ROOT / "README.md").read_text()
    assert not re.findall(r"pip install 'holdfast\[", readme), "it is not on PyPI"
    assert "broker-1/d2" not in readme and "no reassignment" not in readme
    rules = "".join(path.read_text() for path in ROOT.rglob("*.yml") if ".venv" not in path.parts)
    alerts = set(re.findall(r"alert: (\w+)", rules))
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    named = set(re.findall(r"`((?:Offline|Broker|Log|Under)\w+FromTheStart|LogDirectory\w+)`", pages))
    assert named <= alerts and "OfflineReplicasFromTheStart" in named
