"""How a command ends that could not do what it was asked."""

from __future__ import annotations

import errno

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.failing import Failed, Misused, OneLineCommand, OneLineGroup, one_line
from holdfast.client.errors import ConnectionLost
from holdfast.model.errors import InvalidRequestError, UnknownTopicOrPartitionError

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]


@click.group(cls=OneLineGroup)
def things() -> None:
    """For the test."""


@click.command(cls=OneLineCommand)
@click.option("--number", type=int)
@click.argument("how", required=False)
def thing(number: int | None, how: str | None) -> None:
    """Fails as it is told."""
    if how == "misused":
        raise Misused("--a and --b: expected one")
    if how in ERRORS:
        raise ERRORS[how][0]


things.add_command(thing)
things.add_command(click.Command("plain", callback=thing.callback, params=list(thing.params)))

ERRORS: dict[str, tuple[Exception, str]] = {
    "failed": (Failed("topic t: no key 'x'"), "topic t: no key 'x'"),
    "lines": (Failed("one\n  two"), "one two"),
    "several": (Failed("t-0: no", "t-1: no"), "t-0: no\nholdfast {}: t-1: no"),
    "broker": (InvalidRequestError("what the broker says"), "what the broker says"),
    "silent": (UnknownTopicOrPartitionError(), "UNKNOWN_TOPIC_OR_PARTITION"),
    "network": (ConnectionLost("h:1 closed the connection"), "h:1 closed the connection"),
    "full": (OSError(errno.ENOSPC, "No space left on device"), "standard output: No space left on device"),
    "file": (FileNotFoundError(errno.ENOENT, "No such file", "plan.json"), "plan.json: No such file"),
}


def ends(command: click.Command, *args: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(command, args)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("how", ERRORS)
def test_what_fails_is_one_line_and_1(how: str) -> None:
    said = ERRORS[how][1]
    assert ends(things, "plain", how) == (1, "", f"holdfast things: {said.format('things')}\n")
    assert ends(thing, how) == (1, "", f"holdfast thing: {said.format('thing')}\n")


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["plain", "--number", "x"], "'x'"),
        (["plain", "--nothing"], "--nothing"),
        (["nope"], "'nope'"),
        (["--no"], "--no"),
    ],
)
def test_wrong_usage_is_one_line_and_2(args: list[str], named: str) -> None:
    code, out, err = ends(things, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("holdfast things: ") and named in err


def test_a_command_of_a_group_that_ends_otherwise_has_the_groups_name() -> None:
    root = click.Group("holdfast", commands=[click.Group("others", commands=[thing])])
    assert ends(root, "others", "thing", "failed") == (1, "", "holdfast others: topic t: no key 'x'\n")
    assert ends(root, "others", "thing", "misused") == (2, "", "holdfast others: --a and --b: expected one\n")
    code, _, err = ends(root, "others", "thing", "--nothing")
    assert (code, err.startswith("holdfast others: ")) == (2, True)


def test_help_is_no_error() -> None:
    assert ends(things, "--help")[0] == 0
    assert ends(things, "plain", "--help")[0] == 0
    code, out, err = ends(things)
    assert (code in (0, 2), "Usage:" in out + err, "holdfast things:" in err) == (True, True, False)


def test_a_message_is_one_line_whatever_it_was() -> None:
    assert one_line("configs", "a\n\tb  c") == "holdfast configs: a b c"


@pytest.mark.parametrize(
    "command", [["configs", "describe", "--broker-default"], ["cluster", "describe"], ["cluster", "health"]]
)
def test_the_commands_say_so_that_nobody_answers(command: list[str]) -> None:
    code, out, err = ends(entry.main, *command, *NOBODY)
    assert (code, out) == (1, "")
    assert err == (
        f"holdfast {command[0]}: no broker can be reached: cannot connect to 127.0.0.1:1: connection refused\n"
    )
    code, out, err = ends(entry.main, *command, "--bootstrap-server", "h:99999")
    assert (code, out) == (2, "")
    assert err == (f"holdfast {command[0]}: bootstrap server 'h:99999': expected HOST:PORT, and a port of 1 to 65535\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["describe"], "expected one of --topic NAME, --broker ID, --broker-default"),
        (["describe", "--topic", "t", "--broker", "1"], "expected one of --topic NAME, --broker ID, --broker-default"),
        (["set", "--topic", "t"], "Missing argument 'KEY=VALUE...'."),
        (["set", "--topic", "t", "retention.ms"], "'retention.ms': expected KEY=VALUE, or KEY+=VALUE"),
        (["set", "--topic", "t", "a=1", "a=2"], "a comes twice: expected each key once"),
        (["unset", "--topic", "t", "a=1"], "'a=1': expected a KEY alone"),
        (["set", "--broker", "-1", "a=1"], "-1 is not in the range"),
    ],
)
def test_configs_that_cannot_be_meant_are_refused_before_anybody_is_asked(args: list[str], said: str) -> None:
    code, out, err = ends(entry.main, "configs", *args, *NOBODY)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("holdfast configs: ") and said in err
