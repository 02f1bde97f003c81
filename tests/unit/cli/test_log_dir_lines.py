"""Log directories as lines: Kafka's JSON byte for byte, room before a removal, progress of a move, the calculator."""

from __future__ import annotations

import json
import pathlib
import re
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.capacity import CapacityPlan, change, plans, tolerance
from holdfast.cli.kafka_errors import DeclinedUse
from holdfast.cli.log_dir_lines import (
    NoSuchBrokers,
    chosen_brokers,
    kafka_json,
    parse_replica,
    replica_lines,
    room_lines,
    size,
)
from holdfast.cli.log_dir_moves import THERE, Progress, progress_of
from holdfast.cli.log_dir_table import (
    chosen_disks,
    count_line,
    disk_lines,
    disks_document,
    reason_lines,
)
from holdfast.client.views import DisksView, DiskView, LogDirView, MoveView, ReplicaOnDisk
from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import TopicPartition

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0"
RECORDED = json.loads((GOLDEN / "kafka-log-dirs.json").read_text())
DESCRIBED = [r for r in RECORDED if "Received" in r["stdout"]]


def views_of(line: str) -> dict[int, tuple[LogDirView, ...]]:
    """What a broker must have answered for Kafka's tool to print this."""
    return {
        broker["broker"]: tuple(
            LogDirView(
                path=d["logDir"],
                error=None if d["error"] is None else KafkaStorageError(""),
                total_bytes=None,
                usable_bytes=None,
                replicas=tuple(
                    ReplicaOnDisk(
                        tp=parse_replica(p["partition"]), size_bytes=p["size"], offset_lag=p["offsetLag"],
                        future=p["isFuture"],
                    )
                    for p in d["partitions"]
                ),
            )
            for d in broker["logDirs"]
        )
        for broker in json.loads(line)["brokers"]
    }  # fmt: skip


@pytest.mark.parametrize("record", DESCRIBED, ids=lambda r: " ".join(r["command"][3:]))
def test_K113_12_the_json_is_kafkas_byte_for_byte(record: dict[str, Any]) -> None:
    line = record["stdout"].splitlines()[2]
    assert kafka_json(views_of(line)) == line


def test_K113_12_an_offline_directory_has_kafkas_exception() -> None:
    line = '{"brokers":[{"broker":1,"logDirs":[{"partitions":[],"error":"org.apache.kafka.common.errors.'
    line += 'KafkaStorageException","logDir":"/kafka/n1/d1"}]}],"version":1}'
    assert kafka_json(views_of(line)) == line


def test_K113_12_unknown_brokers_are_told_in_kafkas_words() -> None:
    recorded = next(r["stderr"] for r in RECORDED if "do not exist" in r["stderr"])
    with pytest.raises(NoSuchBrokers) as caught:
        chosen_brokers("1,7", [3, 1, 2])
    assert f"{caught.value.kafkas}\n" == recorded
    assert str(caught.value) == "--broker-list 1,7: there is no broker 7: expected some of 1, 2, 3"
    with pytest.raises(DeclinedUse, match=r"^--broker-list 1,abc: 'abc': expected ids of brokers with commas") as wrong:
        chosen_brokers("1,abc", [1])
    assert wrong.value.kafkas == 'For input string: "abc"'
    assert chosen_brokers(None, [2, 1]) == [1, 2]
    assert chosen_brokers("2,2,1", [1, 2]) == [2, 1]


# -- for people ----------------------------------------------------------------------------------------------------


def replica(name: str, size_bytes: int, *, lag: int = 0, future: bool = False) -> ReplicaOnDisk:
    return ReplicaOnDisk(tp=parse_replica(name), size_bytes=size_bytes, offset_lag=lag, future=future)


def disk(path: str, *replicas: ReplicaOnDisk, state: str = "online", usable: int | None = 1000) -> DiskView:
    reason = None if state == "online" else "[Errno 5] Input/output error"
    return DiskView(
        path=path, directory_id=None, state=state, reason=reason, since_ms=1_700_000_000_000, total_bytes=4096,
        usable_bytes=usable, probe_ms=1.25, cordoned=False, replicas=replicas,
    )  # fmt: skip


MOVE = MoveView(tp=TopicPartition("t", 1), source="/d1", target="/d2", lag=9, bytes_per_s=2048)
VIEW = DisksView(
    disks=(
        disk("/d1", replica("t-0", 10), replica("t-1", 2038)),
        disk("/d2", replica("t-1", 5, future=True)),
        disk("/d3", replica("u-0", 700, lag=-1), state="offline", usable=None),
    ),
    moves=(MOVE,),
)


def test_the_table_shows_state_room_and_moves() -> None:
    header, *lines = disk_lines({4: VIEW}, None)
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    since = "2023-11-14 22:13:20"
    assert rows == [
        ["4", "/d1", "online", since, "2", "2.0 KiB", "1000 B", "4.0 KiB", "1.2 ms", "-"],
        ["4", "/d2", "online", since, "0", "5 B", "1000 B", "4.0 KiB", "1.2 ms", "1, 9"],
        ["4", "/d3", "offline", since, "1", "700 B", "-", "4.0 KiB", "1.2 ms", "-"],
    ]
    assert header.split() == (
        [
            "BROKER",
            "DIRECTORY",
            "STATE",
            "SINCE",
            "(UTC)",
            "REPLICAS",
            "HOLD",
            "USABLE",
            "OF",
            "PROBE",
            "COMING,",
            "LAG",
        ]
    )
    assert reason_lines({4: VIEW}) == ["broker 4: /d3 is offline: [Errno 5] Input/output error"]


LONG = DisksView(
    disks=tuple(
        disk(f"/srv/disks/rack-7/disk-{n:03}/holdfast", state="full" if n == 7 else "offline" if n == 9 else "online")
        for n in range(100)
    ),
    moves=(),
)


def test_operator_C1_a_hundred_directories_in_a_pipe_are_a_hundred_lines() -> None:
    header, *lines = disk_lines({1: LONG}, None)
    assert len(lines) == 100
    assert len({len(line) for line in lines}) == 1  # columns
    assert all(
        line.split()[1] == d.path and line.split()[2] == d.state for line, d in zip(lines, LONG.disks, strict=True)
    )
    assert "COMING" not in header  # nothing is


@pytest.mark.parametrize(
    ("width", "there", "gone"),
    [
        (140, ["SINCE", "OF", "PROBE"], []),
        (100, ["REPLICAS", "HOLD", "OF"], ["PROBE"]),
        (80, ["REPLICAS", "HOLD", "USABLE"], ["SINCE", "PROBE"]),
        (60, ["BROKER", "STATE", "USABLE"], ["OF", "HOLD"]),
        (50, ["BROKER", "STATE", "USABLE"], ["REPLICAS"]),
    ],
)
def test_operator_C1_a_terminal_gets_lines_that_fit(width: int, there: list[str], gone: list[str]) -> None:
    """A path may be folded; nothing else is, and no line is longer than the terminal is wide."""
    header, *lines = disk_lines({1: LONG}, width)
    assert max(map(len, (header, *lines))) <= width
    assert all(name in header.split() for name in there) and not any(name in header.split() for name in gone)
    whole = "".join(line[8 : header.index("STATE")].strip() for line in lines)
    assert whole == "".join(d.path for d in LONG.disks)
    assert [line.split()[2] for line in lines if line.lstrip().startswith("1 ")] == [d.state for d in LONG.disks]


def test_operator_C1_directories_are_counted_and_chosen_by_state() -> None:
    assert count_line({1: LONG}) == "100 directories: 98 online, 1 full, 1 offline"
    cordoned = DisksView(disks=(replace(LONG.disks[0], cordoned=True),), moves=())
    assert count_line({1: cordoned}) == "1 directory: 1 online, 1 of them cordoned"
    assert count_line({}) == "0 directories: none"
    two = chosen_disks({1: LONG, 2: VIEW, 3: cordoned}, ("offline", "degraded"))
    assert {broker: [d.path for d in view.disks] for broker, view in two.items()} == {
        1: [LONG.disks[9].path],
        2: ["/d3"],
    }
    assert chosen_disks({1: LONG}, None) == {1: LONG}


def test_operator_C2_json_has_what_a_machine_needs_of_a_directory() -> None:
    found = json.loads(disks_document({4: VIEW}, {5: "it does not answer"}))
    assert found["directories"] == {"total": 3, "online": 2, "offline": 1}
    four, five = found["brokers"]
    assert five == {"broker": 5, "error": "it does not answer", "log_dirs": [], "moves": []}
    assert four["moves"] == [
        {"topic": "t", "partition": 1, "source": "/d1", "target": "/d2", "lag": 9, "bytes_per_s": 2048}
    ]
    one, _, three = four["log_dirs"]
    assert three == {
        "path": "/d3", "directory_id": None, "state": "offline", "healthy": False,
        "reason": "[Errno 5] Input/output error", "since_ms": 1_700_000_000_000, "cordoned": False,
        "room": {"usable_bytes": None, "total_bytes": 4096, "device": None}, "probe_ms": 1.25, "replica_bytes": 700,
        "replicas": [{"topic": "u", "partition": 0, "size_bytes": 700, "offset_lag": -1, "future": False}],
    }  # fmt: skip
    assert (one["state"], one["healthy"], one["reason"], one["room"]["usable_bytes"]) == ("online", True, None, 1000)


def test_replicas_of_a_dead_directory_are_still_listed() -> None:
    assert replica_lines({4: VIEW}, None) == [
        "4\t/d1\tt-0\t10",
        "4\t/d1\tt-1\t2038",
        "4\t/d2\tt-1\t5\tcomes from /d1: 9 records behind, 2.0 KiB/s",
        "4\t/d3\tu-0\t700\twas there",
    ]
    assert replica_lines({4: VIEW}, ["u"]) == ["4\t/d3\tu-0\t700\twas there"]


def test_K112_43_room_is_that_of_the_other_live_directories() -> None:
    lines, enough = room_lines(4, VIEW, "/d1/")
    assert not enough
    assert lines == [
        "the replicas of /d1/ on broker 4 need 2.0 KiB (2048 bytes)",
        "  /d2: 1000 B usable",
        "  /d3: offline",
        "  in all: 1000 B (1000 bytes)",
    ]
    assert room_lines(4, VIEW, "/d3")[1]


def test_B14_directories_on_one_file_system_share_its_room() -> None:
    going, other, dead = VIEW.disks
    shared = [replace(other, path=path, device=7) for path in ("/d2", "/d4")]
    view = replace(VIEW, disks=(going, *shared, replace(other, path="/d5", device=8), dead))
    assert room_lines(4, view, "/d1")[0][-1] == "  in all: 2.0 KiB (2000 bytes)"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 40, "3.0 TiB")])
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize("text", ["t", "-0", "t-", "t-x", "t-²"])
def test_what_is_no_replica(text: str) -> None:
    with pytest.raises(ValueError, match="expected TOPIC-PARTITION"):
        parse_replica(text)
    assert parse_replica("a-b-3") == TopicPartition("a-b", 3)


# -- moves ---------------------------------------------------------------------------------------------------------


def on_disk(path: str, *replicas: ReplicaOnDisk, dead: bool = False) -> LogDirView:
    return LogDirView(
        path=path, error=KafkaStorageError("") if dead else None, total_bytes=None, usable_bytes=None, replicas=replicas
    )


@pytest.mark.parametrize(
    ("dirs", "expected"),
    [
        ([on_disk("/a", replica("t-0", 9)), on_disk("/b", replica("t-0", 4, future=True))], Progress(4, 9, None)),
        ([on_disk("/a"), on_disk("/b", replica("t-0", 9))], Progress(9, 9, THERE)),
        ([on_disk("/a", replica("t-0", 9)), on_disk("/b", dead=True)], Progress(0, 0, "/b is offline")),
        (
            [on_disk("/a", replica("t-0", 9)), on_disk("/b")],
            Progress(0, 9, "the copy is gone, the replica is in /a"),
        ),
        ([on_disk("/a"), on_disk("/b")], Progress(0, 0, "the replica is gone")),
    ],
)
def test_progress_of_a_move(dirs: list[LogDirView], expected: Progress) -> None:
    assert progress_of(TopicPartition("t", 0), dirs, "/b/") == expected


# -- capacity ------------------------------------------------------------------------------------------------------


def test_K112_98_three_rows_against_raid_10() -> None:
    was, *rest = plans(2)
    assert was == CapacityPlan("RAID-10", 2, 4)
    found = [(change(p.copies, 4), p.brokers_lost, tolerance(p.disks_lost, was.disks_lost)) for p in rest]
    assert found == [("-50 %", 1, "lower"), ("-25 %", 2, "lower"), ("same", 3, "same")]


def test_K112_98_the_calculator_prints_them() -> None:
    result = CliRunner().invoke(entry.main, ["capacity", "--data", "1T"])
    _, *rows, meaning = result.stdout.splitlines()
    assert (result.exit_code, len(rows), max(map(len, rows)) <= 80) == (0, 4, True)
    assert [re.split(" {2,}", row)[:3] for row in rows[1:3]] == [
        ["plain disks", "2", "2.0 TiB (-50 %)"], ["plain disks", "3", "3.0 TiB (-25 %)"],
    ]  # fmt: skip
    assert meaning.startswith("BROKERS, DISKS: how many may fail")


def test_capacity_as_json() -> None:
    result = CliRunner().invoke(entry.main, ["capacity", "--data", "1TB", "--json", "--before", "3"])
    was, *rest = json.loads(result.stdout)["plans"]
    assert (was["layout"], was["replication_factor"], was["bytes"]) == ("RAID-10", 3, 6 * 10**12)
    assert [(each["bytes"], each["disks_that_may_fail"]) for each in rest] == [
        (2 * 10**12, 1), (3 * 10**12, 2), (4 * 10**12, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["much", "0", "0T", "-1T", "1.T"])
def test_what_is_no_size(text: str) -> None:
    wrong = CliRunner().invoke(entry.main, ["capacity", "--data", text])
    assert (wrong.exit_code, wrong.stdout, "expected a size like 500G" in wrong.stderr) == (2, "", True)
