"""What people ordinarily do with a cluster's directories and commands, and every record is there afterwards."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable

import confluent_kafka
import pytest

from holdfast.testing import Cluster, ClusterError, wait_for
from tests.conftest import STEADY_DISKS

pytestmark = pytest.mark.system

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


def run(cluster: Cluster, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    return subprocess.run([*HOLDFAST, *args], input=stdin, capture_output=True, text=True, timeout=60, env=environment)


def ok(cluster: Cluster, *args: str, stdin: str = "") -> str:
    """Standard output of a command that has to end with 0."""
    done = run(cluster, *args, stdin=stdin)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def produce(cluster: Cluster, topic: str, lines: Iterable[object]) -> None:
    ok(cluster, "produce", topic, stdin="".join(f"{line}\n" for line in lines))


def records(cluster: Cluster, topic: str, expected: int) -> list[str]:
    """All of the topic up to its end offsets, sorted; ``expected`` of them are waited for."""
    found: dict[tuple[int, int], str] = {}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        numbers = consumer.list_topics(topic, 60).topics[topic].partitions
        places = [confluent_kafka.TopicPartition(topic, number, 0) for number in numbers]
        ends = {place.partition: consumer.get_watermark_offsets(place, 60) for place in places}
        count = sum(end - begin for begin, end in ends.values())
        consumer.assign(places)

        def all_read() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                place, value = (message.partition(), message.offset()), (message.value() or b"").decode()
                assert place not in found, f"{place} of {ends} came twice: {found[place]}, {value}; {len(found)} before"
                found[place] = value
            return len(found) >= max(count, expected)

        wait_for(all_read, f"{expected} records of {topic}, to its end offsets {ends}")
    finally:
        consumer.close()
    return sorted(found.values())


def numbers(count: int) -> list[str]:
    return sorted(map(str, range(count)))


def test_A1_a_copy_works_on_the_copy_alone(tmp_path: pathlib.Path) -> None:
    orig, copy = tmp_path / "orig", tmp_path / "copy"
    with Cluster(brokers=1, data_dir=orig, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "4")
        produce(cluster, "t", range(1000))
        cluster.stop()
    shutil.copytree(orig, copy)
    with (
        Cluster(brokers=1, data_dir=copy) as other,
        Cluster(brokers=1, data_dir=orig, settings=STEADY_DISKS) as cluster,
    ):
        assert records(other, "t", 1000) == numbers(1000)  # both run at once
        ok(other, "topics", "delete", "t")
        assert records(cluster, "t", 1000) == numbers(1000)
        produce(cluster, "t", range(1000, 1500))
    with Cluster(brokers=1, data_dir=orig, settings=STEADY_DISKS) as cluster:
        assert records(cluster, "t", 1500) == numbers(1500)


def test_A1_a_copy_that_shares_a_disk_with_the_original_does_not_start(tmp_path: pathlib.Path) -> None:
    orig, copy, disk = tmp_path / "orig", tmp_path / "copy", tmp_path / "disk"
    disk.mkdir()
    (orig / "broker-1").mkdir(parents=True)
    (orig / "broker-1/log-dir-2").symlink_to(disk)
    with Cluster(brokers=1, data_dir=orig, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "4")
        produce(cluster, "t", range(1000))
        cluster.stop()
        shutil.copytree(orig, copy, symlinks=True)
        with pytest.raises(ClusterError, match=f"{copy} is a copy of {orig}"):
            Cluster(brokers=1, data_dir=copy).start()
        cluster.start()
        assert records(cluster, "t", 1000) == numbers(1000)


def test_A2_a_cluster_that_was_moved_and_moved_back_has_everything(tmp_path: pathlib.Path) -> None:
    orig, moved = tmp_path / "orig", tmp_path / "moved"
    with Cluster(data_dir=orig, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "6", "--replication-factor", "3")
        produce(cluster, "t", range(1000))
        cluster.stop()
    orig.rename(moved)
    with Cluster(data_dir=moved, settings=STEADY_DISKS) as cluster:
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 1000) == numbers(1000)
        produce(cluster, "t", range(1000, 2000))
        cluster.stop()
    assert not orig.exists()
    moved.rename(orig)
    with Cluster(data_dir=orig, settings=STEADY_DISKS) as cluster:
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 2000) == numbers(2000)


def test_A2_a_cluster_without_any_of_its_records_does_not_start(tmp_path: pathlib.Path) -> None:
    orig, away = tmp_path / "orig", tmp_path / "away"
    with Cluster(brokers=1, data_dir=orig, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "4")
        produce(cluster, "t", range(1000))
        cluster.stop()
        (orig / "broker-1").rename(away)
        with pytest.raises(ClusterError, match="no log directory of its brokers holds anything"):
            cluster.start()
        away.rename(orig / "broker-1")
        cluster.start()
        assert records(cluster, "t", 1000) == numbers(1000)


def test_A3_a_directory_that_was_added_stays_after_a_restart(tmp_path: pathlib.Path) -> None:
    data, disk = tmp_path / "data", tmp_path / "disk3"
    disk.mkdir()
    with Cluster(brokers=1, data_dir=data, log_dirs=3, settings=STEADY_DISKS) as cluster:
        ok(cluster, "log-dirs", "add", "--broker", "1", str(disk))
        ok(cluster, "topics", "create", "t", "--partitions", "8")
        produce(cluster, "t", range(1000))
        assert [*disk.glob("t-*")], "nothing of t is on the directory that was added"
        cluster.stop()
        cluster.log_dirs = 4
        cluster.start()
        assert str(disk) in cluster.describe_log_dirs(1)
        assert records(cluster, "t", 1000) == numbers(1000)


def test_A3_a_directory_that_is_left_out_is_told_and_its_records_wait_for_it(tmp_path: pathlib.Path) -> None:
    data, disk = tmp_path / "data", tmp_path / "disk3"
    disk.mkdir()
    properties = data / "broker-1.properties"
    with Cluster(brokers=1, data_dir=data, settings=STEADY_DISKS) as cluster:
        before = properties.read_text()
        ok(cluster, "log-dirs", "add", "--broker", "1", str(disk))
        ok(cluster, "topics", "create", "t", "--partitions", "3")
        produce(cluster, "t", range(1000))
        there = sorted(p.name for p in disk.glob("t-*"))
        assert there
        cluster.stop()
        properties.write_text(before)  # as with a broker whose file somebody else looks after
        cluster.start()
        told = f"{disk} was a log directory of broker 1 at its last start and is not in log.dirs now"
        wait_for(lambda: told in cluster.log_tail(), told, timeout_s=15)  # a thread writes it
        wait_for(lambda: f"no leader: {there[0]}" in cluster.log_tail(), "the line after ready", timeout_s=15)
        lines = ok(cluster, "topics", "describe", "t", "--unavailable-partitions").splitlines()
        assert [line.split("\t")[2] for line in lines] == [f"Partition: {name[2:]}" for name in there]
        assert not [*data.glob(f"broker-1/log-dir-*/{there[0]}")]  # no empty one
        table = ok(cluster, "log-dirs", "describe")
        assert "it was a log directory at the last start and is not in log.dirs" in table

        refused = run(cluster, "log-dirs", "remove", "--broker", "1", str(disk))
        assert (refused.returncode, f"may have the last copy of {there[0]}" in refused.stderr) == (1, True)

        ok(cluster, "log-dirs", "online", "--broker", "1", str(disk))
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 1000) == numbers(1000)
        cluster.stop()
        cluster.log_dirs = 3
        cluster.start()  # it is in the file now
        assert records(cluster, "t", 1000) == numbers(1000)


def test_A3_what_others_have_is_made_anew_and_an_empty_copy_never_wins(tmp_path: pathlib.Path) -> None:
    data, disk = tmp_path / "data", tmp_path / "disk3"
    disk.mkdir()
    properties = data / "broker-1.properties"
    with Cluster(brokers=2, data_dir=data, settings=STEADY_DISKS) as cluster:
        before = properties.read_text()
        ok(cluster, "log-dirs", "add", "--broker", "1", str(disk))
        ok(cluster, "topics", "create", "both", "--replica-assignment", ",".join(["1:2"] * 6))
        ok(cluster, "topics", "create", "only", "--replica-assignment", ",".join(["1"] * 6))
        produce(cluster, "both", range(500))
        produce(cluster, "only", range(500))
        cluster.wait_in_sync()
        only = sorted(p.name for p in disk.glob("only-*"))
        assert only and [*disk.glob("both-*")]
        cluster.kill_all()  # no directory is closed clean: who was in the ISR is in it
        properties.write_text(before)
        cluster.start()
        cluster.wait_in_sync(["both"])  # K112-41
        assert records(cluster, "both", 500) == numbers(500)
        assert not [*data.glob(f"broker-1/log-dir-*/{only[0]}")]
        cluster.stop()
        properties.write_text(before.replace("\nlog.dirs=", f"\nlog.dirs={disk},"))
        cluster.log_dirs = 3
        cluster.start()
        cluster.wait_in_sync()
        assert records(cluster, "only", 500) == numbers(500)
        assert records(cluster, "both", 500) == numbers(500)


def test_kill_all_leaves_nobody_the_time_to_end_well(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that heard of the end of ``up`` shut down and left its ISRs, which a power cut does not have it do."""
    sent: list[tuple[int, int]] = []
    real = os.kill

    def told(pid: int, number: int) -> None:
        if number:
            sent.append((pid, number))
        real(pid, number)

    with Cluster(brokers=2, data_dir=tmp_path / "data", settings=STEADY_DISKS) as cluster:
        up, brokers = cluster.pid, set(cluster.pids().values())
        monkeypatch.setattr(os, "kill", told)
        cluster.kill_all()
        monkeypatch.undo()
        assert sent[0] == (up, signal.SIGSTOP) and sent[-1] == (up, signal.SIGKILL)
        assert set(sent[1:-1]) == {(pid, signal.SIGKILL) for pid in brokers}
        cluster.start()
        assert set(cluster.live()) == {1, 2}


def die(cluster: Cluster, number: int, away: pathlib.Path) -> pathlib.Path:
    """A log directory of broker 1 dies while the broker runs: its files are elsewhere, a file is in its place."""
    place = cluster.log_dir(1, number)
    place.rename(away)
    place.touch()
    wait_for(lambda: cluster.describe_log_dirs(1)[str(place)].error != 0, f"{place} is offline", timeout_s=30)
    return place


def test_A3_a_disk_that_died_and_was_replaced_by_an_empty_one_leads_nothing_K112_41(tmp_path: pathlib.Path) -> None:
    """It died while its broker ran and was the last in sync; the other broker has lost nothing and comes back."""
    with Cluster(brokers=2, data_dir=tmp_path / "data", settings=STEADY_DISKS) as cluster:
        options = ("--config", "min.insync.replicas=2")
        ok(cluster, "topics", "create", "both", "--replica-assignment", ",".join(["1:2"] * 6), *options)
        ok(cluster, "topics", "create", "only", "--replica-assignment", ",".join(["1"] * 6))
        produce(cluster, "both", range(500))
        produce(cluster, "only", range(500))
        cluster.wait_in_sync()
        lost = sorted(int(p.name[5:]) for p in cluster.log_dir(1, 2).glob("only-*"))
        assert lost and [*cluster.log_dir(1, 2).glob("both-*")]
        cluster.kill(2)
        place = die(cluster, 2, tmp_path / "dead")
        cluster.kill(1)
        place.unlink()
        place.mkdir()
        cluster.revive()
        cluster.wait_in_sync(["both"])
        assert records(cluster, "both", 500) == numbers(500)
        view = cluster.describe(["only"]).partitions
        assert sorted(p for (_, p), seen in view.items() if seen.leader is None) == lost


def test_A3_a_directory_that_died_and_is_left_out_is_awaited(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    properties = data / "broker-1.properties"
    with Cluster(brokers=1, data_dir=data, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "6")
        produce(cluster, "t", range(500))
        there = sorted(p.name for p in cluster.log_dir(1, 2).glob("t-*"))
        place = die(cluster, 2, tmp_path / "dead")
        cluster.stop()
        place.unlink()
        before = properties.read_text()
        properties.write_text(before.replace(f",{place}", ""))
        assert str(place) not in properties.read_text()
        cluster.log_dirs = 1
        cluster.start()
        lines = ok(cluster, "topics", "describe", "t", "--unavailable-partitions").splitlines()
        assert sorted(f"t-{line.split(chr(9))[2].split()[1]}" for line in lines) == there
        assert not [*data.glob(f"broker-1/log-dir-*/{there[0]}")]  # no empty one
        cluster.stop()
        (tmp_path / "dead").rename(place)
        properties.write_text(before)
        cluster.log_dirs = 2
        cluster.start()
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 500) == numbers(500)


def test_A4_delete_takes_names_and_says_what_it_deletes(tmp_path: pathlib.Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, settings=STEADY_DISKS) as cluster:
        for topic in ("keep", "logs-a", "logs.a", "logs.b", "old-1", "old-2"):
            ok(cluster, "topics", "create", topic)
            produce(cluster, topic, range(100))
        assert ok(cluster, "topics", "delete", "logs.a") == "Deleted topic logs.a.\n"
        assert "logs-a" in ok(cluster, "topics", "list").splitlines()

        refused = run(cluster, "topics", "delete", "--topic", "logs.b", "keep")
        assert (refused.returncode, "--topic logs.b and keep: expected names" in refused.stderr) == (2, True)
        several = run(cluster, "topics", "delete", "-r", "old-.*")
        assert several.returncode == 2
        assert "delete 2 topics with all their records: old-1, old-2: --yes" in several.stderr
        assert run(cluster, "topics", "delete", "old-1", "nope", "--yes").returncode == 1  # before anything is deleted
        both = run(cluster, "topics", "create", "--topic", "a", "b")
        assert (both.returncode, "--topic a and b: expected one of them" in both.stderr) == (2, True)
        grown = run(cluster, "topics", "alter", "-r", "(keep|logs.b)", "--partitions", "2")
        assert (grown.returncode, "give 2 partitions to 2 topics: keep, logs.b" in grown.stderr) == (2, True)
        for topic in ("keep", "logs-a", "logs.b", "old-1", "old-2"):
            assert records(cluster, topic, 100) == numbers(100)

        gone = ok(cluster, "topics", "delete", "-r", "old-.*", "--yes")
        assert gone == "Deleted topic old-1.\nDeleted topic old-2.\n"
        assert ok(cluster, "topics", "alter", "keep", "--partitions", "3") == "Topic keep has 3 partitions.\n"
        for topic in ("keep", "logs-a", "logs.b"):
            assert records(cluster, topic, 100) == numbers(100)


def test_A6_ctrl_c_at_a_terminal_ends_produce_after_all_was_written(tmp_path: pathlib.Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t")
        for turn in range(3):
            code, shown = typed(cluster, ["produce", "t"], [f"{turn}-{n}" for n in range(5)])
            assert (code, "Fatal" in shown, "Traceback" in shown) == (130, False, False), shown
        assert records(cluster, "t", 15) == sorted(f"{turn}-{n}" for turn in range(3) for n in range(5))


def typed(cluster: Cluster, args: list[str], lines: list[str]) -> tuple[int, str]:
    """A command at a terminal: lines are typed, read back from the topic, then Ctrl-C. Exit code, what is shown."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    before = end_of(cluster, "t")
    child = subprocess.Popen(
        [*HOLDFAST, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    os.write(ours, "".join(f"{line}\n" for line in lines).encode())
    wait_for(lambda: end_of(cluster, "t") == before + len(lines), "what was typed in the topic", timeout_s=30)
    os.kill(child.pid, signal.SIGINT)  # what the terminal does on Ctrl-C
    code = child.wait(30)
    shown = os.read(ours, 1 << 16).decode(errors="replace")
    os.close(ours)
    return code, shown


def end_of(cluster: Cluster, topic: str) -> int:
    """Records in a topic with one partition, as its file says."""
    args = ["consume", topic, "--from-beginning", "--timeout-ms", "1000"]
    return len(ok(cluster, *args).splitlines())


def test_B11_the_last_copy_of_something_is_taken_away_by_force_only(tmp_path: pathlib.Path) -> None:
    with Cluster(brokers=2, data_dir=tmp_path, settings={"default.replication.factor": "2", **STEADY_DISKS}) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "2")
        produce(cluster, "t", range(100))
        ok(cluster, "topics", "create", "only", "--replica-assignment", "1")
        produce(cluster, "only", range(50))
        folder = cluster.folder_of(1, "only", 0).parent
        refused = run(cluster, "log-dirs", "offline", "--broker", "1", str(folder))
        assert refused.returncode == 1
        assert "has the last copy of only-0: nobody can read or write that while it is offline" in refused.stderr
        ok(cluster, "log-dirs", "offline", "--broker", "1", str(folder), "--force")
        gone = run(cluster, "log-dirs", "remove", "--broker", "1", str(folder))
        assert (gone.returncode, "last copy of only-0: that is lost" in gone.stderr) == (1, True)
        unclean = run(cluster, "elect", "unclean", "--topic", "only", "--partition", "0", "--yes")
        assert unclean.returncode == 1
        assert "only-0 has no leader, and none of its replicas is alive (1)" in unclean.stderr
        assert (unclean.stdout, "holdfast elect: no leader was elected for only-0: " in unclean.stderr) == ("", True)
        ok(cluster, "log-dirs", "online", "--broker", "1", str(folder))
        assert records(cluster, "only", 50) == numbers(50)
        assert records(cluster, "t", 100) == numbers(100)


def test_A2_an_unclean_election_says_what_may_be_lost(tmp_path: pathlib.Path) -> None:
    settings = {"default.replication.factor": "2", "replica.lag.time.max.ms": "1500", **STEADY_DISKS}
    with Cluster(brokers=2, data_dir=tmp_path, settings=settings) as cluster:
        ok(cluster, "topics", "create", "t", "--replica-assignment", "1:2")
        produce(cluster, "t", range(100))
        cluster.wait_in_sync(["t"])
        assert ok(cluster, "elect", "preferred", "--topic", "t") == "Valid replica already elected for partitions t-0\n"
        cluster.kill(2)
        wait_for(lambda: cluster.describe(["t"], broker=1).under_replicated, "broker 2 out of the ISR", timeout_s=30)
        cluster.kill(1)
        cluster.stop()
        shutil.rmtree(tmp_path / "broker-1/log-dir-1")
        shutil.rmtree(tmp_path / "broker-1/log-dir-2")
        cluster.start()
        told = "no leader: t-0. `holdfast topics describe --unavailable-partitions`"
        wait_for(lambda: told in cluster.log_tail(), "the line about t-0", timeout_s=15)
        asked = run(cluster, "elect", "unclean", "--topic", "t")
        assert asked.returncode == 2
        assert "t-0 has no leader; no replica is known to have everything" in asked.stderr
        assert "--yes says so without being asked" in asked.stderr
        done = ok(cluster, "elect", "unclean", "--topic", "t", "--yes")
        assert done == "Successfully completed leader election (UNCLEAN) for partitions t-0\n"
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 100) == numbers(100)  # broker 2 had all of them, and the longest log leads


def test_operator_C7_a_group_reads_what_was_written_while_nobody_read(tmp_path: pathlib.Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "3")
        ok(cluster, "consume", "t", "--group", "g", "--timeout-ms", "3000")  # begins at the end, and that is kept
        produce(cluster, "t", range(100))
        got = ok(cluster, "consume", "t", "--group", "g", "--max-messages", "100", "--timeout-ms", "10000")
        assert sorted(got.splitlines()) == numbers(100)


def test_operator_C8_consume_goes_on_when_its_only_broker_is_back(tmp_path: pathlib.Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, settings=STEADY_DISKS) as cluster:
        ok(cluster, "topics", "create", "t")
        produce(cluster, "t", range(50))
        environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
        args = [*HOLDFAST, "consume", "t", "--from-beginning", "--max-messages", "100"]
        with open(tmp_path / "out", "wb") as out:
            reader = subprocess.Popen(args, stdout=out, stderr=subprocess.PIPE, env=environment)
        wait_for(lambda: (tmp_path / "out").read_bytes().count(b"\n") == 50, "the first half", timeout_s=30)
        cluster.kill(1)
        assert reader.poll() is None
        cluster.revive()
        produce(cluster, "t", range(50, 100))
        assert reader.wait(60) == 0, reader.communicate()
        assert sorted((tmp_path / "out").read_text().splitlines()) == numbers(100)


def test_B6_B9_B10_B12_what_cannot_be_meant_is_refused(tmp_path: pathlib.Path) -> None:
    data, foreign = tmp_path / "data", tmp_path / "home"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    with Cluster(brokers=2, data_dir=data, settings=STEADY_DISKS) as cluster:
        both = run(cluster, "topics", "create", "x", "--replica-assignment", "1:2", "--partitions", "2")
        assert (both.returncode, "expected it without --partitions" in both.stderr) == (2, True)

        unset = run(cluster, "up", "--data-dir", "")
        assert (unset.returncode, "--data-dir ''" in unset.stderr) == (2, True)

        typo = run(cluster, "log-dirs", "add", "--broker", "1", str(tmp_path / "dsik3"))
        assert (typo.returncode, "dsik3: it does not exist; is its disk mounted?" in typo.stderr) == (1, True)
        assert not (tmp_path / "dsik3").exists()
        home = run(cluster, "log-dirs", "add", "--broker", "1", str(foreign))
        assert (home.returncode, "it holds what is not a broker's, 'thesis.txt'" in home.stderr) == (1, True)

        ok(cluster, "topics", "create", "t", "--replica-assignment", "1:2")
        produce(cluster, "t", range(100))
        plan = tmp_path / "plan.json"
        wrong = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [str(tmp_path / "nowhere")]}
        plan.write_text(json.dumps({"version": 1, "partitions": [wrong]}))
        refused = run(cluster, "reassign", "execute", "--reassignment-json-file", str(plan))
        assert refused.returncode == 1
        assert f"{tmp_path}/nowhere is no log directory of broker 1: expected one of {data}/broker-1" in refused.stderr
        assert "Successfully" not in refused.stdout
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
        fewer = run(cluster, "reassign", "execute", "--reassignment-json-file", str(plan))
        assert (fewer.returncode, "fewer replicas than now: t-0 (2 to 1)" in fewer.stderr) == (0, True)

        move = run(cluster, "log-dirs", "move", "t-0", "--broker", "1", "--to", "broker-1/d2")
        assert f"broker-1/d2 is no log directory of broker 1: expected one of {data}/broker-1/log-dir-1" in move.stderr
        none = run(cluster, "log-dirs", "move", "t-9", "--broker", "1", "--to", f"{data}/broker-1/log-dir-1")
        assert "t-9: t has partitions 0 to 0" in none.stderr
        near = run(cluster, "topic", "list")
        assert (near.returncode, "Did you mean 'topics'?" in near.stderr) == (2, True)
        assert records(cluster, "t", 100) == numbers(100)
