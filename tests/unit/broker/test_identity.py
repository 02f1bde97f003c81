"""Which broker this is: what is asked, in which order, and what keeps a broker from starting."""

import asyncio
import dataclasses
import errno
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.broker import identity
from holdfast.broker.identity import address, host_key, identify
from holdfast.broker.platform import Platform
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.stores import open_broker_ids
from holdfast.metadata.broker_ids import HostEntry
from holdfast.metadata.records import MetadataRecord, PartitionRecord, TopicRecord
from holdfast.metadata.store import Candidate
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError, GenerateBrokerIdError, InconsistentMetaPropertiesError
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import encode_meta_properties
from holdfast.storage.stored_ids import known_id, stored_id
from holdfast.testing import wait_for

LISTENER = "127.0.0.1:9092"


class Machine:
    """A machine with two log directories and one for metadata."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dirs = [root / "d1", root / "d2"]
        self.platform = Platform.real()

    def config(self, **given: str) -> BrokerConfig:
        keys = {
            "listeners": f"PLAINTEXT://{LISTENER}",
            "log.dirs": ",".join(map(str, self.dirs)),
            "metadata.log.dirs": str(self.root / "meta"),
        }
        return BrokerConfig.parse(keys | {name.replace("_", "."): value for name, value in given.items()})

    def format(self, directory: Path, broker_id: int) -> None:
        directory.mkdir(exist_ok=True)
        (directory / "meta.properties").write_bytes(encode_meta_properties(broker_id, UUID(int=4), "c", 0))

    def id_of(self, **given: str) -> int:
        async def run() -> int:
            return (await identify(self.config(**given), self.platform)).node_id

        return asyncio.run(run())

    def commit(self, *records: MetadataRecord) -> None:
        """As a controller that is gone again."""
        store = EmbeddedStore(str(self.root / "meta"))
        store.commit(records, store.claim(Candidate(broker_id=1, host="127.0.0.1", port=1)).epoch)
        store.close()

    @property
    def hosts(self) -> Mapping[str, HostEntry]:
        opened = open_broker_ids(self.config(), self.platform)
        try:
            return opened.mapping.hosts()
        finally:
            opened.close()

    def set_host(self, host: str, broker_id: int) -> None:
        opened = open_broker_ids(self.config(), self.platform)
        try:
            opened.mapping.put(host, broker_id)
        finally:
            opened.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_given_id_is_taken_and_nothing_is_asked(machine: Machine) -> None:
    assert machine.id_of(node_id="3") == 3
    assert list(machine.root.iterdir()) == []


def test_K112_97_with_the_protocol_before_nothing_is_kept_of_hosts_and_no_id_is_given_out(machine: Machine) -> None:
    """A broker of the software before could not say to whom."""
    old = {"inter_broker_protocol_version": "0.1-IV0"}
    assert host_key(machine.config()) == LISTENER
    assert host_key(machine.config(**old)) is None
    with pytest.raises(ConfigError, match=r"0\.1-IV0 no ids are given out: expected a node\.id, or 0\.1-IV1"):
        machine.id_of(**old)
    assert list(machine.root.iterdir()) == []
    machine.format(machine.dirs[0], 7)
    assert machine.id_of(**old) == 7


def test_K426_02_the_id_of_the_log_directories_counts_whatever_the_host_has(machine: Machine) -> None:
    machine.set_host(LISTENER, 10)
    machine.format(machine.dirs[0], 7)
    assert machine.id_of() == 7
    assert machine.hosts == {LISTENER: HostEntry(broker_id=10)}


def test_K426_02_a_file_of_version_0_says_it_too(machine: Machine) -> None:
    machine.dirs[0].mkdir()
    (machine.dirs[0] / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=c\n")
    assert machine.id_of() == 7


def test_K426_18_one_directory_is_enough_and_two_must_agree(machine: Machine) -> None:
    machine.dirs[0].mkdir()
    machine.format(machine.dirs[1], 7)
    assert machine.id_of() == 7
    machine.format(machine.dirs[0], 8)
    with pytest.raises(
        InconsistentMetaPropertiesError, match=r"d1/.* is of node 8, .*d2/.* is of node 7: expected all"
    ):
        machine.id_of()


def test_an_id_that_is_no_number_is_refused(machine: Machine) -> None:
    machine.dirs[0].mkdir()
    (machine.dirs[0] / "meta.properties").write_text("node.id=seven\n")
    with pytest.raises(
        InconsistentMetaPropertiesError, match=r"d1/meta\.properties is of node 'seven': expected a number"
    ):
        machine.id_of()


def test_K426_04_empty_disks_get_the_id_of_their_host(machine: Machine) -> None:
    machine.set_host(LISTENER, 10)
    assert machine.id_of() == 10


def test_K426_08_a_first_broker_is_new_and_the_same_at_the_next_start(machine: Machine) -> None:
    assert machine.id_of() == 1001
    assert machine.id_of() == 1001
    assert machine.id_of(listeners="PLAINTEXT://127.0.0.1:9093", reserved_broker_max_id="5") == 7
    assert {host: entry.broker_id for host, entry in machine.hosts.items()} == {LISTENER: 1001, "127.0.0.1:9093": 7}


def test_without_generation_an_id_is_needed(machine: Machine) -> None:
    machine.format(machine.dirs[0], 7)
    with pytest.raises(ConfigError, match=r"node\.id is not set and broker\.id\.generation\.enable=false"):
        machine.id_of(broker_id_generation_enable="false")


def test_without_a_key_of_the_host_an_id_is_needed(machine: Machine) -> None:
    with pytest.raises(ConfigError, match=r"node\.id is not set and broker\.id\.host\.key=none"):
        machine.id_of(broker_id_host_key="none")
    assert not (machine.root / "meta").exists()
    machine.format(machine.dirs[0], 7)
    assert machine.id_of(broker_id_host_key="none") == 7


class DeadDisk(OsFiles):
    """The machine's files, of which those below one directory cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = str(path)

    def read_bytes(self, path: str) -> bytes:
        if path.startswith(self._path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().read_bytes(path)


def test_a_directory_that_cannot_be_read_may_say_who_this_is(machine: Machine) -> None:
    """No new id is made then; that of the host will do."""
    machine.platform = dataclasses.replace(machine.platform, files=DeadDisk(machine.dirs[0]))
    with pytest.raises(
        GenerateBrokerIdError, match=rf"host {LISTENER} has no id.*{machine.dirs[0]}.*Input/output error"
    ):
        machine.id_of()
    assert machine.hosts == {}
    machine.set_host(LISTENER, 10)
    assert machine.id_of() == 10
    machine.format(machine.dirs[1], 7)
    assert machine.id_of() == 7


def open_below(root: Path) -> list[str]:
    """Files of this process."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(f"{root}/")]


def test_what_was_asked_is_not_kept_open(machine: Machine) -> None:
    """A disk of the metadata that is left out later must be free to be unmounted."""
    assert machine.id_of() == 1001
    assert machine.id_of() == 1001
    wait_for(lambda: not open_below(machine.root), f"no open file, found {open_below(machine.root)}")


def test_K426_07_several_missing_are_named_and_nothing_is_given(machine: Machine) -> None:
    machine.commit(
        TopicRecord(name="t", topic_id=UUID(int=9)),
        PartitionRecord(partition=0, topic_id=UUID(int=9), replicas=(2, 3), isr=(2, 3), leader=2),
    )
    with pytest.raises(GenerateBrokerIdError) as caught:
        machine.id_of(broker_id_adopt_missing="true")
    assert str(caught.value) == (
        f"node.id is not set, host {LISTENER} has no id, and brokers 2, 3 are missing: broker.id.adopt.missing=true "
        "takes the id of one, expected one at most. Start those that have their disks first, or say which one this is: "
        f"node.id, or `holdfast brokers ids set {LISTENER} ID`"
    )
    assert machine.hosts == {}
    assert machine.id_of() == 1001


def test_another_start_that_does_not_come_is_waited_for_and_then_not(machine: Machine) -> None:
    """Both have the name of the machine for a key, and other ports: who has taken the id may still come."""
    key = {"broker_id_host_key": "fixed:here", "broker_session_timeout_ms": "300"}
    assert machine.id_of(**key) == 1001
    assert machine.id_of(listeners="PLAINTEXT://127.0.0.1:9093", **key) == 1001


def test_K426_15_what_a_host_is_called(machine: Machine) -> None:
    def key(**given: str) -> str | None:
        return host_key(machine.config(**given))

    any_port = "PLAINTEXT://127.0.0.1:0"
    assert key() == LISTENER
    assert key(listeners=any_port) == str(machine.dirs[0])
    assert key(broker_id_host_key="hostname") == socket.gethostname()
    assert key(broker_id_host_key="log.dir") == str(machine.dirs[0])
    assert key(broker_id_host_key="fixed:rack7") == "rack7"
    assert key(broker_id_host_key="none") is None
    assert key(metadata_store="zookeeper", zookeeper_connect="z:2181") == socket.gethostname()
    two = "A://127.0.0.1:9092,B://10.0.0.7:9094"
    listeners = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT", "inter_broker_listener_name": "B"}
    assert key(listeners=two, broker_id_host_key="host:port", **listeners) == "10.0.0.7:9094"


def test_a_machine_without_a_mac_address_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity.uuid, "getnode", lambda: 0x02_42_AC_11_00_02)
    assert host_key(machine.config(broker_id_host_key="mac")) == "02:42:ac:11:00:02"
    monkeypatch.setattr(identity.uuid, "getnode", lambda: 0x03_42_AC_11_00_02)
    with pytest.raises(ConfigError, match=r"broker\.id\.host\.key=mac: this machine has no MAC address"):
        host_key(machine.config(broker_id_host_key="mac"))


def test_an_address_without_a_host_is_of_this_machine(machine: Machine) -> None:
    assert address(machine.config(listeners="PLAINTEXT://:9092")) == f"{socket.gethostname()}:9092"


def test_commands_know_a_broker_by_its_log_directories(machine: Machine) -> None:
    paths, files = [str(path) for path in machine.dirs], OsFiles()
    assert known_id(4, paths, files) == 4
    assert known_id(None, paths, files) is None
    machine.format(machine.dirs[1], 7)
    assert known_id(None, paths, files) == 7
    assert stored_id(files, paths[0]) is None
