"""The embedded store in two directories: one fails, hangs, is wiped or lost, at run time and at a start."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.coordination.metadata_log import MetadataLog
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import FeatureLevelRecord
from holdfast.metadata.store import Candidate, Fatal, Judgement, Retry
from holdfast.model.errors import ConfigError, FencedControllerError, HoldfastError, KafkaStorageError
from holdfast.storage.files import FileHandle, OsFiles
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import Heard

ONE = Candidate(broker_id=1, host="one", port=9001)
TWO = Candidate(broker_id=2, host="two", port=9002)
FAULTS = ["EIO", "ENOSPC", "hang", "wipe", "remove"]


class FaultyHandle:
    """A file below a directory that may be bad."""

    def __init__(self, handle: FileHandle, files: FaultyFiles) -> None:
        self._handle, self._files = handle, files

    def __getattr__(self, name: str) -> Any:
        self._files.meet(self._handle.path, name)
        return getattr(self._handle, name)


class FaultyFiles(OsFiles):
    """The files of one process: a directory fails, or answers only when it is mended."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        self.hanging: dict[str, threading.Event] = {}

    def hang(self, path: str) -> None:
        self.hanging[path] = threading.Event()

    def mend(self) -> None:
        self.failing.clear()
        hanging, self.hanging = self.hanging, {}
        for event in hanging.values():
            event.set()

    def meet(self, path: str, what: str) -> None:
        for directory, event in list(self.hanging.items()):
            if path.startswith(directory + "/"):
                event.wait()
        for directory, code in self.failing.items():
            full = code == errno.ENOSPC and what in (
                "read_bytes",
                "listdir",
                "exists",
                "identity",
                "inode",
                "file_size",
            )
            if path.startswith(directory + "/") and not full and what not in ("close", "path"):
                raise OSError(code, "injected", path)

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> FileHandle:
        self.meet(path, "open")
        return FaultyHandle(super().open(path, create=create, readonly=readonly), self)  # type: ignore[return-value]


def _met(name: str) -> Callable[..., Any]:
    plain = getattr(OsFiles, name)

    def call(self: FaultyFiles, path: str, *args: Any, **options: Any) -> Any:
        self.meet(path, name)
        return plain(self, path, *args, **options)

    return call


for _name in (
    "makedirs", "rename", "link", "unlink", "rmtree", "listdir", "exists", "file_size", "inode", "fsync_dir",
    "read_bytes", "write_atomic", "open_lock",
):  # fmt: skip
    setattr(FaultyFiles, _name, _met(_name))


class Machine:
    """Two metadata directories, the log directories that witness, and the stores of brokers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = [str(root / "meta-1"), str(root / "meta-2")]
        self.witnesses = [str(root / f"log-{n}") for n in range(3)]
        for path in self.witnesses:
            Path(path).mkdir(parents=True)
            (Path(path) / "meta.properties").touch()
        self.opened: list[EmbeddedStore] = []
        self.files: list[FaultyFiles] = []

    def store(self, broker_id: int = 1, **options: Any) -> EmbeddedStore:
        files = FaultyFiles()
        store = EmbeddedStore(
            self.paths, files=files, patience_s=options.pop("patience_s", 0.5),
            witness=Witness(broker_id=broker_id, directories=tuple(self.witnesses)), **options,
        )  # fmt: skip
        self.opened.append(store)
        self.files.append(files)
        return store

    def files_of(self, store: EmbeddedStore) -> FaultyFiles:
        return self.files[self.opened.index(store)]

    def break_it(self, fault: str, which: int, *files: FaultyFiles) -> None:
        path = self.paths[which]
        if fault == "wipe":
            for child in Path(path).iterdir():
                shutil.rmtree(child) if child.is_dir() else child.unlink()
        elif fault == "remove":
            shutil.rmtree(path)
        else:
            for each in files:
                if fault == "hang":
                    each.hang(path)
                else:
                    each.failing[path] = getattr(errno, fault)

    def end(self, store: EmbeddedStore) -> None:
        """As kill -9 does: nothing is said any more, locks are free."""
        store._lanes.close()
        store._election.close()

    def names(self, which: int) -> set[str]:
        """What one copy holds, by what is on its disk."""
        log = MetadataLog(f"{self.paths[which]}/__cluster_metadata-0", OsFiles(), lambda: 0)
        return {r.name for r in log.read().records() if isinstance(r, FeatureLevelRecord)}

    def close(self) -> None:
        for files in self.files:
            files.mend()
        for store in self.opened:
            store.close()


def feature(name: str) -> list[Any]:
    return [FeatureLevelRecord(name=name, level=1)]


def features(store: EmbeddedStore, candidate: Candidate = TWO) -> set[str]:
    loaded = store.load(store.claim(candidate))
    image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
    return set(image.features)


def until_whole(machine: Machine, store: EmbeddedStore, epoch: int) -> None:
    def whole() -> bool:
        store.tend(epoch)
        return all(copy.is_good for copy in store.copies())

    wait_for(whole, "both copies good")


def test_every_commit_is_on_both_copies(machine: Machine) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    assert machine.names(0) == machine.names(1) == {"a"}
    assert [copy.is_good for copy in store.copies()] == [True, True]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_A5_D10_decisions_go_on_and_nothing_is_lost_when_one_copy_fails(
    machine: Machine, fault: str, which: int
) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("before"), claim.epoch)
    machine.break_it(fault, which, machine.files_of(store))
    for n in range(3):
        store.commit(feature(f"during-{n}"), claim.epoch)
    bad = store.copies()[which]
    assert not bad.is_good and bad.reason
    expected = {"before", *(f"during-{n}" for n in range(3))}
    assert machine.names(1 - which) == expected
    machine.end(store)
    other = machine.store(2)
    assert features(other) == expected


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_A5_a_probe_notices_without_a_decision_and_the_copy_is_filled_again(
    machine: Machine, fault: str, which: int
) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("before"), claim.epoch)
    files = machine.files_of(store)
    machine.break_it(fault, which, files)
    store.tend(claim.epoch)
    assert [copy.is_good for copy in store.copies()].count(True) == 1
    store.commit(feature("during"), claim.epoch)
    files.mend()
    until_whole(machine, store, claim.epoch)
    store.commit(feature("after"), claim.epoch)
    assert machine.names(0) == machine.names(1) == {"before", "during", "after"}
    # The filled one alone is enough now.
    machine.end(store)
    shutil.rmtree(machine.paths[1 - which])
    assert features(machine.store(2)) == {"before", "during", "after"}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_K18_04_no_broker_has_a_file_open_of_a_copy_that_was_left_out(machine: Machine, fault: str, which: int) -> None:
    """Neither the one that reigns nor one that waits for its locks: the disk can be unmounted."""
    store, other = machine.store(1), machine.store(2)
    claim = store.claim(ONE)
    store.commit(feature("before"), claim.epoch)
    claims: list[Any] = []
    waiting = threading.Thread(target=lambda: claims.append(other.claim(TWO)))
    waiting.start()
    wait_for(lambda: is_blocked(waiting), "that the other one waits for a lock")
    machine.break_it(fault, which, machine.files_of(store), machine.files_of(other))
    store.commit(feature("during"), claim.epoch)
    if fault == "hang":
        machine.files_of(store).mend()
        machine.files_of(other).mend()
    wait_for(lambda: not open_below(machine.paths[which]), "no open file in the copy that was left out")
    assert open_below(machine.paths[1 - which])
    store.commit(feature("after"), claim.epoch)
    assert not claims
    machine.end(store)
    waiting.join(timeout=20)
    assert [claim.candidate for claim in claims] == [TWO]
    assert machine.names(1 - which) == {"before", "during", "after"}


def is_blocked(thread: threading.Thread) -> bool:
    """Whether it waits for a file lock in the kernel."""
    waits = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
    return waits[0] == {"x86_64": "73", "aarch64": "32"}[platform.machine()]


def open_below(path: str) -> list[str]:
    """Files that this process has open in a directory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [target for target in found if target.startswith(f"{path}/")]


def test_where_all_hang_decisions_wait_and_go_on(machine: Machine) -> None:
    store = machine.store(patience_s=10)
    claim = store.claim(ONE)
    files = machine.files_of(store)
    for path in machine.paths:
        files.hang(path)
    done = threading.Event()

    def commit() -> None:
        store.commit(feature("waits"), claim.epoch)
        done.set()

    thread = threading.Thread(target=commit)
    thread.start()
    wait_for(lambda: not store.copies()[0].answers, "that it is told")
    assert not done.is_set()
    files.mend()
    thread.join(timeout=20)
    assert done.is_set()
    assert machine.names(0) == machine.names(1) == {"waits"}
    assert [(copy.is_good, copy.answers, copy.reason) for copy in store.copies()] == [(True, True, None)] * 2


def test_H_23_all_copies_have_failed(machine: Machine) -> None:
    store, heard = machine.store(), Heard()
    claim = store.claim(ONE, heard)
    for which in (0, 1):
        machine.break_it("EIO", which, machine.files_of(store))
    with pytest.raises(KafkaStorageError) as caught:
        store.commit(feature("lost"), claim.epoch)
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.EIO
    assert heard.lost_by == [str(caught.value)]
    assert store.judge() == Retry()
    store.resign()
    assert fails(store) == Retry()  # it may have been the one moment
    told = fails(store)
    assert isinstance(told, Fatal)
    assert told.reason.startswith("Shutdown broker because all metadata log dirs have failed: Metadata director")
    assert all(path in told.reason for path in machine.paths)


def fails(store: EmbeddedStore) -> Judgement:
    """What the store says after a claim that fails by its disks."""
    store.resign()
    with pytest.raises(KafkaStorageError):
        store.claim(ONE)
    return store.judge()


@pytest.mark.parametrize(("fault", "ends"), [("EIO", True), ("ENOSPC", False)])
def test_H_23_a_full_disk_is_tried_on_and_a_bad_one_is_not(machine: Machine, fault: str, ends: bool) -> None:
    store = machine.store()
    store.claim(ONE)
    for which in (0, 1):
        machine.break_it(fault, which, machine.files_of(store))
    assert [isinstance(fails(store), Fatal) for _ in range(3)] == [False, ends, ends]


def test_H_23_a_claim_that_works_forgives_the_errors_before_it(machine: Machine) -> None:
    store = machine.store()
    for _ in range(2):
        claim = store.claim(ONE)
        for which in (0, 1):
            machine.break_it("EIO", which, machine.files_of(store))
        with pytest.raises(KafkaStorageError):
            store.tend(claim.epoch)
        assert store.judge() == Retry()
        machine.files_of(store).mend()
    assert store.claim(ONE).epoch == 3
    for which in (0, 1):
        machine.break_it("EIO", which, machine.files_of(store))
    with pytest.raises(KafkaStorageError):
        store.tend(3)
    assert isinstance(fails(store), Fatal)  # the look, and the claim after it


@pytest.mark.parametrize("which", [0, 1])
def test_a_start_with_only_the_copy_that_was_left_out_is_refused_and_names_both(machine: Machine, which: int) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    machine.break_it("EIO", which, machine.files_of(store))
    store.commit(feature("only there"), claim.epoch)
    machine.end(store)
    machine.files_of(store).mend()
    complete = machine.root / "unplugged"
    Path(machine.paths[1 - which]).rename(complete)
    with pytest.raises(KafkaStorageError, match="left out earlier: it lacks decisions") as caught:
        machine.store(2).claim(TWO)
    assert machine.paths[0] in str(caught.value) and machine.paths[1] in str(caught.value)
    shutil.rmtree(machine.paths[1 - which], ignore_errors=True)
    complete.rename(machine.paths[1 - which])
    assert features(machine.store(3)) == {"only there"}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("fault", ["EIO", "hang", "wipe", "remove"])
def test_either_copy_may_be_dead_at_the_start_when_the_other_is_known_to_be_complete(
    machine: Machine, which: int, fault: str
) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    machine.end(store)
    other = machine.store(2)
    machine.break_it(fault, which, machine.files_of(other))
    assert features(other) == {"a"}


def test_no_note_goes_to_what_lies_beneath_a_log_directory_and_it_is_told_when_it_is_back_K112_27(
    machine: Machine,
) -> None:
    beneath = Path(machine.witnesses[1])
    (beneath / "meta.properties").rename(machine.root / "away")
    store = machine.store()
    claim = store.claim(ONE)
    store.load(claim)
    assert list(beneath.iterdir()) == []
    assert (Path(machine.witnesses[0]) / "metadata-reigns").is_dir()
    store.tend(claim.epoch)
    assert list(beneath.iterdir()) == []
    (machine.root / "away").rename(beneath / "meta.properties")

    def told() -> bool:
        store.tend(claim.epoch)
        return [path.name for path in beneath.glob("metadata-reigns/*")] == [f"{claim.epoch:010d}.json"]

    wait_for(told, "a note in the log directory that is back")


def test_directories_of_metadata_witness_dirs_need_not_be_log_directories(machine: Machine) -> None:
    place = machine.root / "witness"
    place.mkdir()
    missing = machine.root / "missing"
    store = EmbeddedStore(
        machine.paths, witness=Witness(broker_id=1, directories=(str(place), str(missing)), makes_place=True)
    )
    try:
        store.cluster_id()
        claim = store.claim(ONE)
        assert [path.name for path in place.glob("metadata-reigns/*")] == [f"{claim.epoch:010d}.json"]
        assert not missing.exists()
    finally:
        store.close()


def test_a_copy_whose_fellow_may_have_gone_on_alone_is_not_believed_without_witnesses(machine: Machine) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    machine.break_it("EIO", 0, machine.files_of(store))
    store.commit(feature("only there"), claim.epoch)
    machine.end(store)
    machine.files_of(store).mend()
    shutil.rmtree(machine.paths[1])
    for path in machine.witnesses:
        shutil.rmtree(path)
    with pytest.raises(KafkaStorageError, match="may hold newer decisions"):
        machine.store(2).claim(TWO)


def test_a_controller_that_lost_its_locks_never_has_a_commit_count(machine: Machine) -> None:
    """Somebody removed the lock files: another broker claims while the first one lives on."""
    first, second, heard = machine.store(1), machine.store(2), Heard()
    claim = first.claim(ONE, heard)
    first.commit(feature("a"), claim.epoch)
    for path in machine.paths:
        (Path(path) / "lock").unlink()
    after = second.claim(TWO)
    assert heard.lost_by == []  # files tell nothing of their own accord
    with pytest.raises(FencedControllerError) as caught:
        first.commit(feature("stale"), claim.epoch)
    assert heard.lost_by == [str(caught.value)]
    second.commit(feature("b"), after.epoch)
    with pytest.raises(FencedControllerError):
        first.tend(claim.epoch)
    first.resign()
    second.resign()
    assert features(machine.store(3)) >= {"a", "b"}
    assert "stale" not in features_of_disk(machine)


def features_of_disk(machine: Machine) -> set[str]:
    return machine.names(0) | machine.names(1)


def test_two_that_see_different_directories_never_both_commit(machine: Machine) -> None:
    """Each sees EIO on the other's directory by a fault of its own, and the locks are lost."""
    first, second = machine.store(1), machine.store(2)
    claim = first.claim(ONE)
    first.commit(feature("a"), claim.epoch)
    for path in machine.paths:
        (Path(path) / "lock").unlink()
    machine.break_it("EIO", 0, machine.files_of(first))
    machine.break_it("EIO", 1, machine.files_of(second))
    after = second.claim(TWO)  # by the note of both copies, on the first one
    with pytest.raises(FencedControllerError):  # leaving out the first one is noted with the witnesses, who know better
        first.commit(feature("stale"), claim.epoch)
    second.commit(feature("b"), after.epoch)
    machine.end(first)
    machine.end(second)
    found = features(machine.store(3))
    assert found >= {"a", "b"} and "stale" not in found


def test_a_write_that_lands_late_is_no_decision(machine: Machine) -> None:
    """A controller is killed while its write hangs in the kernel; it lands when the disk answers again, in a file that
    nobody appends to any more."""
    first = machine.store(1)
    claim = first.claim(ONE)
    first.commit(feature("a"), claim.epoch)
    files = machine.files_of(first)
    for path in machine.paths:
        files.hang(path)
    failures: list[Exception] = []

    def commit() -> None:
        try:
            first.commit(feature("late"), claim.epoch)
        except HoldfastError as e:
            failures.append(e)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_for(lambda: not first.copies()[0].answers, "that it hangs")
    machine.end(first)
    thread.join(timeout=20)
    second = machine.store(2)
    after = second.claim(TWO)
    files.mend()  # now it lands
    wait_for(lambda: not first._lanes._queues, "that it has landed")  # type: ignore[attr-defined]
    second.commit(feature("b"), after.epoch)
    second.resign()
    assert failures
    assert features(machine.store(3)) == {"a", "b"}


def test_a_cluster_of_one_directory_is_taken_over_into_two(machine: Machine) -> None:
    alone = EmbeddedStore(machine.paths[0])
    cluster_id, claim = alone.cluster_id(), alone.claim(ONE)
    alone.commit(feature("old"), claim.epoch)
    alone.close()
    shutil.rmtree(f"{machine.paths[0]}/metadata-reigns")  # as it was before there were notes
    Path(f"{machine.paths[0]}/copy.id").unlink()
    store = machine.store()
    assert store.cluster_id() == cluster_id
    after = store.claim(TWO)
    assert after.epoch > claim.epoch
    store.commit(feature("new"), after.epoch)
    until_whole(machine, store, after.epoch)
    assert machine.names(0) == machine.names(1) == {"old", "new"}
    assert (Path(machine.paths[1]) / "cluster.id").read_text() == (Path(machine.paths[0]) / "cluster.id").read_text()


def test_A5_a_log_whose_segments_have_no_epoch_in_their_names_is_read_and_gone_on_with(machine: Machine) -> None:
    """What 0.1.0 left on the disks: a snapshot, and the segments of three claims."""
    recorded = json.loads((Path(__file__).parents[1] / "golden/disk/holdfast-0.1.0/metadata.json").read_text())
    places = {"metadata": "meta-1", "metadata-2": "meta-2", "log-1": "log-0", "log-2": "log-1"}
    for name, data in recorded["files"].items():
        directory, _, rest = name.partition("/")
        path = machine.root / places[directory] / rest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(data))
    folders = [Path(path) / "__cluster_metadata-0" for path in machine.paths]
    old = {path.name for path in folders[0].glob("*.log")}
    assert old and all(name.removesuffix(".log").isdigit() for name in old)
    expected = {f"f{n}" for n in range(1, recorded["features"] + 1)}
    store = machine.store()
    claim = store.claim(ONE)
    loaded = store.load(claim)
    image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
    assert set(image.features) == expected
    image, _ = image.apply(feature("new"), store.commit(feature("new"), claim.epoch))
    machine.end(store)
    for folder in folders:
        assert old < {path.name for path in folder.glob("*.log")}
    second = machine.store(2)
    again = second.claim(TWO)
    loaded = second.load(again)
    image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
    assert set(image.features) == {*expected, "new"}
    second.snapshot(image, again.epoch)
    for folder in folders:
        assert [path.name for path in folder.glob("*.log")] == [f"{image.next_offset:020d}-{again.epoch:010d}.log"]
    machine.end(second)
    assert features(machine.store(3)) == {*expected, "new"}


def test_A5_nothing_of_a_later_claim_is_removed(machine: Machine) -> None:
    """By a claim that was overtaken and does not know yet; and once it could know, it removes nothing at all."""
    first = machine.store(1)
    claim = first.claim(ONE)
    first.commit(feature("a"), claim.epoch)
    log = first._each[machine.paths[0]].log
    contents = log.read()
    for path in machine.paths:
        (Path(path) / "lock").unlink()
    second = machine.store(2)
    after = second.claim(TWO)
    now = second.load(after)
    image, _ = ClusterImage.empty("c").apply(now.records, now.base_offset)
    image, _ = image.apply(feature("b"), second.commit(feature("b"), after.epoch))
    second.snapshot(image, after.epoch)
    second.commit(feature("c"), after.epoch)
    folder = Path(machine.paths[0]) / "__cluster_metadata-0"
    (folder / f"{99:020d}-{after.epoch:010d}.checkpoint.tmp").write_bytes(b"under way")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    log.begin(contents, claim.epoch)  # as if it had looked a moment before
    assert before.items() <= {path.name: path.read_bytes() for path in folder.iterdir()}.items()
    useless = folder / f"{99:020d}-{claim.epoch:010d}.log"
    useless.touch()
    with pytest.raises(FencedControllerError):
        first._each[machine.paths[0]].begin(contents, claim.epoch)
    assert useless.exists()
    machine.end(first)
    machine.end(second)
    assert features(machine.store(3)) >= {"a", "b", "c"}


def test_directories_of_two_clusters_are_refused(machine: Machine) -> None:
    for path in machine.paths:
        store = EmbeddedStore(path)
        store.cluster_id()
        store.close()
    with pytest.raises(ConfigError, match="expected copies of one cluster's metadata"):
        machine.store().cluster_id()


def test_a_new_cluster_needs_all_its_directories(machine: Machine) -> None:
    store = machine.store()
    machine.break_it("EIO", 1, machine.files_of(store))
    with pytest.raises(KafkaStorageError, match="a new cluster needs all of metadata"):
        store.cluster_id()


def test_A5_wiped_directories_are_not_a_new_cluster(machine: Machine) -> None:
    store = machine.store()
    store.claim(ONE)
    store.close()
    for path in machine.paths:
        shutil.rmtree(path)
    with pytest.raises(KafkaStorageError, match="holdfast metadata recover"):
        machine.store(2).cluster_id()


def test_a_cluster_that_another_broker_makes_while_one_looks_is_joined(machine: Machine) -> None:
    """What the second one finds in its log directories is of the cluster that was made a moment ago."""
    first, second = machine.store(1), machine.store(2)
    files, plain, made = machine.files_of(second), OsFiles.listdir, threading.Event()

    def meanwhile(path: str) -> list[str]:
        if path.startswith(machine.witnesses[0]) and not made.is_set():
            made.set()
            first.claim(ONE)
        return plain(files, path)

    files.listdir = meanwhile  # type: ignore[method-assign]
    assert second.cluster_id() == first.cluster_id()
    assert made.is_set()


def test_a_kill_between_the_copies_leaves_them_equal_at_the_next_claim(machine: Machine) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    machine.end(store)
    # The commit that was under way reached one copy.
    log = MetadataLog(f"{machine.paths[1]}/__cluster_metadata-0", OsFiles(), lambda: 0)
    log.recover()
    log.append(feature("half"), claim.epoch)
    log.close()
    other = machine.store(2)
    assert features(other) == {"a", "half"}
    assert all(copy.is_good for copy in other.copies())
    assert machine.names(0) == machine.names(1) == {"a", "half"}


def test_D10_where_the_controller_is_comes_from_the_copy_that_answers(machine: Machine) -> None:
    store, asking = machine.store(1), machine.store(2)
    claim = store.claim(ONE)
    machine.break_it("hang", 0, machine.files_of(asking))
    found = asking.active()
    assert found is not None and found.epoch == claim.epoch
