"""What a broker finds out at its start about what its replicas still have (H-07)."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import DuplicateReplicaError, KafkaStorageError
from holdfast.model.fates import ReplicaFate, ReplicaFates
from holdfast.model.types import TopicPartition
from holdfast.storage import checkpoints, dir_changes
from holdfast.storage.dir_state import DirState
from holdfast.storage.files import OsFiles
from holdfast.storage.incarnation import FILE_NAME, DirHistory, Incarnation, Past, judge, read
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager

KEPT, DAMAGED, LOST, UNKNOWN = ReplicaFate
T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig()


class Machine:
    """A broker's directories, and boots of its machine."""

    def __init__(self, root: Path, dirs: int = 2) -> None:
        self.paths = [root / f"d{i}" for i in range(dirs)]
        self.boot: str | None = "boot-1"
        self.epoch = 0

    def start(self, *paths: Path) -> ReplicaFates:
        """Load; what became of the replicas."""
        dirs = [LogDir(str(p), OsFiles(), InlineQueue()) for p in paths or self.paths]
        self.logs = LogManager(dirs, node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, boot_id=self.boot)
        errors: list[object] = []
        self.logs.start(NOW_MS, errors.append)
        assert errors == [None]
        return self.logs.past.fates

    def register(self, *replicas: TopicPartition) -> None:
        """The controller answers, and has these made."""
        self.epoch += 10
        noted: list[None] = []
        self.logs.past.note(self.epoch, lambda: noted.append(None))
        assert noted == [None]
        for tp in replicas:
            self.logs.new.create(tp, None, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
        self.logs.checkpoints.write_all(dict.fromkeys(replicas, 0))

    def stop(self, *, clean: bool) -> None:
        if clean:
            self.logs.close(clean=True, broker_epoch=self.epoch, high_watermarks={}, done=lambda: None)
            return
        for log in self.logs.logs():
            log.close(clean=False)
        for directory in self.logs.dirs:
            directory.close()

    def break_dir(self, i: int) -> None:
        """It cannot be read: a file is in its place."""
        self.paths[i].rename(self.paths[i].with_suffix(".away"))
        self.paths[i].write_text("")

    def repair_dir(self, i: int) -> None:
        self.paths[i].unlink()
        self.paths[i].with_suffix(".away").rename(self.paths[i])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A broker with two directories and a replica in each, registered with epoch 10."""
    machine = Machine(tmp_path)
    machine.start()
    machine.register(T0, T1)
    assert [len(machine.logs.logs_in(d)) for d in machine.logs.dirs] == [1, 1]
    return machine


def test_H_07_a_new_broker_has_nothing_to_lose(tmp_path: Path) -> None:
    assert Machine(tmp_path).start() == ReplicaFates(continues=None, rest=LOST)


@pytest.mark.parametrize("clean", [True, False])
def test_H_07_a_stopped_and_a_killed_process_have_kept_everything(machine: Machine, clean: bool) -> None:
    machine.stop(clean=clean)
    assert machine.start() == ReplicaFates(continues=10, rest=KEPT)


def test_H_07_the_machine_went_down(machine: Machine) -> None:
    machine.stop(clean=False)
    machine.boot = "boot-2"
    assert machine.start() == ReplicaFates(continues=None, rest=DAMAGED)
    # It died before it was registered again: nothing is better for that.
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=None, rest=DAMAGED)
    machine.register()
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=20, rest=KEPT)


def test_H_07_a_clean_stop_holds_for_the_next_boot(machine: Machine) -> None:
    machine.stop(clean=True)
    machine.boot = "boot-2"
    assert machine.start() == ReplicaFates(continues=10, rest=KEPT)
    # The mark is gone, and the broker ends before it is registered, say since its port is taken.
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=10, rest=KEPT)
    machine.stop(clean=False)
    machine.boot = "boot-3"
    assert machine.start() == ReplicaFates(continues=None, rest=DAMAGED)


@pytest.mark.parametrize("clean", [True, False])
def test_H_07_a_start_that_found_no_controller_says_nothing_new(machine: Machine, clean: bool) -> None:
    """It is stopped clean without an epoch of its own."""
    machine.stop(clean=clean)
    machine.boot = "boot-2"
    found = machine.start()
    machine.logs.close(clean=True, broker_epoch=-1, high_watermarks={}, done=lambda: None)
    machine.boot = "boot-3"
    assert machine.start() == found
    assert found.rest is (KEPT if clean else DAMAGED)


def test_H_07_a_system_that_does_not_tell_its_boots_is_believed_after_a_clean_stop_only(machine: Machine) -> None:
    machine.stop(clean=True)
    machine.boot = None
    assert machine.start() == ReplicaFates(continues=10, rest=KEPT)
    machine.register()
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=None, rest=DAMAGED)


def test_H_07_the_mark_of_a_clean_stop_does_not_come_back(tmp_path: Path) -> None:
    """The directory is synced when the mark is taken away: a power loss must not put it back beside new batches."""

    class Watched(OsFiles):
        calls: list[tuple[str, str]] = []

        def unlink(self, path: str) -> None:
            self.calls.append(("unlink", path))
            super().unlink(path)

        def fsync_dir(self, path: str) -> None:
            self.calls.append(("fsync_dir", path))
            super().fsync_dir(path)

    machine = Machine(tmp_path, 1)
    machine.start()
    machine.register(T0)
    machine.stop(clean=True)
    files = Watched()
    logs = LogManager(
        [LogDir(str(machine.paths[0]), files, InlineQueue())], node_id=1, cluster_id="c",
        config_of=lambda topic: CONFIG, boot_id="b",
    )  # fmt: skip
    logs.start(NOW_MS, lambda error: None)
    mark = str(machine.paths[0] / checkpoints.CLEAN_SHUTDOWN)
    at = files.calls.index(("unlink", mark))
    assert files.calls[at + 1] == ("fsync_dir", str(machine.paths[0]))


def test_H_07_a_wiped_directory_has_lost_its_replicas(machine: Machine) -> None:
    kept = machine.logs.logs_in(machine.logs.dirs[0])[0].topic_partition
    machine.stop(clean=False)
    shutil.rmtree(machine.paths[1])
    assert machine.start() == ReplicaFates(continues=10, rest=LOST, others={kept: KEPT})
    machine.stop(clean=False)
    for path in machine.paths:
        shutil.rmtree(path)
    assert machine.start() == ReplicaFates(continues=None, rest=LOST)


def test_H_07_a_directory_taken_out_of_the_configuration_has_lost_its_replicas(machine: Machine) -> None:
    kept = machine.logs.logs_in(machine.logs.dirs[0])[0].topic_partition
    machine.stop(clean=False)
    assert machine.start(machine.paths[0]) == ReplicaFates(continues=10, rest=LOST, others={kept: KEPT})
    machine.register()
    machine.stop(clean=False)
    # What it has is of a time before: others have gone on without it.
    back = machine.start()
    assert back.continues == 20
    assert (back.of(kept), back.of(T1 if kept == T0 else T0)) == (KEPT, DAMAGED)


def test_H_07_a_new_directory_takes_nothing_from_the_others(machine: Machine) -> None:
    machine.stop(clean=False)
    assert machine.start(*machine.paths, machine.paths[0].with_name("d2")) == ReplicaFates(continues=10, rest=KEPT)


def test_H_07_a_replica_whose_directory_was_removed_is_lost(machine: Machine) -> None:
    path = machine.logs.get(T0).path  # type: ignore[union-attr]
    machine.stop(clean=False)
    shutil.rmtree(path)
    fates = machine.start()
    assert fates == ReplicaFates(continues=10, rest=KEPT, others={T0: LOST})
    assert fates.of(T2) is KEPT  # it was never made


def test_H_07_a_directory_that_cannot_be_read_may_come_back_as_it_was(machine: Machine) -> None:
    kept = machine.logs.logs_in(machine.logs.dirs[0])[0].topic_partition
    for clean in (False, True):
        machine.stop(clean=clean)
        machine.break_dir(1)
        assert machine.start() == ReplicaFates(continues=machine.epoch, rest=UNKNOWN, others={kept: KEPT})
        machine.register()
        machine.stop(clean=clean)
        assert machine.start() == ReplicaFates(continues=machine.epoch, rest=UNKNOWN, others={kept: KEPT})
        machine.register()
        machine.stop(clean=clean)
        machine.repair_dir(1)
        assert machine.start() == ReplicaFates(continues=machine.epoch, rest=KEPT)
        machine.register()


@pytest.mark.parametrize("lets_go", [True, False])
def test_H_28_a_directory_that_failed_while_the_broker_ran_is_not_whole_again_by_itself(
    machine: Machine, lets_go: bool
) -> None:
    kept = machine.logs.logs_in(machine.logs.dirs[0])[0].topic_partition
    bad = machine.logs.dirs[1]
    note = (machine.paths[1] / FILE_NAME).read_bytes()
    bad.mark_offline(KafkaStorageError("fsync: EIO"))
    machine.logs.past.failed(bad)
    assert not (machine.paths[1] / FILE_NAME).exists()
    if not lets_go:
        (machine.paths[1] / FILE_NAME).write_bytes(note)
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=10, rest=DAMAGED, others={kept: KEPT})
    machine.register()
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=20, rest=KEPT)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version":1}', '{"version":1,"brokerEpoch":10,"bootId":"boot-1","directories":{}}',
        '{"version":1,"brokerEpoch":"x","bootId":"boot-1","directories":{}}',
        '{"version":1,"brokerEpoch":10,"bootId":"boot-1","directories":[]}',
    ],
)  # fmt: skip
def test_H_07_a_torn_file_is_no_file(machine: Machine, text: str) -> None:
    machine.stop(clean=False)
    for path in machine.paths:
        (path / FILE_NAME).write_text(text)
    assert machine.start() == ReplicaFates(continues=None, rest=DAMAGED)


def test_H_07_a_note_of_another_directory_or_version_is_no_note(tmp_path: Path) -> None:
    own, other = UUID(int=1), UUID(int=2)
    note = Incarnation(broker_epoch=5, boot_id="b", directories={own: 5, other: 4})
    (tmp_path / FILE_NAME).write_bytes(note.encode())
    assert read(OsFiles(), str(tmp_path), own) == note
    assert read(OsFiles(), str(tmp_path), other) is None
    (tmp_path / FILE_NAME).write_bytes(note.encode().replace(b'"version": 1', b'"version": 2'))
    assert read(OsFiles(), str(tmp_path), own) is None


def test_H_07_one_dir_of_a_machine_that_went_down_was_closed_clean() -> None:
    """A slow disk did not close in time, and then the machine was switched off."""
    closed = DirHistory(directory_id=UUID(int=1), clean_epoch=10, replicas=frozenset({T0}))
    not_closed = DirHistory(
        directory_id=UUID(int=2),
        incarnation=Incarnation(broker_epoch=10, boot_id="old", directories={UUID(int=1): 10, UUID(int=2): 10}),
        replicas=frozenset({T1}),
    )
    fates = judge([closed, not_closed], "new")
    assert fates == ReplicaFates(continues=10, rest=DAMAGED, others={T0: KEPT})


def test_H_07_nothing_is_known_of_a_directory_that_gave_no_answer(tmp_path: Path) -> None:
    past = Past([LogDir(str(tmp_path), OsFiles(), InlineQueue())], "b")
    assert past.fates.of(T0) is UNKNOWN
    past.adopt([])
    assert past.fates.of(T0) is UNKNOWN


# -- one replica in two directories ----------------------------------------------------------------------------------


def made_anew(machine: Machine, *, fails: str) -> Path:
    """The replica of d0 is made on d1 while d0 is away; where d0 is back, and the broker stopped."""
    if fails == "before a start":
        machine.stop(clean=True)
        machine.break_dir(0)
        machine.start()
        machine.register()
    bad = machine.logs.dirs[0]
    if fails == "while it runs":
        note = (machine.paths[0] / FILE_NAME).read_bytes()
        bad.mark_offline(KafkaStorageError("dead"))
        machine.logs.past.failed(bad)
        (machine.paths[0] / FILE_NAME).write_bytes(note)  # a dead disk does not let go of it
    machine.logs.held.forget(T0)
    machine.logs.new.create(T0, None, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
    machine.stop(clean=False)
    if fails == "before a start":
        machine.repair_dir(0)
    return machine.paths[1]


@pytest.mark.parametrize("fails", ["before a start", "while it runs"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_C20_H_17_of_two_copies_the_one_goes_that_was_away_when_the_other_was_made(
    machine: Machine, fails: str, order: tuple[int, int]
) -> None:
    kept = made_anew(machine, fails=fails)
    machine.start(*(machine.paths[i] for i in order))
    log = machine.logs.get(T0)
    assert log is not None and Path(log.path).parent == kept
    (aside,) = machine.paths[0].glob("*-stray")
    assert aside.name.startswith(str(T0)) and not (machine.paths[0] / str(T0)).exists()
    machine.stop(clean=True)
    machine.start()
    assert machine.logs.get(T0) is not None, "and so it stays"


def test_C20_two_copies_in_directories_that_were_both_there_are_refused(machine: Machine) -> None:
    """Somebody has copied it by hand: nobody knows which is right."""
    machine.stop(clean=True)
    shutil.copytree(machine.paths[0] / str(T0), machine.paths[1] / str(T0))
    dirs = [LogDir(str(p), OsFiles(), InlineQueue()) for p in machine.paths]
    logs = LogManager(dirs, node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, boot_id=machine.boot)
    errors: list[object] = []
    logs.start(NOW_MS, errors.append)
    assert [type(error) for error in errors] == [DuplicateReplicaError]


def test_C20_a_replaced_disk_and_the_old_one_back_whichever_note_is_torn(machine: Machine, tmp_path: Path) -> None:
    """d0 is out of log.dirs, T0 is made on d2; a power loss takes d2's note; then d0 is named again."""
    machine.stop(clean=True)
    new = tmp_path / "d2"
    machine.start(machine.paths[1], new)
    machine.register()
    machine.logs.new.create(T0, None, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
    where = Path(machine.logs.get(T0).path).parent  # type: ignore[union-attr]
    machine.stop(clean=False)
    (new / FILE_NAME).write_bytes(b"")
    machine.boot = "boot-2"
    machine.start(*machine.paths, new)
    log = machine.logs.get(T0)
    assert log is not None and Path(log.path).parent == where


def test_C20_a_copy_without_a_note_is_never_set_aside(machine: Machine, tmp_path: Path) -> None:
    """It may be the newer one: nobody knows, and nobody guesses."""
    kept = made_anew(machine, fails="while it runs")
    (kept / FILE_NAME).unlink()
    dirs = [LogDir(str(p), OsFiles(), InlineQueue()) for p in machine.paths]
    logs = LogManager(dirs, node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, boot_id=machine.boot)
    errors: list[object] = []
    logs.start(NOW_MS, errors.append)
    assert [type(error) for error in errors] == [DuplicateReplicaError]


@pytest.mark.parametrize("readable_then", [True, False])
@pytest.mark.parametrize("online", [True, False])
def test_C20_an_outdated_copy_that_cannot_be_read_hides_nothing(
    machine: Machine, readable_then: bool, online: bool
) -> None:
    """Nor at the start after that, when the notes name both directories."""
    torn = machine.paths[0] / str(T0) / "partition.metadata"
    if online:
        comes_back(machine, torn=torn, made_anew=True)
        machine.logs.past.healed(machine.logs.dirs[0])
    else:
        made_anew(machine, fails="before a start")
        torn.write_bytes(b"torn")
        machine.start()
        machine.register()
    kept = machine.logs.get(T0)
    assert kept is not None and kept.path.startswith(str(machine.paths[1])) and T0 not in machine.logs.standings.failed
    machine.stop(clean=True)
    if readable_then:
        next(machine.paths[0].glob("*-stray")).joinpath("partition.metadata").unlink()
    machine.start()
    log = machine.logs.get(T0)
    assert log is not None and log.path == kept.path and T0 not in machine.logs.standings.failed


def comes_back(machine: Machine, *, torn: Path, made_anew: bool = False) -> None:
    """d0 fails while the broker runs, and is back; a replica of it cannot be loaded."""
    old = machine.logs.dirs[0]
    old.mark_offline(KafkaStorageError("dead"))
    machine.logs.past.failed(old)
    for log in machine.logs.logs_in(old):
        log.release()
    old.close()
    if made_anew:
        machine.logs.held.forget(T0)
        machine.logs.new.create(T0, None, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
    torn.write_bytes(b"torn")
    errors: list[object] = []
    new = LogDir(old.path, OsFiles(), InlineQueue())
    dir_changes.restore(machine.logs, old, new, NOW_MS, errors.append)
    assert errors == [None]


# -- notes that a full directory did not take --------------------------------------------------------------------------


def fails_while_the_other_is_full(machine: Machine, bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory fails, and keeps its own note; the other one is full, and has room again later."""
    note, path = (machine.paths[bad] / FILE_NAME).read_bytes(), str(machine.paths[1 - bad])
    write_atomic = OsFiles.write_atomic

    def full(self: OsFiles, to: str, data: bytes, *, durable: bool = True) -> None:
        if to.startswith(path):
            raise OSError(errno.ENOSPC, "No space left on device", to)
        write_atomic(self, to, data, durable=durable)

    with monkeypatch.context() as patched:
        patched.setattr(OsFiles, "write_atomic", full)
        machine.logs.dirs[bad].mark_offline(KafkaStorageError("a flush failed"))
        machine.logs.past.failed(machine.logs.dirs[bad])
    (machine.paths[bad] / FILE_NAME).write_bytes(note)
    machine.logs.dirs[1 - bad].probe()
    assert machine.logs.dirs[1 - bad].state is DirState.ONLINE


@pytest.mark.parametrize("renewed", [True, False])
def test_H_28_a_directory_that_failed_is_not_kept_for_want_of_room_in_another(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    lost = machine.logs.logs_in(machine.logs.dirs[1])[0].topic_partition
    fails_while_the_other_is_full(machine, 1, monkeypatch)
    if renewed:
        machine.logs.past.renew()
    machine.stop(clean=False)
    assert machine.start().of(lost) is DAMAGED


def test_C20_which_copy_is_newer_is_noted_once_there_is_room(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_while_the_other_is_full(machine, 0, monkeypatch)
    machine.logs.past.renew()
    machine.logs.held.forget(T0)
    machine.logs.new.create(T0, None, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
    machine.stop(clean=False)
    machine.start()
    log = machine.logs.get(T0)
    assert log is not None and log.path.startswith(str(machine.paths[1]))


# -- directories that are left out of log.dirs (A3) --------------------------------------------------------------------


def test_A3_a_directory_that_is_left_out_is_known_by_its_place(machine: Machine) -> None:
    machine.stop(clean=True)
    machine.start(machine.paths[0])
    past = machine.logs.past
    assert past.absent() == [str(machine.paths[1])]
    past.await_absent(1)
    assert past.fates.rest is UNKNOWN  # it may come back with it
    assert past.fates.others == {T0: KEPT}
    machine.register()
    machine.stop(clean=True)
    assert machine.start().others == {}  # both are back, and whole
    assert machine.logs.past.fates.rest is KEPT
    assert machine.logs.past.absent() == []


def test_A3_a_disk_that_was_replaced_is_not_missed(machine: Machine) -> None:
    machine.stop(clean=True)
    shutil.rmtree(machine.paths[1])
    machine.start()
    assert machine.logs.past.absent() == []
    assert machine.logs.past.fates.rest is LOST


@pytest.mark.parametrize("reboots", [False, True])
def test_A3_K112_41_a_disk_that_failed_and_was_replaced_has_lost_its_replicas(machine: Machine, reboots: bool) -> None:
    """Its broker ran when it failed; a disk is replaced with the machine off, often."""
    kept = machine.logs.logs_in(machine.logs.dirs[0])[0].topic_partition
    machine.logs.dirs[1].mark_offline(KafkaStorageError("fsync: EIO"))
    machine.logs.past.failed(machine.logs.dirs[1])
    machine.stop(clean=False)
    shutil.rmtree(machine.paths[1])
    if reboots:
        machine.boot = "boot-2"
    fates = machine.start()
    assert (fates.rest, fates.of(kept)) == (LOST, DAMAGED if reboots else KEPT)
    assert machine.logs.past.absent() == []
    machine.register()
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=20, rest=KEPT), "the controller knows that it is lost"


def test_A3_a_directory_that_failed_and_is_left_out_is_awaited(machine: Machine) -> None:
    kept = machine.logs.logs_in(machine.logs.dirs[0])[0].topic_partition
    machine.logs.dirs[1].mark_offline(KafkaStorageError("fsync: EIO"))
    machine.logs.past.failed(machine.logs.dirs[1])
    machine.stop(clean=True)
    for _ in range(2):  # and so it is after the next registration
        machine.start(machine.paths[0])
        assert machine.logs.past.absent() == [str(machine.paths[1])]
        machine.logs.past.await_absent(1)
        assert machine.logs.past.fates.rest is UNKNOWN
        assert machine.logs.past.fates.of(kept) is KEPT
        machine.register()
        machine.stop(clean=True)
    assert machine.start().rest is DAMAGED, "it is back, and may lack what could not be flushed"


def test_A3_another_disk_that_was_taken_up_in_the_place_of_a_failed_one_is_not_missed(machine: Machine) -> None:
    bad = machine.logs.dirs[1]
    bad.mark_offline(KafkaStorageError("fsync: EIO"))
    machine.logs.past.failed(bad)
    shutil.rmtree(machine.paths[1])
    told: list[object] = []
    new = LogDir(str(machine.paths[1]), OsFiles(), InlineQueue())
    dir_changes.restore(machine.logs, bad, new, NOW_MS, told.append)
    assert told == [None]
    machine.logs.past.healed(new)
    machine.stop(clean=False)
    assert machine.start() == ReplicaFates(continues=10, rest=KEPT)


def test_A3_one_that_was_removed_is_not_missed(machine: Machine) -> None:
    gone = machine.logs.dirs[1]
    dir_changes.take_away(machine.logs, gone)
    machine.logs.past.removed(gone.path)
    machine.stop(clean=True)
    machine.start(machine.paths[0])
    assert machine.logs.past.absent() == []
    machine.register()
    machine.stop(clean=True)
    machine.start(machine.paths[0])
    assert machine.logs.past.absent() == []


def test_A3_a_note_without_places_misses_nothing(machine: Machine) -> None:
    machine.stop(clean=True)
    for path in machine.paths:
        note = path / FILE_NAME
        value = json.loads(note.read_text())
        del value["paths"]
        note.write_text(json.dumps(value))
    machine.start(machine.paths[0])
    assert machine.logs.past.absent() == []
    assert machine.logs.past.fates.rest is LOST  # as before there were places in it


@pytest.mark.parametrize("has_records", [False, True])
def test_A3_a_copy_that_is_as_it_was_made_goes_when_one_with_records_is_back(
    machine: Machine, has_records: bool, batch: Callable[..., bytearray]
) -> None:
    tp = next(iter(machine.logs.logs_in(machine.logs.dirs[1]))).topic_partition
    next(each for each in machine.logs.held if each.topic_partition == tp).append_as_leader(batch(b"v"), 1, NOW_MS)
    machine.stop(clean=True)
    machine.start(machine.paths[0])
    machine.register(tp)
    if has_records:
        next(each for each in machine.logs.held if each.topic_partition == tp).append_as_leader(batch(b"v"), 2, NOW_MS)
    machine.stop(clean=True)
    machine.start()
    stays = machine.paths[0 if has_records else 1]
    assert machine.logs.dir_of(tp) == str(stays)
