"""Lines and CSV of resets against what Apache Kafka 4.3.0 printed, and how options are read and refused."""

import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.failing import Failed, Misused
from holdfast.cli.partition_words import parse_topic, partitions_of
from holdfast.cli.reset_lines import deletion_lines, export_lines, failures, parse_plan, reset_lines
from holdfast.client.views import ClusterMetadata, PartitionMetadata, TopicView
from holdfast.model.errors import InvalidRequestError
from holdfast.model.group_errors import NonEmptyGroupError
from holdfast.model.types import TopicPartition

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0/kafka-consumer-groups.json"
NOBODY = ["--bootstrap-server", "127.0.0.1:1"]
T0, T1 = TopicPartition("t2", 0), TopicPartition("t2", 1)


def recorded(*wanted: str) -> str:
    """Standard output of Kafka's tool for these arguments, when the group had no members."""
    stdout = [r["stdout"] for r in json.loads(GOLDEN.read_text()) if r["command"][3:] == list(wanted)][-1]
    assert isinstance(stdout, str)
    return stdout


def holdfast(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(entry.main, args, prog_name="holdfast")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_lines_of_a_reset_are_kafkas() -> None:
    kafkas = recorded("--reset-offsets", "--group", "cg", "--topic", "t2", "--to-earliest", "--dry-run").splitlines()
    ours = list(reset_lines({"cg": {T1: 0, T0: 0}}))
    assert sorted(ours) == sorted(kafkas)
    assert ours[:2] == kafkas[:2]  # the order of partitions there is that of a hash map
    one = recorded("--reset-offsets", "--group", "cg", "--topic", "t2:1", "--to-offset", "5", "--execute")
    assert list(reset_lines({"cg": {T1: 5}})) == one.splitlines()
    assert list(reset_lines({})) == []


def test_long_names_widen_their_columns() -> None:
    topic, group = TopicPartition("topic-of-24-characters-x", 3), "group-of-20-characters"
    _, header, row = reset_lines({group: {topic: 7}})
    assert header == "GROUP                  TOPIC                    PARTITION  NEW-OFFSET"
    assert row == "group-of-20-characters topic-of-24-characters-x 3          7"


def test_the_csv_is_kafkas_and_is_read_again() -> None:
    kafkas = recorded("--reset-offsets", "--group", "cg", "--all-topics", "--to-latest", "--execute", "--export")
    assert list(export_lines({"cg": {T1: 400}}, with_group=False)) == kafkas.splitlines()[:1]
    plan = {'a "group", so': {T0: 1, T1: 2}, "b": {T0: 3}}
    text = "\n".join(export_lines(plan, with_group=True))
    assert parse_plan(text, list(plan)) == plan
    assert parse_plan(kafkas, ["cg"]) == {"cg": {T1: 400}}


def test_a_plan_may_leave_out_the_group_only_if_there_is_one() -> None:
    assert parse_plan("t2,0,5\n\nt2,1,-1\n", ["g"]) == {"g": {T0: 5, T1: -1}}
    assert parse_plan("g,t2,0,5\nh,t2,0,6\n", ["g"]) == {"g": {T0: 5}, "h": {T0: 6}}
    with pytest.raises(ValueError, match=r"^line 1: '0,5': expected group,topic,partition,offset$"):
        parse_plan("t2,0,5\n", ["g", "h"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line in it: expected "),
        ("t2,0,5\nt2,0\n", "line 2: 't2,0': expected topic,partition,offset"),
        ("t2,x,5\n", "line 1: 't2,x,5': expected topic,partition,offset"),
        ("t2,-1,5\n", "line 1: 't2,-1,5': expected topic,partition,offset"),
        ("t2,0,5\nt2,0,6\n", "line 2: t2-0 of group 'g' stands there twice"),
        ('"t2,0,5\n', "it is no CSV: "),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused_by_line(text: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_plan(text, ["g"])
    assert says in str(refused.value)


def test_the_lines_of_deleted_offsets_are_kafkas() -> None:
    kafkas = recorded("--delete-offsets", "--group", "cg", "--topic", "t2")
    first = "Request succeeded for deleting offsets from group cg."
    assert [first, *deletion_lines({T1: None, T0: None})] == kafkas.splitlines()
    assert list(deletion_lines({T0: "why"}))[-1] == "t2              0          Error: why     "


def test_a_failure_names_its_group_once() -> None:
    active = NonEmptyGroupError("the group 'a' is inactive, but")
    assert failures({"b": InvalidRequestError("x"), "a": active}) == [str(active), "group 'b': x"]


# -- partitions ----------------------------------------------------------------------------------------------------


def view(**counts: int) -> ClusterMetadata:
    topics: dict[str, Any] = {
        name: TopicView(
            name=name,
            topic_id=None,
            internal=False,
            partitions=tuple(
                PartitionMetadata(partition=n, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=())
                for n in range(count)
            ),
        )
        for name, count in counts.items()
    }
    return ClusterMetadata(cluster_id=None, controller_id=None, brokers={}, topics=topics)


def test_topics_with_and_without_partitions() -> None:
    assert parse_topic("t") == ("t", None)
    assert parse_topic("t:2,0,2") == ("t", (0, 2))
    for text in ("", ":0", "t:", "t:x", "t:-1", "t:0,,1", "t:²", f"t:{2**31}"):
        with pytest.raises(Misused):
            parse_topic(text)


def test_partitions_that_do_not_exist_are_named() -> None:
    there = view(t=3, u=1)
    assert partitions_of(there, [("u", None), ("t", (2,)), ("t", (0, 2))]) == [("t", 0), ("t", 2), ("u", 0)]
    with pytest.raises(Failed, match="topic 't' has no partition 3, 7: expected 0 to 2"):
        partitions_of(there, [("t", (0, 3, 7))])
    with pytest.raises(Failed, match="topic 'no' does not exist"):
        partitions_of(there, [("no", None)])


# -- the command line ----------------------------------------------------------------------------------------------

GROUP_AND_TOPIC = ("--group", "g", "--topic", "t")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--topic", "t", "--to-latest"), "expected --group, or --all-groups"),
        (("--all-groups", "--group", "g", "--topic", "t", "--to-latest"), "expected --group, or --all-groups"),
        (GROUP_AND_TOPIC, "no form of a reset: expected one of --to-earliest, --to-latest, "),
        ((*GROUP_AND_TOPIC, "--to-latest", "--to-offset", "0"), "--to-latest and --to-offset: expected one of "),
        (("--group", "g", "--to-latest"), "One of the reset scopes should be defined: --all-topics, --topic."),
        ((*GROUP_AND_TOPIC, "--all-topics", "--to-latest"), "One of the reset scopes should be defined"),
        ((*GROUP_AND_TOPIC, "--to-latest", "--dry-run", "--execute"), "--dry-run and --execute: expected one of them"),
        ((*GROUP_AND_TOPIC, "--to-offset", "five"), "'five' is not a valid integer"),
        ((*GROUP_AND_TOPIC, "--shift-by", "x"), "'x' is not a valid integer"),
        ((*GROUP_AND_TOPIC, "--to-datetime", "today"), "--to-datetime 'today': expected YYYY-MM-DDTHH:mm:SS.sss"),
        ((*GROUP_AND_TOPIC, "--by-duration", "1h"), "--by-duration '1h': expected PnDTnHnMnS"),
        (("--group", "g", "--topic", "t:a", "--to-latest"), "--topic t: 'a': expected numbers of partitions"),
        ((*GROUP_AND_TOPIC, "--too-much"), "No such option '--too-much'"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(args: tuple[str, ...], says: str) -> None:
    code, out, err = holdfast("groups", "reset-offsets", *args, *NOBODY)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("holdfast groups: ")
    assert says in err


def test_a_plan_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "plan.csv"
    reset = ("groups", "reset-offsets", "--group", "g", "--dry-run", "--from-file", str(plan), *NOBODY)
    assert holdfast(*reset) == (1, "", f"holdfast groups: --from-file {plan}: No such file or directory\n")
    plan.write_bytes(b"\xff\xfe")
    assert holdfast(*reset) == (1, "", f"holdfast groups: --from-file {plan} is no text: expected CSV\n")
    plan.write_text("h,t,0,5\n")
    assert holdfast(*reset) == (1, "", f"holdfast groups: --from-file {plan}: No reset plan for group g found\n")
    plan.write_text("t,0,5\n")
    code, _, err = holdfast(*reset, "--topic", "t")
    assert (code, err.startswith("holdfast groups: --from-file names the partitions: ")) == (2, True)


def test_an_unreachable_cluster_is_one_line() -> None:
    for command in (("reset-offsets", "--to-latest", "--execute"), ("delete-offsets",)):
        code, out, err = holdfast("groups", *command, *GROUP_AND_TOPIC, *NOBODY)
        assert (code, out) == (1, "")
        assert err.startswith("holdfast groups: no broker can be reached: cannot connect to 127.0.0.1:1: ")
        assert len(err.splitlines()) == 1
    code, _, err = holdfast("groups", "delete-offsets", "--group", "g")
    assert (code, err) == (2, "holdfast groups: Missing option '--topic'.\n")
