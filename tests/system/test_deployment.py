"""docs/deployment.md on hosts of a test: its files and commands are taken from the page, and run as they stand there.

Four hosts: three as the page has them, and host-4, which is where clients are, and the new hardware. What stands in for
what: the environment of this test is at /opt/holdfast, and `systemctl` asks this test, which starts and stops processes
as systemd would by their unit.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.java.runtime import find_java
from holdfast.java.zookeeper import MAIN, class_path, jars
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.testing import Host, Hosts, wait_for
from holdfast.testing.view import ClusterView, ask

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
BLOCKS = (
    "user", "program", "fstab", "log directories", "zoo.cfg", "server's directory", "who leads", "sync", "properties",
    "unit", "enable", "describe", "restart", "backup", "all in sync",
)  # fmt: skip
NOT_RUN = ("program",)
SYSTEMCTL = """#!/bin/sh
echo "$@" > /srv/system/systemctl.request
said=$(cat /srv/system/systemctl.answer)
test -z "$said" || { echo "$said" >&2; exit 1; }
"""
HOLDFAST = "/opt/holdfast/bin/holdfast"
STARTS_S = 120.0
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
"""A container may not let more than this, and not even root then."""
BROKERS = (1, 2, 3)


def blocks(page: str) -> dict[str, str]:
    """Every indented block of the page, by the names above, in order."""
    found: list[list[str]] = []
    inside = False
    for line in page.splitlines():
        if line.startswith("    "):
            found += [] if inside else [[]]
            found[-1].append(line.removeprefix("    "))
        inside = line.startswith("    ") or (inside and not line and found[-1][0].startswith("["))
    assert len(found) == len(BLOCKS), [block[0] for block in found]
    return {name: "\n".join(block) for name, block in zip(BLOCKS, found, strict=True)}


TEXTS = blocks(PAGE.read_text())


def run(host: Host, command: str) -> str:
    """What root of the host sees."""
    process = host.run(["bash", "-ec", f"PATH=/srv/system/bin:$PATH\n{command}"], output=subprocess.PIPE)
    said = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 0, f"{host.name}: {command}\n{said}"
    return said


def equip(host: Host) -> None:
    """After each boot: /etc of its own, this test's environment at /opt/holdfast, and an interpreter that users other
    than root can read."""
    prefix, closed = Path(sys.base_prefix), None
    for parent in reversed(prefix.parents):
        if closed is None and not parent.stat().st_mode & stat.S_IXOTH:
            closed = parent
    lines = [
        "mkdir -p /srv/system/etc; test -e /srv/system/etc/passwd || cp -a /etc/. /srv/system/etc",
        "mount --bind /srv/system/etc /etc; mkdir -p /etc/holdfast /etc/zookeeper",
        f"mount -t tmpfs -o mode=755 tmpfs /opt; mkdir /opt/holdfast; mount --bind {sys.prefix} /opt/holdfast",
    ]
    if closed is not None:
        lines += [
            f"mkdir -p /srv/system/reach; mount --rbind {closed} /srv/system/reach",
            f"mount -t tmpfs -o mode=755 tmpfs {closed}; mkdir -p {prefix}",
            f"mount --rbind /srv/system/reach/{prefix.relative_to(closed)} {prefix}",
        ]
    run(host, "\n".join(lines))


class Site:
    """The hosts, and what systemd would run on them."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.brokers: dict[int, subprocess.Popen[bytes]] = {}
        self.servers: dict[int, subprocess.Popen[bytes]] = {}
        self._systemd = [threading.Thread(target=self._serve, args=(number,), daemon=True) for number in BROKERS]

    def begin_systemd(self) -> None:
        """`systemctl` of each host is heard from now on."""
        for number in BROKERS:
            system = self.hosts[number].root / "system"
            (system / "bin").mkdir()
            (system / "bin" / "systemctl").write_text(SYSTEMCTL)
            (system / "bin" / "systemctl").chmod(0o755)
            for name in ("request", "answer"):
                os.mkfifo(system / f"systemctl.{name}")
        for thread in self._systemd:
            thread.start()

    def end_systemd(self) -> None:
        for number in BROKERS:
            (self.hosts[number].root / "system" / "systemctl.request").write_text("end\n")
        for thread in self._systemd:
            thread.join(STARTS_S)

    def _serve(self, number: int) -> None:
        system = self.hosts[number].root / "system"
        while (words := (system / "systemctl.request").read_text().split()) != ["end"]:
            said = ""
            match words:
                case ["enable", "--now", "holdfast"]:
                    self.start_broker(number)
                case ["restart", "holdfast"]:
                    self.stop_broker(number)
                    self.start_broker(number)
                    wait_for(lambda: self.answers(number), "the broker", timeout_s=STARTS_S)  # the page goes on at once
                case _:
                    said = f"systemctl {' '.join(words)}: not known to this test\n"
            (system / "systemctl.answer").write_text(said)

    def install(self, host: Host) -> None:
        """What the page does once."""
        equip(host)
        run(host, TEXTS["user"])
        run(host, TEXTS["log directories"])
        unit = host.root / "system" / "etc" / "systemd" / "system" / "holdfast.service"
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(TEXTS["unit"] + "\n")

    def configure(self, host: Host, number: int) -> None:
        """The properties of broker ``number`` at this host."""
        text = TEXTS["properties"].replace("node.id=1", f"node.id={number}").replace("//host-1:", f"//{host.name}:")
        (host.root / "system" / "etc" / "holdfast" / "broker.properties").write_text(text + "\n")

    def install_server(self, host: Host) -> None:
        (host.root / "system" / "etc" / "zookeeper" / "zoo.cfg").write_text(TEXTS["zoo.cfg"] + "\n")
        run(host, TEXTS["server's directory"].replace("echo 1 ", f"echo {host.number} "))

    def start_server(self, number: int) -> None:
        host = self.hosts[number]
        java = (
            os.fspath(find_java().executable),
            "-Xmx128m",
            "-cp",
            class_path(jars()),
            MAIN,
            "/etc/zookeeper/zoo.cfg",
        )
        as_user = ("setpriv", "--reuid=zookeeper", "--regid=zookeeper", "--clear-groups")
        with (host.root / "system" / "zookeeper.log").open("ab") as log:
            self.servers[number] = host.run((*as_user, *java), output=log)

    def start_broker(self, number: int, at: int | None = None) -> None:
        """As systemd does it: the unit's user, limit and command."""
        unit = dict(line.split("=", 1) for line in TEXTS["unit"].splitlines() if "=" in line)
        as_user = ("setpriv", f"--reuid={unit['User']}", f"--regid={unit['Group']}", "--clear-groups", "--no-new-privs")
        limited = ("prlimit", f"--nofile={min(int(unit['LimitNOFILE']), OPEN_FILES)}")
        host = self.hosts[at or number]
        with (host.root / "system" / "broker.log").open("ab") as log:
            self.brokers[number] = host.run((*limited, *as_user, *unit["ExecStart"].split()), output=log)

    def stop_broker(self, number: int) -> None:
        process = self.brokers.pop(number)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, self.log(number)

    def log(self, number: int) -> str:
        return (self.hosts[number].root / "system" / "broker.log").read_text(errors="replace")[-3000:]

    def mode(self, number: int) -> str:
        """As the page asks for it."""
        try:
            return run(self.hosts[number], TEXTS["who leads"].replace("host-1", f"host-{number}")).strip()
        except AssertionError:
            return ""

    def wait_ensemble(self) -> None:
        modes = ["Mode: follower", "Mode: follower", "Mode: leader"]
        wait_for(lambda: sorted(map(self.mode, BROKERS)) == modes, "the ensemble", timeout_s=STARTS_S)

    def view(self, at: int) -> ClusterView:
        return ask(self.hosts[at].address, 9092)

    def answers(self, number: int) -> bool:
        try:
            return number in self.view(number).brokers
        except OSError:
            return False

    def wait_in_sync(self, *at: int) -> None:
        """Every broker shows three of them, and nothing that is under-replicated."""

        def full() -> bool:
            assert all(broker.poll() is None for broker in self.brokers.values()), "a broker has ended"
            views = [self.view(number) for number in at or BROKERS]
            return all(sorted(v.brokers) == [1, 2, 3] and not v.under_replicated for v in views)

        try:
            wait_for(full, "all replicas in sync", timeout_s=STARTS_S)
        except (TimeoutError, AssertionError) as e:
            e.add_note("\n".join(f"broker {number}:\n{self.log(number)}" for number in BROKERS))
            raise

    def power_on(self, number: int) -> None:
        self.hosts.power_on(number)
        equip(self.hosts[number])
        self.start_server(number)

    def client(self, command: str) -> str:
        return run(self.hosts[4], f"{HOLDFAST} {command}")

    def write(self, topic: str, first: int, last: int) -> None:
        run(
            self.hosts[4], f"seq {first} {last} | {HOLDFAST} produce {topic} --bootstrap-server host-1:9092,host-2:9092"
        )

    def read(self, topic: str, count: int) -> list[int]:
        options = f"--from-beginning --max-messages {count} --bootstrap-server host-1:9092,host-2:9092"
        lines = self.client(f"consume {topic} {options} 2>/dev/null").split()
        return sorted(int(line) for line in lines if line.isdecimal())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Hosts(4) as hosts:
        made = Site(hosts)
        for host in hosts:
            made.install(host)
        for number in BROKERS:
            made.configure(hosts[number], number)
            made.install_server(hosts[number])
            made.start_server(number)
        made.wait_ensemble()
        for number in BROKERS:
            run(hosts[number], TEXTS["sync"])  # of all that is on that disk
        made.begin_systemd()
        for number in BROKERS:
            run(hosts[number], TEXTS["enable"])
        made.wait_in_sync()
        made.client("topics create kept --partitions 3 --bootstrap-server host-1:9092")
        made.write("kept", 1, 100)
        yield made
        made.end_systemd()


def test_the_files_of_the_page_are_good(site: Site) -> None:
    """The unit by systemd's own check, the mounts by findmnt's, the properties by the broker's; and only what is said
    not to be run is not."""
    host = site.hosts[1]
    assert run(host, "systemd-analyze verify /etc/systemd/system/holdfast.service") == ""
    devices = run(host, "findmnt -no SOURCE /srv/disk-1; findmnt -no SOURCE /srv/disk-2").split()
    lines = TEXTS["fstab"].replace("LABEL=disk-1", devices[0]).replace("LABEL=disk-2", devices[1])
    (host.root / "system" / "fstab").write_text(lines + "\n")
    run(host, "findmnt --verify --tab-file /srv/system/fstab")
    config = BrokerConfig.parse(read_properties(TEXTS["properties"]))
    assert not config.unknown
    assert config.listening.warning() is None
    assert [name for name in BLOCKS if "/bin/pip" in TEXTS[name]] == [*NOT_RUN]


def test_three_hosts_are_a_cluster(site: Site) -> None:
    site.wait_in_sync()
    said = run(site.hosts[2], f"COLUMNS=300 {TEXTS['describe']}")
    assert all(said.count(f"/srv/disk-{disk}/holdfast") == 3 for disk in (1, 2)), said
    assert site.view(2).brokers == {number: (f"host-{number}", 9092) for number in BROKERS}
    assert site.read("kept", 100) == list(range(1, 101))
    for number in BROKERS:
        status = Path(f"/proc/{site.brokers[number].pid}")
        limit = min(1 << 20, OPEN_FILES)
        assert re.search(rf"Max open files +{limit} +{limit}", (status / "limits").read_text())
        assert "\nUid:\t0" not in (status / "status").read_text()


LOAD = """
import json, signal, sys
from confluent_kafka import Producer
where = "host-1:9092,host-2:9092,host-3:9092"
producer = Producer({"bootstrap.servers": where, "enable.idempotence": True, "log_level": 0})
stopped, acked, failed = [], 0, []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
def told(error, message):
    global acked
    if error: failed.append(str(error))
    else: acked += 1
number = 0
while not stopped:
    producer.produce("rolling", str(number), on_delivery=told)
    number += 1
    producer.poll(0.005)
    if number == 100: print("begun", flush=True)
left = producer.flush(60)
print(json.dumps({"sent": number, "acked": acked, "failed": failed, "left": left}))
"""


def test_a_rolling_restart_loses_nothing(site: Site) -> None:
    """Each broker is stopped and started while records are written; the next one when the command prints nothing."""
    site.wait_in_sync()
    site.client("topics create rolling --partitions 3 --bootstrap-server host-1:9092")
    load = site.hosts[4].run(["/opt/holdfast/bin/python", "-c", LOAD], output=subprocess.PIPE)
    assert load.stdout is not None and load.stdout.readline() == b"begun\n"
    assert TEXTS["restart"].splitlines()[1] == TEXTS["all in sync"]
    for number in BROKERS:
        before = site.brokers[number].pid
        run(site.hosts[number], TEXTS["restart"])
        assert site.brokers[number].pid != before
        site.wait_in_sync()
        assert run(site.hosts[1], TEXTS["all in sync"]) == ""
    load.send_signal(signal.SIGTERM)
    told = json.loads(load.stdout.read())
    assert told == {"sent": told["sent"], "acked": told["sent"], "failed": [], "left": 0}
    assert site.read("rolling", told["sent"]) == list(range(told["sent"]))


def test_a_host_is_pulled_out_of_the_wall(site: Site) -> None:
    """Writes go on with its session over, and it comes back with what it had synced."""
    site.wait_in_sync()
    site.client("topics create pulled --partitions 3 --bootstrap-server host-1:9092")
    site.write("pulled", 1, 100)
    site.hosts.power_off(3)
    site.brokers.pop(3)
    site.write("pulled", 101, 200)
    wait_for(lambda: 3 not in site.view(1).brokers, "the end of broker 3's session", timeout_s=STARTS_S)
    site.power_on(3)
    site.wait_ensemble()
    site.start_broker(3)
    site.wait_in_sync()
    assert site.read("pulled", 200) == list(range(1, 201))


def test_a_disk_that_is_not_mounted_is_missed_and_not_begun_anew(site: Site) -> None:
    site.wait_in_sync()
    host, directory = site.hosts[2], "/srv/disk-2/holdfast"
    site.stop_broker(2)
    run(host, "umount /srv/disk-2")
    site.start_broker(2)
    wait_for(lambda: 2 in site.view(2).brokers, "broker 2", timeout_s=STARTS_S)
    told = run(host, f"{HOLDFAST} log-dirs describe --bootstrap-server host-2:9292")
    assert re.search(rf"(?m)^ *2  {directory} +offline ", told), told
    assert run(host, "ls -A /srv/disk-2") == ""
    run(host, f"mount --bind {host.root}/disk-2 /srv/disk-2")
    run(host, f"{HOLDFAST} log-dirs online --broker 2 {directory} --bootstrap-server host-2:9292")
    site.wait_in_sync()


def test_a_server_without_its_snapshot_is_made_anew(site: Site) -> None:
    server = site.servers[2]
    server.kill()
    server.wait()
    folder = site.hosts[2].root / "system" / "zookeeper" / "version-2"
    for snapshot in folder.glob("snapshot.*"):
        snapshot.unlink()
    site.start_server(2)
    site.servers[2].wait(60)
    assert (
        "No snapshot found, but there are log entries" in (site.hosts[2].root / "system" / "zookeeper.log").read_text()
    )
    run(site.hosts[2], "rm -r /srv/system/zookeeper/version-2/*")
    site.start_server(2)
    site.wait_ensemble()


def test_the_metadata_is_restored_from_a_copy(site: Site) -> None:
    """Records of what it knows are all there. What was made after the copy is taken for deleted, and goes."""
    site.wait_in_sync()
    site.servers[1].terminate()
    site.servers[1].wait(30)
    run(site.hosts[1], TEXTS["backup"])
    site.start_server(1)
    site.wait_ensemble()
    site.client("topics create late --partitions 1 --bootstrap-server host-1:9092")
    site.write("late", 1, 10)
    site.write("kept", 101, 200)
    copy = (site.hosts[1].root / "system" / "zookeeper.tar").read_bytes()
    for number in BROKERS:
        site.stop_broker(number)
    for number in BROKERS:
        site.servers[number].terminate()
        site.servers[number].wait(30)
    for number in BROKERS:
        (site.hosts[number].root / "system" / "zookeeper.tar").write_bytes(copy)
        run(site.hosts[number], "cd /srv/system; rm -r zookeeper/version-2/*; tar -xf zookeeper.tar")
        site.start_server(number)
    site.wait_ensemble()
    for number in BROKERS:
        site.start_broker(number)
    site.wait_in_sync()
    assert "late" not in site.view(1).topics
    assert site.read("kept", 200) == list(range(1, 201))
    for number in BROKERS:
        (left,) = site.hosts[number].root.glob("disk-*/holdfast/late-0*")
        assert left.name.endswith("-delete")


def test_a_broker_with_new_disks_has_its_number_and_all_records(site: Site) -> None:
    site.wait_in_sync()
    site.stop_broker(2)
    run(site.hosts[2], "rm -r /srv/disk-1/holdfast /srv/disk-2/holdfast")
    run(site.hosts[2], TEXTS["log directories"])
    site.start_broker(2)
    site.wait_in_sync()
    wait_for(lambda: run(site.hosts[1], TEXTS["all in sync"]) == "", "the command to print nothing", timeout_s=STARTS_S)
    folders = [path.name for path in site.hosts[2].root.glob("disk-*/holdfast/kept-?")]
    assert sorted(folders) == ["kept-0", "kept-1", "kept-2"]


def test_a_broker_moves_to_other_hardware_with_its_disks(site: Site) -> None:
    """host-4 gets the disks and the file of broker 3, and clients hear of it."""
    site.wait_in_sync()
    site.stop_broker(3)
    old, new = site.hosts[3], site.hosts[4]
    for disk in (1, 2):
        source, target = (host.root / f"disk-{disk}" for host in (old, new))
        subprocess.run(["cp", "-a", f"{source}/.", target], check=True)
    site.configure(new, 3)
    site.start_broker(3, at=4)
    wait_for(lambda: site.view(1).brokers.get(3) == ("host-4", 9092), "the new address", timeout_s=STARTS_S)
    site.wait_in_sync(1, 2, 4)
    assert set(site.read("kept", 100)) <= set(range(1, 201))
