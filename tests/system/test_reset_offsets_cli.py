"""``holdfast groups reset-offsets`` and ``delete-offsets`` against real brokers and stock consumers."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import holdfast.model.types
from holdfast.client.admin import AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.group_offsets import commit_resets
from holdfast.client.offset_resets import Reset
from holdfast.model.group_errors import UnknownMemberIdError
from holdfast.testing import Cluster
from tests.system.on_disks import QUIET, TIMEOUT_S, create

pytestmark = pytest.mark.system
BORN_MS = 1_700_000_000_000
"""Of the first record of each partition; each that follows is a second younger."""
RECORDS = 10


def run(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    command = [sys.executable, "-m", "holdfast.cli.main", "groups", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def reset(cluster: Cluster, group: str, *args: str) -> subprocess.CompletedProcess[str]:
    return run(cluster, "reset-offsets", "--group", group, *args)


def rows(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str, int, int]]:
    """GROUP TOPIC PARTITION NEW-OFFSET below the header."""
    assert done.returncode == 0, done.stderr
    empty, header, *lines = done.stdout.splitlines()
    assert (empty, header.split()) == ("", ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"])
    return [(g, t, int(p), int(o)) for g, t, p, o in map(str.split, lines)]


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why."""
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    (line,) = [each for each in done.stderr.splitlines() if not each.startswith("WARN")]
    assert line.startswith("holdfast groups: "), line
    return line.removeprefix("holdfast groups: ")


def fill(cluster: Cluster, topic: str, partitions: int = 2) -> None:
    """A topic with records 0 to 9 in each partition, which are old and stay all the same."""
    create(cluster, topic, [[1 + n % 3] for n in range(partitions)], retention_ms="-1")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for partition in range(partitions):
        for n in range(RECORDS):
            producer.produce(topic, str(n), partition=partition, timestamp=BORN_MS + 1000 * n)
    assert producer.flush(TIMEOUT_S) == 0


def consumer(cluster: Cluster, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", **QUIET,
        }
    )  # fmt: skip


def commit(cluster: Cluster, group: str, topic: str, *offsets: int) -> None:
    """As a consumer that is assigned its partitions, and in no group."""
    member = consumer(cluster, group)
    positions = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    member.commit(offsets=positions, asynchronous=False)
    member.close()


def committed(cluster: Cluster, group: str, topic: str, partitions: int = 2) -> list[int | None]:
    """None where there is nothing."""
    member = consumer(cluster, group)
    found = member.committed([TopicPartition(topic, partition) for partition in range(partitions)], TIMEOUT_S)
    member.close()
    return [None if each.offset < 0 else each.offset for each in found]


def first_record(cluster: Cluster, group: str, topic: str) -> str:
    """The value of what a subscribed member gets first."""
    member = consumer(cluster, group)
    member.subscribe([topic])
    message = member.poll(TIMEOUT_S)
    assert message is not None and message.error() is None, message
    value = message.value()
    member.close()
    assert value is not None
    return value.decode()


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-current",), [4, 6]),
        (("--to-offset", "5"), [5, 5]),
        (("--shift-by", "2"), [6, 8]),
        (("--shift-by", "-3"), [1, 3]),
        (("--to-datetime", "2023-11-14T22:13:22.500"), [3, 3]),
        (("--to-datetime", "2023-11-14T23:13:23.000+01:00"), [3, 3]),
        (("--by-duration", "P30000D"), [0, 0]),
    ],
)
def test_every_form_is_shown_and_then_done(
    cluster: Cluster, topic: str, form: tuple[str, ...], expected: list[int]
) -> None:
    fill(cluster, topic)
    commit(cluster, topic, topic, 4, 6)
    wanted = [(topic, topic, partition, offset) for partition, offset in enumerate(expected)]
    shown = reset(cluster, topic, "--topic", topic, *form)
    assert rows(shown) == wanted
    assert shown.stderr == "WARN: No action will be performed as the --execute option is missing.\n"
    assert committed(cluster, topic, topic) == [4, 6]
    done = reset(cluster, topic, "--all-topics", *form, "--execute")
    assert (rows(done), done.stderr) == (wanted, "")
    assert committed(cluster, topic, topic) == expected


def test_what_the_log_has_not_becomes_its_end_and_that_is_said(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    commit(cluster, topic, topic, 4, 6)
    beyond = reset(cluster, topic, "--topic", f"{topic}:1", "--to-offset", "99", "--dry-run")
    assert rows(beyond) == [(topic, topic, 1, 10)]
    assert beyond.stderr == (
        f"WARN New offset (99) is higher than latest offset for topic partition {topic}-1. Value will be set to 10\n"
    )
    before = reset(cluster, topic, "--topic", topic, "--shift-by", "-5", "--execute")
    assert [row[3] for row in rows(before)] == [0, 1]
    assert before.stderr == (
        f"WARN New offset (-1) is lower than earliest offset for topic partition {topic}-0. Value will be set to 0\n"
    )
    later = reset(cluster, topic, "--topic", topic, "--by-duration", "PT1S", "--execute")
    assert [row[3] for row in rows(later)] == [10, 10]
    assert f"WARN {topic}-0 has no record of that time or later. Value will be set to its end, 10" in later.stderr
    assert committed(cluster, topic, topic) == [10, 10]


def test_a_group_with_members_is_refused_by_its_state(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    commit(cluster, topic, topic, 4, 6)
    member = consumer(cluster, topic)
    member.subscribe([topic])
    assert member.poll(TIMEOUT_S) is not None
    why = refused(reset(cluster, topic, "--topic", topic, "--to-earliest", "--execute"))
    assert why == (
        f"Assignments can only be reset if the group '{topic}' is inactive, but the current state is Stable."
    )
    assert committed(cluster, f"other-{topic}", topic) == [None, None]
    several = run(
        cluster, "reset-offsets", "--group", topic, "--group", f"other-{topic}", "--topic", topic, "--to-latest",
        "--execute",
    )  # fmt: skip
    assert (several.returncode, "the current state is Stable" in several.stderr) == (1, True)
    assert committed(cluster, f"other-{topic}", topic) == [10, 10]  # what one refuses is no reason for another
    member.close()
    assert committed(cluster, topic, topic) == [4, 6]
    assert rows(reset(cluster, topic, "--topic", topic, "--to-offset", "7", "--execute"))
    assert first_record(cluster, topic, topic) == "7"


def test_a_plan_is_exported_and_goes_back(cluster: Cluster, topic: str, tmp_path: pathlib.Path) -> None:
    fill(cluster, topic)
    other = f"other-{topic}"
    commit(cluster, topic, topic, 4, 6)
    commit(cluster, other, topic, 1, 2)
    plan = tmp_path / "plan.csv"
    exported = reset(cluster, topic, "--all-topics", "--to-current", "--export", "--dry-run")
    assert (exported.stdout, exported.stderr) == (f"{topic},0,4\n{topic},1,6\n", "")
    plan.write_text(exported.stdout)
    assert rows(reset(cluster, topic, "--topic", topic, "--to-latest", "--execute"))
    assert rows(reset(cluster, topic, "--from-file", str(plan), "--execute"))
    assert committed(cluster, topic, topic) == [4, 6]
    both = ("reset-offsets", "--group", topic, "--group", other)
    exported = run(cluster, *both, "--all-topics", "--to-current", "--export", "--dry-run")
    plan.write_text(exported.stdout)
    assert exported.stdout.splitlines() == sorted(
        f"{group},{topic},{partition},{offset}"
        for group, offsets in ((topic, (4, 6)), (other, (1, 2)))
        for partition, offset in enumerate(offsets)
    )
    assert run(cluster, *both, "--topic", topic, "--to-earliest", "--execute").returncode == 0
    assert run(cluster, *both, "--from-file", str(plan), "--execute").returncode == 0
    assert (committed(cluster, topic, topic), committed(cluster, other, topic)) == ([4, 6], [1, 2])
    assert rows(run(cluster, "reset-offsets", "--all-groups", "--from-file", str(plan), "--dry-run"))[0][3] in (1, 4)


def test_what_does_not_exist_is_named_and_nothing_is_changed(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    new = f"new-{topic}"
    assert refused(reset(cluster, new, "--topic", f"no-{topic}", "--to-latest", "--execute")) == (
        f"topic 'no-{topic}' does not exist"
    )
    assert refused(reset(cluster, new, "--topic", f"{topic}:1,2", "--to-latest", "--execute")) == (
        f"topic '{topic}' has no partition 2: expected 0 to 1"
    )
    assert refused(reset(cluster, new, "--all-topics", "--to-latest", "--execute")) == (
        f"group '{new}' has committed no offsets: expected topics that are named"
    )
    commit(cluster, new, topic, 5)
    assert refused(reset(cluster, new, "--topic", topic, "--shift-by", "1", "--execute")) == (
        f"group '{new}': Cannot shift offset for partition {topic}-1 since there is no current committed offset"
    )
    assert committed(cluster, new, topic) == [5, None]


def test_offsets_are_deleted_where_no_member_subscribes(cluster: Cluster, topic: str) -> None:
    read, past = f"read-{topic}", f"past-{topic}"
    fill(cluster, read)
    fill(cluster, past)
    commit(cluster, topic, read, 4, 6)
    commit(cluster, topic, past, 1, 2)
    member = consumer(cluster, topic)
    member.subscribe([read])
    assert member.poll(TIMEOUT_S) is not None
    delete = ("delete-offsets", "--group", topic)
    both = run(cluster, *delete, "--topic", read, "--topic", f"{past}:1")
    assert both.returncode == 1
    assert both.stderr == f"holdfast groups: group '{topic}': 2 of 3 offsets could not be deleted\n"
    _, header, *lines = both.stdout.splitlines()
    assert header.split() == ["TOPIC", "PARTITION", "STATUS"]
    assert [line.split(None, 2)[2].strip() for line in lines] == [
        "Successful",
        *[f"Error: members of the group subscribe to {read}"] * 2,
    ]
    assert (committed(cluster, topic, past), committed(cluster, topic, read)) == ([1, None], [4, 6])
    member.close()
    done = run(cluster, *delete, "--topic", read)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Request succeeded for deleting offsets from group {topic}.\n\nTOPIC ")
    assert (committed(cluster, topic, past), committed(cluster, topic, read)) == ([1, None], [None, None])
    assert refused(run(cluster, *delete, "--topic", f"no-{topic}")) == f"topic 'no-{topic}' does not exist"
    assert refused(run(cluster, "delete-offsets", "--group", f"no-{topic}", "--topic", past)) == (
        f"group 'no-{topic}' does not exist"
    )


async def join_as_connect(bootstrap: str, group: str) -> None:
    """A member of another kind, as Kafka Connect's workers are; it leaves when its session is over."""
    from kio.schema.join_group.v7.request import JoinGroupRequest, JoinGroupRequestProtocol
    from kio.schema.types import GroupId

    async with AdminClient(bootstrap) as client:
        coordinator = await client.find_coordinator(group)
        member_id = ""
        while True:  # the first answer only says which id to join with
            request = JoinGroupRequest(
                group_id=GroupId(group),
                session_timeout=milliseconds(30_000),
                rebalance_timeout=milliseconds(30_000),
                member_id=member_id,
                group_instance_id=None,
                protocol_type="connect",
                protocols=(JoinGroupRequestProtocol(name="compatible", metadata=b""),),
            )
            answer = await client.ask_broker(coordinator.broker_id, request)
            if answer.error_code.value == 0:
                return
            assert not member_id, answer
            member_id = answer.member_id


def test_what_members_of_another_kind_read_nobody_can_tell(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    commit(cluster, topic, topic, 4, 6)
    asyncio.run(join_as_connect(cluster.bootstrap, topic))
    assert refused(run(cluster, "delete-offsets", "--group", topic, "--topic", topic)) == (
        f"group '{topic}' has members that are no consumers: expected none, as nobody can tell what these read"
    )
    assert refused(reset(cluster, topic, "--topic", topic, "--to-latest", "--execute")).endswith(
        f"the group '{topic}' is inactive, but the current state is CompletingRebalance."
    )
    # What a reset meets whose group has got members after it had looked.
    with pytest.raises(UnknownMemberIdError):
        asyncio.run(commit_by_hand(cluster.bootstrap, topic, topic))
    assert committed(cluster, topic, topic) == [4, 6]


async def commit_by_hand(bootstrap: str, group: str, topic: str) -> None:
    async with AdminClient(bootstrap) as client:
        await commit_resets(client, group, {holdfast.model.types.TopicPartition(topic, 0): Reset(offset=1)})


def test_groups_as_json(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    commit(cluster, topic, topic, 4, 10)
    listed = json.loads(run(cluster, "list", "--json").stdout)["groups"]
    assert {"group": topic, "state": "Empty", "protocol_type": None} in listed
    done = run(cluster, "describe", topic, f"no-{topic}", "--json")
    assert (done.returncode, done.stderr) == (1, f"holdfast groups: there is no group 'no-{topic}'\n")
    missing, found = json.loads(done.stdout)["groups"]
    assert missing == {"group": f"no-{topic}", "error": f"there is no group 'no-{topic}'"}
    assert (found["group"], found["state"], found["members"]) == (topic, "Empty", [])
    assert [(o["current_offset"], o["log_end_offset"], o["lag"]) for o in found["offsets"]] == [(4, 10, 6), (10, 10, 0)]
