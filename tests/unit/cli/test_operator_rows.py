"""What operators have met with commands that need no cluster: how they fail, and what they say then."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.groups import chosen_groups
from holdfast.cli.reassign_lines import list_document
from holdfast.cli.transaction_lines import document, hanging_document
from holdfast.client.transactions import ProducerView, TransactionListing, TransactionView
from holdfast.client.views import GroupListing, ReassignmentView
from holdfast.model.types import TopicPartition
from holdfast.testing import wait_for
from tests.commands import command_at

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


def holdfast(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(entry.main, args, prog_name="holdfast")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def one_line(args: list[str], code: int, said: str) -> None:
    """That it ends so, with a line of the command's name and nothing else."""
    got, out, err = holdfast(*args)
    assert (got, out, err.count("\n")) == (code, "", 1), (args, got, out, err)
    assert err.startswith(f"holdfast {args[0]}: ") and said in err, err
    assert "java" not in err and "apache" not in err and "Traceback" not in err


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
    return found


@pytest.mark.parametrize("path", every_command(entry.main), ids=" ".join)
def test_operator_C4_wrong_usage_of_every_command_is_one_line_and_2(path: tuple[str, ...]) -> None:
    code, out, err = holdfast(*path, "--no-such-option")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"holdfast {path[0]}: ") and "--no-such-option" in err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["topics", "create", *NOBODY], 2, "expected the NAME of a topic"),
        (["topics", "delete", *NOBODY], 2, "expected the NAME of a topic"),
        (["topics", "create", "t", "--topic", "u", *NOBODY], 2, "--topic u and t: expected one of them"),
        (["topics", "create", "t", "--config", "x", *NOBODY], 2, "--config 'x': expected KEY=VALUE"),
        (["topics", "list", *NOBODY], 1, "no broker can be reached"),
        (["groups", "describe", *NOBODY], 2, "expected names of groups, or --all-groups"),
        (["groups", "delete", *NOBODY], 2, "expected names of groups"),
        (["groups", "list", *NOBODY], 1, "no broker can be reached"),
        (["log-dirs", "move", "--broker", "1", "--to", "/d", *NOBODY], 2, "expected TOPIC-PARTITION, or --from PATH"),
        (["log-dirs", "describe", *NOBODY], 1, "no broker can be reached"),
        (["reassign", "list", *NOBODY], 1, "no broker can be reached"),
        (["transactions", "list", *NOBODY], 1, "no broker can be reached"),
        (["transactions", "abort", "--topic", "t", "--partition", "0", *NOBODY], 2, "expected --start-offset"),
        (["elect", "preferred", *NOBODY], 2, "expected one of --topic, --all-topic-partitions, --path-to-json-file"),
        (["elect", "preferred", "--topic", "t", *NOBODY], 1, "no broker can be reached"),
        (["features", "upgrade", *NOBODY], 2, "which features to upgrade? expected --feature"),
        (["features", "describe", *NOBODY], 1, "no broker can be reached"),
        (["brokers", "ids", "list", *NOBODY], 1, "no broker can be reached"),
        (["brokers", "ids", "list", "--config", "/nope"], 1, "/nope: No such file or directory"),
        (["cluster", "unregister", "--id", "1", *NOBODY], 1, "no broker can be reached"),
        (["metadata", "check"], 2, "give --data-dir DIR of `holdfast up`, or --config FILE for each broker"),
        (["metadata", "check", "--config", "/nope"], 1, "/nope: No such file or directory"),
        (["lake", "--topic", "t"], 2, "Missing option '--to'"),
        (["lake", "status", "--to", "/nope"], 1, "/nope: there is no table"),
        (["audit", "--topic", "t", *NOBODY], 1, "no broker can be reached"),
        (["audit", "--quick", *NOBODY], 1, "no broker can be reached"),
        (["top", "--once", *NOBODY], 1, "no broker can be reached"),
        (["cluster", "health", *NOBODY], 1, "no broker can be reached"),
        (["configs", "describe", "--topic", "t", *NOBODY], 1, "no broker can be reached"),
        (["perf", "produce", "--topic", "t", "--records", "1", *NOBODY], 1, "no broker can be reached"),
        (["broker", "/nope"], 2, "'/nope' does not exist"),
        (["capacity", "--data", "x"], 2, "'x': expected a size like 500G"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_operator_C4_every_command_says_it_once_in_one_form(args: list[str], code: int, said: str) -> None:
    one_line(args, code, said)


def test_operator_C4_the_command_that_is_none() -> None:
    code, out, err = holdfast("topic", "list")
    assert (code, out, err) == (2, "", "holdfast: No such command 'topic'. Did you mean 'topics'?\n")


def test_operator_C4_a_broker_that_cannot_start_says_so_once(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where the log is set up already it is the test of operator_C6 below."""
    from holdfast.broker.process import run_broker

    file = tmp_path / "b.properties"
    file.write_text("node.id=x\n")
    assert run_broker(str(file)) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith("holdfast broker: ") and "node.id" in err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["topics", "create", "x", "--partitions", "3000000000", *NOBODY], 2, "--partitions 3000000000: expected 1 to"),
        (["topics", "alter", "x", "--partitions", "3000000000", *NOBODY], 2, "--partitions 3000000000: expected 1 to"),
        (["topics", "create", "x", "--partitions", "0", *NOBODY], 2, "--partitions 0: expected 1 to 2147483647"),
        (["topics", "create", "x", "--replication-factor", "70000", *NOBODY], 2, "70000: expected 1 to 32767"),
        (["produce", "x", "--key-separator", "\\", *NOBODY], 2, "--key-separator '\\\\'"),
        (["consume", "x", "--key-separator", "\\x", *NOBODY], 2, "--key-separator '\\\\x'"),
        (["audit", "--driver-memory", "foo", *NOBODY], 2, "'foo': expected a size like 512m or 2g"),
        (
            ["lake", "--topic", "t", "--to", "/t", "--checkpoint", "/c", "--driver-memory", "1", *NOBODY],
            2,
            "'1': expect",
        ),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_operator_C5_no_traceback_for_values_that_cannot_be(args: list[str], code: int, said: str) -> None:
    one_line(args, code, said)


@pytest.mark.parametrize("verb", ["execute", "verify", "cancel"])
def test_operator_C5_C6_a_plan_that_is_none_is_named(verb: str, tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "plan.json"
    command = ["reassign", verb, "--reassignment-json-file", str(plan), *NOBODY]
    one_line(command, 1, f"{plan}: No such file or directory")
    plan.write_bytes(b"\xff\xfe\x00")
    one_line(command, 2, f"{plan} is no text: ")
    plan.write_text("")
    one_line(command, 2, f"{plan}: Expecting value: line 1 column 1 (char 0)")
    topics = ["reassign", "generate", "--broker-list", "1", "--topics-to-move-json-file", str(plan), *NOBODY]
    one_line(topics, 2, f"{plan}: Expecting value: ")
    election = ["elect", "preferred", "--path-to-json-file", str(plan), *NOBODY]
    one_line(election, 2, f"{plan}: Expecting value: ")


@pytest.mark.parametrize("args", [["--help"], ["topics", "--help"], ["capacity"], ["log-dirs", "describe", "-h"]])
def test_operator_C5_a_full_disk_below_standard_output_is_one_line(args: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*HOLDFAST, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("holdfast") and "standard output: No space left on device" in done.stderr


def test_operator_C6_a_port_that_is_not_a_brokers_is_asked_about() -> None:
    """One that never answers is test_profiles.py's; one that speaks HTTP says so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            asked, _ = listening.accept()
            with asked:
                asked.recv(1000)
                asked.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        other = threading.Thread(target=answer)
        other.start()
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        code, out, err = holdfast("topics", "list", "-b", where)
        other.join(60)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.endswith(f"{where}: it speaks HTTP: expected a broker's port for clients\n")


def test_operator_C6_the_log_directory_is_named_and_not_the_file_of_properties(tmp_path: pathlib.Path) -> None:
    """A file is in the way of the directory."""
    (tmp_path / "out").write_text("")
    file = tmp_path / "c.properties"
    file.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/out/x\nmetrics.port=0\n")
    done = subprocess.run([*HOLDFAST, "broker", str(file)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    [last] = [line for line in done.stderr.splitlines() if line.startswith("holdfast broker: ")]
    assert f"{tmp_path}/out" in last and "CRITICAL" not in done.stderr, done.stderr


ASKS = """
import click
from holdfast.cli import main as entry
from holdfast.cli.connecting import confirmed
from holdfast.cli.failing import OneLineCommand
@click.command(cls=OneLineCommand)
def ask():
    confirmed("delete 2 topics:", ["a", "b"], yes=False)
    click.echo("done")
entry.COMMANDS["ask"] = entry.CommandPlace("__main__:ask", "")
entry.main(["ask"], prog_name="holdfast")
"""


def state_of(process: int) -> str:
    """S: it waits."""
    return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [(b"y\n", 0, ""), (b"n\n", 1, "holdfast ask: nothing was done, as the answer was no"), (b"\x03", 130, "")],
    ids=["yes", "no", "ctrl-c"],
)
def test_operator_C6_a_question_that_is_not_answered_by_yes(answer: bytes, code: int, said: str) -> None:
    """At a terminal, where Ctrl-C is a key."""

    def take_the_terminal() -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it may be ignored where the tests run in the background
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ASKS]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=take_the_terminal
    ) as asking:
        os.close(theirs)
        assert asking.stderr is not None
        asked = b""
        while not asked.endswith(b"[y/N]: "):
            byte = asking.stderr.read(1)
            assert byte, asked
            asked += byte
        # Only one that reads is interrupted: before that the key waits with the next one.
        wait_for(lambda: state_of(asking.pid) == "S", "it reads", timeout_s=20)
        os.write(ours, answer)
        out, err = asking.communicate(timeout=60)
    os.close(ours)
    assert asked == b"delete 2 topics: a, b? [y/N]: "
    assert (asking.returncode, out) == (code, b"" if code else b"done\n")
    assert err.decode().strip() == said


def test_operator_2_lake_draws_no_bar_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli.lake import _BarReport
    from holdfast.spark.lake_job import LakeProgress

    report = _BarReport()
    with report:
        report.progress(LakeProgress(topic="t", batch=1, records=5, bad=0, total=5, total_bad=0, behind=3))
    assert capsys.readouterr() == ("", "")


# -- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", every_command(entry.main), ids=" ".join)
def test_operator_2_every_command_has_an_example_that_it_takes(path: tuple[str, ...]) -> None:
    """Each example of a command is parsed by the command itself, values included."""
    code, out, _ = holdfast(*path, "--help")
    name = " ".join(("holdfast", *path))
    lines = [line.strip() for line in out.splitlines() if re.match(rf" +(.*\| )?{name} ", line + " ")]
    assert (code, bool(lines)) == (0, True), "an example is missing: cli/examples.py"
    command, parent = command_at(path)
    if isinstance(command, click.Group):
        return
    for line in lines:
        words = shlex.split(re.split(r" \| | \|\| | > ", line[line.index(name) :])[0])[1 + len(path) :]
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for file in ("plan.json", "topics.json"):
                pathlib.Path(file).write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}')
            if path == ("broker",):
                words = ["plan.json"]
            command.make_context(path[-1], words, parent=parent)


@pytest.fixture(scope="module")
def short_help() -> dict[str, list[object]]:
    """What every command does with -h, in a process of its own: click has a command keep the help option of its first
    context, and what other tests of a worker run by itself never knew -h."""
    code = f"""
import json
from {__name__} import entry, every_command, holdfast
print(json.dumps({{" ".join(path): holdfast(*path, "-h") for path in every_command(entry.main)}}))
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, cwd=pathlib.Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("path", every_command(entry.main), ids=" ".join)
def test_operator_2_help_has_a_short_form_and_no_colours(
    path: tuple[str, ...], short_help: dict[str, list[object]]
) -> None:
    code, out, err = short_help[" ".join(path)]
    assert (code, err) == (0, "")
    shown = holdfast(*path, "--help")[1].replace("  --help ", "  -h, --help ")
    assert isinstance(out, str) and out.startswith(f"Usage: holdfast {' '.join(path)} ")
    assert out.split() == shown.split()
    assert "\x1b" not in out


def test_operator_2_an_option_means_the_same_wherever_it_is() -> None:
    """One broker, several, names: as the table of the page has it."""
    kinds: dict[str, set[str]] = {}
    for path in every_command(entry.main):
        for option in command_at(path)[0].params:
            if isinstance(option, click.Option):
                for name in option.opts:
                    kinds.setdefault(name, set()).add(f"{type(option.type).__name__}, flag {option.is_flag}")
    one_kind = ("--json", "--broker-list", "--topic-list", "--bootstrap-server", "-b", "--group", "--yes", "--profile",
                "--request-timeout", "--data-dir", "--config", "--execute", "--dry-run", "--throttle")  # fmt: skip
    assert {name: sorted(kinds[name]) for name in one_kind if len(kinds[name]) != 1 and name != "--config"} == {}
    assert all("Int" in kind for kind in kinds["--broker"]), kinds["--broker"]
    assert kinds["--brokers"] == {"IntRange, flag False"}
    page = (pathlib.Path(__file__).parents[3] / "docs/command-line.md").read_text()
    table = page.split("## Names of options")[1].split("##")[0]
    assert all(f"`{name}`" in table for name in ("--topic", "--broker ID", "--broker-list", "--brokers N"))


def test_operator_2_help_shows_the_form_of_plans_and_where_keys_are() -> None:
    assert '{"version":1,"partitions":[{"topic":"orders"' in holdfast("reassign", "execute", "--help")[1]
    shown = " ".join(holdfast("topics", "create", "--help")[1].split())
    assert "docs/configuration.md" in shown
    assert "HOLDFAST_LOG_LEVEL" in holdfast("broker", "--help")[1]


def test_operator_2_the_version_has_a_short_form_and_the_package_is_run_as_a_module() -> None:
    assert holdfast("-V") == holdfast("--version")
    done = subprocess.run([sys.executable, "-m", "holdfast", "-V"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, holdfast("-V")[1])


# -- what has no cluster -------------------------------------------------------------------------------------------


def test_operator_3_a_directory_says_whose_it_is(tmp_path: pathlib.Path) -> None:
    mine, nobodys = tmp_path / "mine", tmp_path / "nobodys"
    for name in ("t-0", "a-b-12", "t-1.0f2c-future", "u-0.ab12-stray", "u-1.cd34-delete"):
        (mine / name).mkdir(parents=True)
    (mine / "meta.properties").write_text("#\nversion=1\nnode.id=3\ncluster.id=Xy\ndirectory.id=Zz\n")
    nobodys.mkdir()
    (nobodys / "thesis.txt").write_text("")
    code, out, err = holdfast("log-dirs", "inspect", str(mine), str(nobodys), str(tmp_path / "no"))
    assert (code, err) == (1, f"holdfast log-dirs: {tmp_path}/no: No such file or directory\n")
    assert out.splitlines() == [
        f"{mine}: of broker 3, cluster Xy, directory Zz; 2 partitions, 1 on their way here, 1 being deleted, 1 set"
        " aside",
        f"{nobodys}: of nobody: it has no meta.properties; 0 partitions",
    ]
    [told] = json.loads(holdfast("log-dirs", "inspect", str(mine), "--json")[1])["log_dirs"]
    assert told == {
        "path": str(mine), "broker": 3, "cluster_id": "Xy", "directory_id": "Zz", "partitions": 2, "future": 1,
        "delete": 1, "stray": 1,
    }  # fmt: skip


def test_operator_3_groups_are_chosen_by_state_and_type() -> None:
    a = GroupListing(group_id="a", protocol_type="consumer", state="Stable")
    b = GroupListing(group_id="b", protocol_type="connect", state="Empty")
    c = GroupListing(group_id="c", protocol_type="", state="Empty")
    assert chosen_groups([a, b, c], None, None) == chosen_groups([a, b, c], frozenset(), None) == [a, b, c]
    assert chosen_groups([a, b, c], frozenset({"Empty"}), None) == [b, c]
    assert chosen_groups([a, b, c], frozenset({"Empty"}), frozenset({"", "consumer"})) == [c]
    one_line(["groups", "list", "--state", "alive", *NOBODY], 2, "'alive': expected some of Stable, Empty, Prep")


# -- JSON of what has no cluster -----------------------------------------------------------------------------------


def test_operator_C2_reassignments_as_json() -> None:
    running = {TopicPartition("t", 1): ReassignmentView(replicas=(3, 2, 1), adding=(3,), removing=(1,))}
    assert json.loads(list_document(running)) == {
        "version": 1,
        "reassignments": [{"topic": "t", "partition": 1, "replicas": [3, 2, 1], "adding": [3], "removing": [1]}],
    }
    assert json.loads(list_document({})) == {"version": 1, "reassignments": []}


def test_operator_C2_transactions_as_json() -> None:
    listed = TransactionListing(transactional_id="x", coordinator=2, producer_id=7, state="Ongoing")
    assert json.loads(document("transactions", [listed])) == {
        "version": 1,
        "transactions": [{"transactional_id": "x", "coordinator": 2, "producer_id": 7, "state": "Ongoing"}],
    }
    view = TransactionView(
        transactional_id="x", coordinator=2, producer_id=7, producer_epoch=1, state="Empty", timeout_ms=60_000,
        start_ms=None, partitions=(TopicPartition("t", 1),),
    )  # fmt: skip
    [described] = json.loads(document("transactions", [view]))["transactions"]
    assert (described["start_ms"], described["partitions"]) == (None, [{"topic": "t", "partition": 1}])
    producer = ProducerView(
        producer_id=7, producer_epoch=1, last_sequence=4, last_timestamp_ms=5, coordinator_epoch=None, start_offset=9
    )
    assert json.loads(hanging_document([(TopicPartition("t", 1), producer)]))["hanging"] == [
        {
            "topic": "t", "partition": 1, "producer_id": 7, "producer_epoch": 1, "last_sequence": 4,
            "last_timestamp_ms": 5, "coordinator_epoch": None, "start_offset": 9,
        }
    ]  # fmt: skip


LISTS = {
    "acls list", "users list", "quotas list",
    "topics list", "topics describe", "topics offsets", "groups list", "groups describe", "transactions list",
    "transactions describe", "transactions describe-producers", "transactions find-hanging", "log-dirs describe",
    "configs describe", "brokers ids list", "cluster describe", "cluster health", "metadata check", "metadata dump",
    "metadata tree", "metadata diff", "reassign list", "features describe", "capacity", "lake status", "spark doctor",
    "audit",
}  # fmt: skip


def test_operator_C2_everything_that_lists_or_describes_has_json() -> None:
    for path in sorted(LISTS):
        assert "--json" in holdfast(*path.split(), "--help")[1], path
    named = {
        " ".join(path) for path in every_command(entry.main) if path[-1] in ("list", "describe", "health", "status")
    }
    assert named <= LISTS, "a command that lists or describes is new: it needs --json, and a line here"
