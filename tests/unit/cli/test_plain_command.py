"""The error form of new subcommands: one line on standard error, and an exit code."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.plain_command import Failed, Misused, PlainCommand, words_of
from holdfast.model.errors import HoldfastError, LeaderNotAvailableError, UnknownTopicOrPartitionError


@click.group()
def topics() -> None:
    """As a group of subcommands is."""


RAISED: dict[str, Exception] = {
    "failed": Failed("topic 'x' does not exist"),
    "twice": Failed("t-0: no", "t-1: no"),
    "misused": Misused("--a and --b: expected one of them"),
    "usage": click.UsageError("not\nlike\nthis"),
    "told": UnknownTopicOrPartitionError("topic 'x' does not exist"),
    "bare": LeaderNotAvailableError(),
}


@topics.command(cls=PlainCommand)
@click.argument("name")
@click.option("--number", type=int)
def act(name: str, number: int | None) -> None:
    raise RAISED[name]


@pytest.mark.parametrize(
    ("args", "code", "err"),
    [
        (["failed"], 1, "topic 'x' does not exist"),
        (["misused"], 2, "--a and --b: expected one of them"),
        (["usage"], 2, "not like this"),
        (["told"], 1, "topic 'x' does not exist"),
        (["bare"], 1, "LeaderNotAvailable"),
        ([], 2, "Missing argument 'NAME'."),
        (["x", "--number", "y"], 2, "Invalid value for '--number': 'y' is not a valid integer."),
    ],
)
def test_every_failure_is_one_line_that_begins_with_the_command(args: list[str], code: int, err: str) -> None:
    result = CliRunner().invoke(topics, ["act", *args], prog_name="holdfast topics")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"holdfast topics: {err}\n")


def test_several_failures_are_a_line_each() -> None:
    result = CliRunner().invoke(topics, ["act", "twice"], prog_name="holdfast topics")
    assert result.stderr == "holdfast topics: t-0: no\nholdfast topics: t-1: no\n"


def test_a_full_disk_behind_standard_output_leaves_no_trace() -> None:
    script = (
        "import click; from holdfast.cli.plain_command import PlainCommand; "
        "group = click.Group(commands=[PlainCommand('say', callback=lambda: click.echo('much'))]); "
        "group(['say'], prog_name='holdfast topics')"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, "holdfast topics: standard output: No space left on device\n")


def test_an_error_without_words_has_kafkas_name() -> None:
    assert words_of(HoldfastError("w")) == "w"
    assert words_of(UnknownTopicOrPartitionError()) == "UnknownTopicOrPartition"
