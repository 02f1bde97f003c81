"""Which cluster commands ask: option, variable, profile, default; and what a shell completes."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.completing import LIMIT_S
from holdfast.cli.profiles import KEYS, Profile, ProfileError, config_path, load_profile, parse_profiles
from tests.commands import command_at
from tests.unit.cli.test_operator_rows import every_command

FILE = """
[default]
bootstrap-server = "127.0.0.1:1"

[two]
bootstrap-server = ["127.0.0.1:2", "127.0.0.1:3"]
request-timeout = 2.5

[empty]
"""
ASKED = ["topics", "list"]
NOBODY = "holdfast topics: no broker can be reached: cannot connect to {}: connection refused"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a user who has set nothing else."""
    for name in ("HOLDFAST_CONFIG", "HOLDFAST_PROFILE", "HOLDFAST_BOOTSTRAP_SERVER", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".config/holdfast/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(FILE)
    return path


def holdfast(*args: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(entry.main, args, prog_name="holdfast", env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.stdout == ""
    return done.exit_code, done.stderr


def test_operator_2_option_before_variable_before_profile_before_default(config: Path) -> None:
    """As the command shows that cannot reach anybody, by whom it names."""
    variable = {"HOLDFAST_BOOTSTRAP_SERVER": "127.0.0.1:5"}
    chosen = {"HOLDFAST_PROFILE": "two"}
    both = "127.0.0.1:2: connection refused; cannot connect to 127.0.0.1:3"
    for args, environment, address in (
        ([], {}, "127.0.0.1:1"),
        (["--profile", "two"], {}, both),
        ([], chosen, both),
        (["--profile", "default"], chosen, "127.0.0.1:1"),
        ([], variable | chosen, "127.0.0.1:5"),
        (["--profile", "two"], variable, "127.0.0.1:5"),
        (["-b", "127.0.0.1:6"], variable | chosen, "127.0.0.1:6"),
        (["--bootstrap-server", "127.0.0.1:6", "--profile", "two"], variable, "127.0.0.1:6"),
        (["--profile", "empty", "-b", "127.0.0.1:6"], {}, "127.0.0.1:6"),
    ):
        assert holdfast(*ASKED, *args, **environment) == (1, NOBODY.format(address) + "\n")
    config.unlink()
    assert load_profile(None, {"HOME": str(config.parents[2])}) == Profile()


def test_operator_2_every_command_that_asks_brokers_has_the_short_form_and_shows_variables() -> None:
    """Also the commands to come: wherever an option has a variable, --help says so."""
    asks = 0
    for path in every_command(entry.main):
        for option in command_at(path)[0].params:
            if not isinstance(option, click.Option):
                continue
            if "--bootstrap-server" in option.opts:
                asks += 1
                assert "-b" in option.opts, path
            assert option.envvar is None or option.show_envvar, (path, option.opts)
    assert asks > 30
    shown = CliRunner().invoke(entry.main, ["topics", "list", "--help"]).stdout
    for name in ("HOLDFAST_BOOTSTRAP_SERVER", "HOLDFAST_PROFILE", "HOLDFAST_REQUEST_TIMEOUT", "HOLDFAST_KAFKA_ERRORS"):
        assert f"[env var: {name}" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[default]\nbootstrap-servers = 'a:1'\n", "[default] bootstrap-servers: expected bootstrap-server?"),
        ("[default]\nzzz = 1\n", "[default] zzz: expected one of bootstrap-server, request-timeout"),
        ("bootstrap-server = 'a:1'\n", "bootstrap-server is in no profile: expected [default] or another one above it"),
        ("[default]\nbootstrap-server = 1\n", "[default] bootstrap-server = 1: expected \"HOST:PORT,...\" or a list"),
        ("[default]\nbootstrap-server = []\n", "[default] bootstrap-server = []: expected \"HOST:PORT,...\" or a list"),
        ("[default]\nbootstrap-server = 'a:x'\n", "[default] bootstrap-server = 'a:x': bootstrap server 'a:x': "),
        ("[default]\nrequest-timeout = 0\n", "[default] request-timeout = 0: expected a number of seconds above 0"),
        ("[default]\nrequest-timeout = true\n", "[default] request-timeout = True: expected a number of seconds"),
        ("[default\n", "expected TOML, as [default] and bootstrap-server ="),
    ],
)  # fmt: skip
def test_operator_2_what_a_file_has_that_is_nothing_is_refused_by_name(config: Path, content: str, said: str) -> None:
    config.write_text(content)
    code, err = holdfast(*ASKED)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"holdfast topics: {config}: ") and said in err


def test_operator_2_a_profile_or_a_file_that_is_not_there_is_named(config: Path) -> None:
    assert holdfast(*ASKED, "--profile", "three") == (
        2, f"holdfast topics: {config}: there is no profile 'three': expected one of default, two, empty\n",
    )  # fmt: skip
    code, err = holdfast(*ASKED, HOLDFAST_CONFIG="/nope.toml")
    assert (code, err) == (
        2, "holdfast topics: /nope.toml: No such file or directory: expected the file that HOLDFAST_CONFIG names\n",
    )  # fmt: skip
    config.write_bytes(b"\xff")
    assert f"{config} is no text" in holdfast(*ASKED)[1]
    config.unlink()
    assert (
        f"{config}: No such file or directory: expected the file with the profile 'two'"
        in (holdfast(*ASKED, "--profile", "two")[1])
    )
    assert holdfast(*ASKED, "-b", "127.0.0.1:6")[0] == 1


def test_places_of_the_file() -> None:
    assert config_path({"HOME": "/h"}) == (Path("/h/.config/holdfast/config.toml"), False)
    assert config_path({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == (Path("/x/holdfast/config.toml"), False)
    assert config_path({"HOME": "/h", "HOLDFAST_CONFIG": "/c.toml"}) == (Path("/c.toml"), True)


def test_a_profile_says_what_it_says() -> None:
    assert parse_profiles(FILE, "f")["two"] == Profile("127.0.0.1:2,127.0.0.1:3", 2.5)
    assert parse_profiles("", "f") == {}
    with pytest.raises(ProfileError, match=r"^f: there"):
        raise ProfileError("f: there")
    assert set(KEYS) == {"bootstrap-server", "request-timeout", "command-config"}


@pytest.mark.parametrize("by", ["option", "variable", "profile"])
def test_operator_2_a_broker_that_does_not_answer_is_waited_for_as_long_as_was_said(by: str, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        config.write_text("[default]\nrequest-timeout = 0.3\n" if by == "profile" else "")
        option = ["--request-timeout", "0.3"] if by == "option" else []
        variable = {"HOLDFAST_REQUEST_TIMEOUT": "0.3"} if by == "variable" else {}
        said = f"cannot connect to {where}: connected, and no answer within 0.3 s: is it a broker's port for clients?"
        code, err = holdfast(*ASKED, "-b", where, *option, **variable)
        assert (code, err) == (1, f"holdfast topics: no broker can be reached: {said}\n")


# -- completion ----------------------------------------------------------------------------------------------------


def completed(words: str, **environment: str) -> list[str]:
    """What bash is given for the last word."""
    typed = words.split(" ")
    done = CliRunner().invoke(
        entry.main, [], prog_name="holdfast",
        env={"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": words,
             "COMP_CWORD": str(len(typed) - 1), **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return [line.removeprefix("plain,") for line in done.stdout.splitlines() if line]


def test_operator_2_commands_and_options_are_completed() -> None:
    assert completed("holdfast topi") == ["topics"]
    assert completed("holdfast topics de") == ["delete", "describe"]
    assert "--bootstrap-server" in completed("holdfast topics list --boot")
    script = CliRunner().invoke(entry.main, [], prog_name="holdfast", env={"_HOLDFAST_COMPLETE": "zsh_source"})
    assert "#compdef holdfast" in script.stdout


def test_operator_2_completion_of_names_is_silent_where_nobody_answers(config: Path) -> None:
    assert completed("holdfast topics describe t") == []
    assert completed("holdfast nonsense t") == ["topics", "transactions", "top"]  # what there is in its place
    config.write_text("[default")
    assert completed("holdfast topics describe t") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        assert completed("holdfast topics describe t", HOLDFAST_BOOTSTRAP_SERVER=where) == []
        assert time.monotonic() - began < LIMIT_S + 2
