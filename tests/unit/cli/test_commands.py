"""The command line itself: options, exit codes, help; nothing here needs a cluster."""

import pathlib
import signal
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from holdfast import __version__
from holdfast.cli import main as entry
from holdfast.cli.escapes import unescape
from holdfast.cli.kafka_words import exception_name, qualified, said
from holdfast.cli.record_lines import InputError, LineForm
from holdfast.cli.topics import TopicOptionError, parse_assignment
from holdfast.model import errors as e
from holdfast.model import group_errors as g

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]


def holdfast(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(entry.main, args, prog_name="holdfast")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_help_names_every_command() -> None:
    code, out, _ = holdfast("--help")
    assert code == 0
    for name in entry.COMMANDS:
        assert f"\n  {name} " in out


def test_version() -> None:
    assert holdfast("--version") == (0, f"holdfast, version {__version__}\n", "")


@pytest.mark.parametrize("name", ["up", "broker", "topics", "groups", "log-dirs", "reassign", "produce", "consume"])
def test_every_command_has_help(name: str) -> None:
    code, out, _ = holdfast(name, "--help")
    assert (code, out.startswith(f"Usage: holdfast {name}")) == (0, True)


def test_up_loads_nothing_that_only_people_and_spark_need() -> None:
    script = (
        "import sys; from holdfast.cli.main import main\n"
        "try: main(['up', '--set', 'x'], prog_name='holdfast')\n"
        "except SystemExit: pass\n"
        "import holdfast.cli.local_cluster, holdfast.broker.process\n"
        "print(sorted({'rich', 'pyspark', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_command_whose_extra_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    place = entry.CommandPlace("holdfast.cli.lacking:lacking", "")
    monkeypatch.setitem(entry.COMMANDS, "lacking", place)  # type: ignore[arg-type]

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="pyspark.sql")

    monkeypatch.setattr(entry, "import_module", missing)
    code, _, err = holdfast("lacking")
    assert code == 1
    assert "pip install 'holdfast[spark]'" in err


def test_an_unreachable_cluster_fails_at_once() -> None:
    said = "no broker can be reached: cannot connect to 127.0.0.1:1: connection refused"
    for words in (
        ["topics", "list"],
        ["groups", "list"],
        ["produce", "t"],
        ["consume", "t"],
        ["brokers", "ids", "list"],
    ):
        code, out, err = holdfast(*words, *NOBODY)
        assert (code, out, err.splitlines()[0]) == (1, "", f"holdfast {words[0]}: {said}")


@pytest.mark.parametrize("asked", ["option", "option of the group", "variable"])
def test_an_unreachable_cluster_fails_in_kafkas_words(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if asked == "variable":
        monkeypatch.setenv("HOLDFAST_KAFKA_ERRORS", "1")
    of_group, own = [["--kafka-errors"] if asked == a else [] for a in ("option of the group", "option")]
    code, out, err = holdfast("topics", *of_group, "list", *own, *NOBODY)
    assert code == 1
    assert out.startswith("Error while executing topic command : no broker can be reached: ")
    assert "127.0.0.1:1: connection refused" in out
    assert err.startswith("ERROR org.apache.kafka.common.errors.DisconnectException")
    code, out, err = holdfast("groups", *of_group, "list", *own, *NOBODY)
    assert (code, err) == (1, "")
    assert out.startswith("\nError: Executing consumer group command failed due to org.apache.kafka.common.errors.Dis")
    code, out, err = holdfast("log-dirs", *of_group, "describe", *own, *NOBODY)
    assert (code, out) == (1, "")
    assert err.startswith("ERROR org.apache.kafka.common.errors.DisconnectException: no broker can be reached")
    code, out, err = holdfast("transactions", *of_group, "list", *own, *NOBODY)
    assert (code, out) == (1, "")
    assert err.startswith("Failed to list transactions: no broker can be reached: ")


def test_what_is_missing_is_named() -> None:
    assert holdfast("topics", "create", *NOBODY) == (2, "", "holdfast topics: expected the NAME of a topic\n")
    said = "holdfast groups: expected names of groups, or --all-groups\n"
    assert holdfast("groups", "describe", *NOBODY) == (2, "", said)
    assert holdfast("groups", "delete", *NOBODY) == (2, "", "holdfast groups: expected names of groups\n")
    code, _, err = holdfast("topics", "create", "--kafka-errors", *NOBODY)
    assert (code, 'Missing required argument "[topic]"' in err) == (1, True)
    code, _, err = holdfast("groups", "describe", "--kafka-errors", *NOBODY)
    assert (code, "[group], [all-groups]" in err) == (1, True)
    assert holdfast("produce")[0] == 2
    assert holdfast("consume")[0] == 2


@pytest.mark.parametrize(
    "args",
    [
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t", "--offset", "5"],
        ["consume", "t", "--partition", "0", "--offset", "five"],
        ["consume", "t", "--partition", "0", "--offset", "5", "--from-beginning"],
        ["up", "--brokers", "0"],
        ["up", "--set", "novalue"],
        ["up", "--port", "70000"],
        ["broker", "/nowhere.properties"],
    ],
)
def test_options_that_cannot_be_meant_are_refused(args: list[str]) -> None:
    assert holdfast(*args)[0] == 2


def test_up_refuses_a_bad_setting_in_one_line(tmp_path: pathlib.Path) -> None:
    code, out, err = holdfast("up", "--data-dir", str(tmp_path), "--set", "log.segment.bytes=x")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "log.segment.bytes" in err


# -- small parts -----------------------------------------------------------------------------------------------


def test_assignments() -> None:
    assert parse_assignment("1:2,2:3") == {0: (1, 2), 1: (2, 3)}
    with pytest.raises(
        TopicOptionError, match=r"^--replica-assignment 1:1: partition 0 has broker 1 more than once"
    ) as twice:
        parse_assignment("1:1")
    assert twice.value.kafkas == "Partition replica lists may not contain duplicate entries: 1"
    with pytest.raises(TopicOptionError, match="partition 1 has 1 replicas and partition 0 has 2") as uneven:
        parse_assignment("1:2,3")
    assert uneven.value.kafkas == "Partition 1 has different replication factor: [3]"
    with pytest.raises(TopicOptionError, match="expected broker ids"):
        parse_assignment("a")


def test_lines_become_keys_and_values() -> None:
    assert LineForm(key_separator=b":")(b"a:b:c", 1)[:2] == (b"a", b"b:c")
    assert LineForm()(b"a:b", 1)[:2] == (None, b"a:b")
    with pytest.raises(InputError, match="line 7: 'ab'"):
        LineForm(key_separator=b":")(b"ab", 7)


def test_separators_are_unescaped() -> None:
    assert unescape("\\t") == b"\t"
    assert unescape("::") == b"::"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (e.TopicAlreadyExistsError(), "TopicExistsException"),
        (e.InvalidTopicError(), "InvalidTopicException"),
        (e.InvalidReplicationFactorError(), "InvalidReplicationFactorException"),
        (e.InvalidPartitionsError(), "InvalidPartitionsException"),
        (e.ConfigError(), "InvalidConfigurationException"),
        (g.GroupIdNotFoundError(), "GroupIdNotFoundException"),
        (g.NonEmptyGroupError(), "GroupNotEmptyException"),
        (e.UnknownTopicOrPartitionError(), "UnknownTopicOrPartitionException"),
        (e.NotEnoughReplicasError(), "NotEnoughReplicasException"),
        (e.LogAppendError(), "KafkaStorageException"),
    ],
)
def test_errors_have_kafkas_names(error: e.HoldfastError, name: str) -> None:
    assert exception_name(error) == name
    assert qualified(error, "m") == f"org.apache.kafka.common.errors.{name}: m"


def test_a_brokers_own_message_comes_first() -> None:
    assert said(g.NonEmptyGroupError("mine")) == "mine"
    assert said(g.NonEmptyGroupError()) == "The group is not empty."


def test_K112_100_C14_what_kip_112_struck_out_is_not_here() -> None:
    """No state of the controller's in a node of its own, no reset request, no deletion by way of ZooKeeper."""
    sources = pathlib.Path(entry.__file__).parents[1]
    text = "\n".join(path.read_text() for path in sources.rglob("*.py"))
    for name in ("controller_managed_state", "LogDirReset", "log_dir_reset"):
        assert name not in text
    code, _, err = holdfast("topics", "delete", "t", "--zookeeper", "localhost:2181")
    assert code != 0 and "No such option" in err


def test_operator_C5_operator_C6_what_cannot_be_read_is_named_without_a_trace(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.broker.process import run_broker

    code, _, err = holdfast("produce", "t", "--key-separator", "\\", *NOBODY)
    assert (code, "--key-separator" in err) == (2, True)
    code, out, err = holdfast("topics", "list", "--bootstrap-server", "h:99999")
    assert (code, out) == (2, "")
    assert err == "holdfast topics: bootstrap server 'h:99999': expected HOST:PORT, and a port of 1 to 65535\n"
    plan = tmp_path / "plan.json"
    plan.write_text("{")
    assert str(plan) in holdfast("reassign", "verify", "--reassignment-json-file", str(plan), *NOBODY)[2]
    plan.write_bytes(b"\xff\xfe\x00")
    assert "is no text" in holdfast("reassign", "verify", "--reassignment-json-file", str(plan), *NOBODY)[2]
    assert run_broker(str(plan)) == 1
    assert f"{plan} is no text" in capfd.readouterr().err
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "foo")
    plan.write_text(f"node.id=1\nlog.dirs={tmp_path}/d\n")
    assert run_broker(str(plan)) == 1
    assert "HOLDFAST_LOG_LEVEL=foo: expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL" in capfd.readouterr().err


def test_operator_C6_a_command_that_is_nearly_right_is_named() -> None:
    code, _, err = holdfast("topic", "list")
    assert (code, "No such command 'topic'. Did you mean 'topics'?" in err) == (2, True)


def test_operator_C6_ctrl_c_in_a_move_says_what_goes_on() -> None:
    """The broker that is asked never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        move = ["log-dirs", "move", "t-0", "--broker", "1", "--to", "/disk2", "--bootstrap-server", where]
        script = f"from holdfast.cli.main import main; main({move!r}, prog_name='holdfast')"
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            asked, _ = silent.accept()
            with asked:
                asked.recv(1)  # it is in the middle of it now
                running.send_signal(signal.SIGINT)
                out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err.strip() == (
        "moves that have begun go on: holdfast log-dirs describe --replicas; a move back to where it is cancels it"
    )
